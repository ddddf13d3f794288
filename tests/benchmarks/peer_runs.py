"""Runs of llama-bench and llama-batched-bench with what the engine decodes with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from inference.cpu_threads import default_threads
from inference.llama.context import ContextParams
from inference.process.worker_process import worker_environment
from installers.benchmark_peers import peer_binary
from tests.benchmarks.engine_runs import starter

# The chunk that the engine hands to one decode; KV rows are f16 on both sides.
N_UBATCH = ContextParams(n_ctx=1).n_ubatch


def peer_environment() -> dict[str, str]:
    """What the worker runs in, so that waiting threads spin no longer in one than in the other."""
    return worker_environment(os.environ)


def default_environment() -> dict[str, str]:
    """What a peer runs in by itself."""
    return {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}


def llama_bench(
    environment: Mapping[str, str],
    *,
    num_prompt: int = 0,
    num_generated: int = 0,
    depth: int,
    repetitions: int,
) -> list[float]:
    """Tokens/s of each repetition: of reading so many tokens, or of writing them behind `depth` others."""
    told = _run(
        environment,
        *("llama-bench", "--n-prompt", str(num_prompt), "--n-gen", str(num_generated)),
        *("--n-depth", str(depth), "--repetitions", str(repetitions), "--output", "json"),
    )
    [test] = json.loads(told)
    return [float(rate) for rate in test["samples_ts"]]


def llama_batched_bench(
    environment: Mapping[str, str], *, n_ctx: int, depth: int, num_generated: int, num_chats: Sequence[int]
) -> dict[int, float]:
    """Tokens/s of all chats together, each of them `depth` tokens long before, in one unified cache; by their number."""
    told = _run(
        environment,
        *("llama-batched-bench", "-c", str(n_ctx), "-kvu", "-tb", str(default_threads())),
        *("-npp", str(depth), "-ntg", str(num_generated), "-npl", ",".join(map(str, num_chats))),
        *("--output-format", "jsonl"),
    )
    tests: list[dict[str, Any]] = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    return {test["pl"]: test["speed_tg"] for test in tests}


def _run(environment: Mapping[str, str], name: str, *options: str) -> str:
    """What a peer prints."""
    common = [
        *("-m", str(starter()), "-t", str(default_threads()), "-b", str(N_UBATCH), "-ub", str(N_UBATCH)),
        *("-fa", "on", "-ctk", "f16", "-ctv", "f16", "-ngl", "0"),
    ]
    return subprocess.run(
        [str(peer_binary(name)), *common, *options],
        env=dict(environment),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
