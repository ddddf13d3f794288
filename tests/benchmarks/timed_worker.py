"""The worker process with a clock before and after every native call that makes a token; its log gets a line of JSON for
each reply. Started in place of the worker itself."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from inference.events import RequestFinished
from inference.llama.native_library import load_native_library
from inference.metrics import KVUsage
from inference.process import worker
from inference.reply_run import ReplyRun

_NATIVE_CALLS = ("llama_decode", "llama_sampler_sample")


def timed(call: Callable[..., Any], spans: list[tuple[float, float]]) -> Callable[..., Any]:
    def timed_call(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = call(*arguments)
        spans.append((began, time.perf_counter()))
        return result

    return timed_call


def main() -> None:
    llama = load_native_library()
    spans: list[tuple[float, float]] = []
    for name in _NATIVE_CALLS:
        setattr(llama, name, timed(getattr(llama, name), spans))
    finished = ReplyRun.finished

    def tell(run: ReplyRun, kv: KVUsage) -> RequestFinished:
        # Without the prompt and the first token: from there on a decode and a sampling are a step.
        num_steps = len(run.generated_ids) - 1
        steps = spans[-num_steps * len(_NATIVE_CALLS) :]
        native_s = sum(end - began for began, end in steps)
        told = {
            "num_steps": num_steps,
            "step_s": (steps[-1][1] - steps[0][0]) / num_steps,
            "native_s": native_s / num_steps,
        }
        print(json.dumps(told), file=sys.stderr, flush=True)
        spans.clear()
        return finished(run, kv)

    ReplyRun.finished = tell  # type: ignore[method-assign]
    worker.main(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
