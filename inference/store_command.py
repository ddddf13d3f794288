"""`python -m inference store DIR …`: look at a prefix store, check it, and make it smaller."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import msgspec

from inference.chat_file import read_chat_file
from inference.command_errors import GivenPath, exit_with, log_file, show
from inference.events import PrefixExplained
from inference.kvcache.block_store import BlockStore
from inference.kvcache.default_budget import default_budget_bytes
from inference.model_config import ModelConfig
from inference.process.client import EngineClient
from inference.process.worker_config import WorkerConfig
from inference.request import EngineError, ErrorCode, GenerationRequest
from inference.sampling_params import MAX_COUNT
from inference.template_name import template_option

_EXIT_DAMAGE_REMOVED = 1
_STORE_HAS_ONE_OF = ("owners", "changes.log", "model-digests.json")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


@dataclass(frozen=True, slots=True)
class StoreReport:
    """bytes: of all files. bytes_written: by all processes since the store was made. unknown_layouts: sequences that
    could only be stored whole, since their model's state layout is not known."""

    blocks: int
    tokens: int
    checkpoints: int
    bytes: int
    budget_bytes: int
    bytes_written: int
    bytes_written_today: int
    unknown_layouts: int
    references: int
    pins: int


@click.group()
@click.argument("folder", metavar="DIR", type=GivenPath())
@click.pass_context
def store(context: click.Context, folder: Path) -> None:
    """Look at the prefix store in DIR, check it, or make it smaller."""
    context.obj = folder


def _check_store(folder: Path) -> None:
    """End the command unless the folder is a store or empty: opening one makes files in it."""
    if not folder.is_dir():
        exit_with(EngineError(ErrorCode.STORE_UNUSABLE, f"{folder} is no folder, so there is no store in it"))
    if any(folder.iterdir()) and not any((folder / name).exists() for name in _STORE_HAS_ONE_OF):
        exit_with(
            EngineError(
                ErrorCode.STORE_UNUSABLE, f"{folder} holds no store: give the folder that --kv-store names"
            )
        )


@contextmanager
def _opened(folder: Path, budget_bytes: int | None = None) -> Iterator[BlockStore]:
    _check_store(folder)
    try:
        opened = BlockStore(folder, default_budget_bytes(folder) if budget_bytes is None else budget_bytes)
    except OSError as error:
        exit_with(
            EngineError(ErrorCode.STORE_UNUSABLE, f"{folder} cannot be used: {error.strerror or error}")
        )
    try:
        yield opened
    except OSError as error:
        exit_with(EngineError(ErrorCode.STORE_UNUSABLE, f"{folder}: {error.strerror or error}"))
    finally:
        opened.close(30)


def _report(opened: BlockStore) -> StoreReport:
    stats = opened.stats()
    return StoreReport(
        blocks=stats.num_blocks,
        tokens=stats.num_tokens,
        checkpoints=stats.num_checkpoints,
        bytes=stats.store_bytes,
        budget_bytes=stats.budget_bytes,
        bytes_written=stats.bytes_written_total,
        bytes_written_today=stats.bytes_written_today,
        unknown_layouts=stats.num_wholes,
        references=stats.num_references,
        pins=stats.num_pins,
    )


def _show(values: dict[str, object], as_json: bool) -> None:
    if as_json:
        show(msgspec.json.encode(values).decode())
        return
    for name, value in values.items():
        show(f"{name.replace('_', ' '):20} {value:,}" if isinstance(value, int) else f"{name:20} {value}")


@store.command()
@AS_JSON
@click.pass_obj
def stats(folder: Path, as_json: bool) -> None:
    """What is stored, and how many bytes were written."""
    with _opened(folder) as opened:
        _show(asdict(_report(opened)), as_json)


@store.command()
@AS_JSON
@click.pass_obj
def verify(folder: Path, as_json: bool) -> None:
    """Read every file back, and remove damaged ones; exit code 1 if there were any."""
    with _opened(folder) as opened:
        report = opened.verify()
    _show(asdict(report), as_json)
    if report.removed:
        sys.exit(_EXIT_DAMAGE_REMOVED)


@store.command()
@click.option("--to-bytes", type=click.IntRange(min=0), help="Default: the budget, a tenth of the free disk.")
@AS_JSON
@click.pass_obj
def prune(folder: Path, to_bytes: int | None, as_json: bool) -> None:
    """Evict the least recently used until at most so many bytes are left."""
    with _opened(folder) as opened:
        opened.prune(opened.budget_bytes if to_bytes is None else to_bytes)
        _show(asdict(_report(opened)), as_json)


@store.command()
@AS_JSON
@click.pass_obj
def wipe(folder: Path, as_json: bool) -> None:
    """Remove everything that is stored; chats are read again when they go on."""
    with _opened(folder) as opened:
        opened.wipe()
        _show(asdict(_report(opened)), as_json)


@store.command()
@click.argument("model", type=GivenPath())
@click.option("--prompt", help="Raw text; no chat template.")
@click.option("--chat", type=GivenPath(), metavar="FILE.json", help='A list of {"role", "content"}.')
@template_option
@click.option("--context", type=click.IntRange(1, MAX_COUNT), metavar="N", help="As for generate.")
@AS_JSON
@click.pass_obj
def explain(
    folder: Path,
    model: Path,
    prompt: str | None,
    chat: Path | None,
    template: str | None,
    context: int | None,
    as_json: bool,
) -> None:
    """What of a prompt would be restored, and why not more."""
    if (prompt is None) == (chat is None):
        raise click.UsageError("give either --prompt or --chat")
    if template is not None and chat is None:
        raise click.UsageError("--template is for --chat: --prompt goes through none")
    _check_store(folder)
    try:
        request = GenerationRequest(
            ModelConfig(str(model), n_ctx=context, n_gpu_layers=0),
            messages=None if chat is None else read_chat_file(chat),
            prompt=prompt,
            chat_template=template,
        )
        explained = asyncio.run(_explain(folder, request))
    except EngineError as error:
        exit_with(error)
    miss = explained.miss
    _show(
        {
            "prompt_tokens": explained.num_prompt_tokens,
            "stored_tokens": explained.num_stored_tokens,
            "restorable_tokens": explained.num_usable_tokens,
            "bytes_to_read": explained.bytes_to_read,
            "ends_at": None if miss is None else miss.position,
            "reason": None if miss is None else miss.reason,
            "prompt_text": None if miss is None else miss.prompt_text,
            "stored_text": None if miss is None else miss.stored_text,
        },
        as_json,
    )


async def _explain(folder: Path, request: GenerationRequest) -> PrefixExplained:
    client = EngineClient(WorkerConfig(kv_store=folder, log_file=log_file()))
    try:
        return await client.explain(request)
    finally:
        await client.close(10)
