"""The headless command: `python -m inference generate`, for scripts and for measuring."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from inference.chat_file import read_chat_file
from inference.command_errors import GivenPath, exit_with, log_file, run_command, show, warn
from inference.model_config import MAX_THREADS, ModelConfig
from inference.process.worker_config import WorkerConfig
from inference.request import EngineError, GenerationRequest
from inference.sampling_options import read_sampling, sampling_options
from inference.sampling_params import MAX_COUNT
from inference.single_generation import SingleGeneration
from inference.store_command import store
from inference.template_name import template_option


class GpuLayers(click.ParamType[int | None]):
    """auto (None), none (0) or a number of layers."""

    name = "auto|none|N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        text = str(value)
        if text == "auto":
            return None
        if text == "none":
            return 0
        if not text.isdecimal() or int(text) > MAX_COUNT:
            self.fail(f"{text!r} is not auto, none or a number of layers", param, ctx)
        return int(text)


def main() -> None:
    """Errors are one line on stderr, whoever finds them; see command_errors for the exit codes."""
    run_command(cli)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Everwarm's engine without a window."""


cli.add_command(store)


@cli.command()
@click.argument("model", type=GivenPath())
@click.option("--prompt", help="Raw text to continue; no chat template.")
@click.option("--chat", type=GivenPath(), metavar="FILE.json", help='A list of {"role", "content"}.')
@template_option
@click.option("--kv-store", type=GivenPath(), metavar="DIR", help="Keep the KV cache in this folder.")
@click.option("--no-kv-store", is_flag=True, help="Keep nothing on disk (the default).")
@click.option(
    "--context",
    type=click.IntRange(1, MAX_COUNT),
    metavar="N",
    help="Tokens; default min(training context, 8192).",
)
@sampling_options
@click.option("--gpu-layers", type=GpuLayers(), default="auto", show_default=True, help="Layers on the GPU.")
@click.option(
    "--threads",
    type=click.IntRange(1, MAX_THREADS),
    metavar="N",
    help="Default: physical cores of this process.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of the text.")
def generate(
    model: Path,
    prompt: str | None,
    chat: Path | None,
    template: str | None,
    kv_store: Path | None,
    no_kv_store: bool,
    context: int | None,
    gpu_layers: int | None,
    threads: int | None,
    as_json: bool,
    **sampling: Any,
) -> None:
    """Generate one reply with MODEL, a GGUF file.

    Exit codes: 0 done, 1 refused input, 2 usage, 3 the engine died. Errors are one line on stderr.
    """
    if (prompt is None) == (chat is None):
        raise click.UsageError("give either --prompt or --chat")
    if template is not None and chat is None:
        raise click.UsageError("--template is for --chat: --prompt goes through none")
    if kv_store is not None and no_kv_store:
        raise click.UsageError("--kv-store and --no-kv-store exclude each other")
    try:
        request = GenerationRequest(
            model=ModelConfig(str(model), n_ctx=context, n_gpu_layers=gpu_layers, n_threads=threads),
            messages=None if chat is None else read_chat_file(chat),
            prompt=prompt,
            chat_template=template,
            sampling=read_sampling(sampling),
        )
        generation = SingleGeneration((lambda text: None) if as_json else _print_text, warn)
        report = asyncio.run(generation.run(WorkerConfig(kv_store=kv_store, log_file=log_file()), request))
    except EngineError as error:
        exit_with(error)
    show(msgspec.json.encode(report).decode() if as_json else "")
    if generation.failure is not None:
        exit_with(generation.failure)


def _print_text(text: str) -> None:
    # A terminal that cannot show a character gets a mark for it, not a traceback.
    encoding = sys.stdout.encoding or "utf-8"
    show(text.encode(encoding, "replace").decode(encoding), newline=False)
