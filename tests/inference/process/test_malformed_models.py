"""Malformed files, one after the other, through one worker: each is refused, and then it loads a good model."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from inference import (
    EngineClient,
    EngineError,
    ErrorCode,
    GenerationRequest,
    ModelConfig,
    RequestFailed,
    RequestFinished,
    SamplingParams,
    WorkerConfig,
)
from tests.handmade_gguf import MALFORMED, MAX_GROWTH_BYTES


async def refused(client: EngineClient, model: ModelConfig) -> tuple[ErrorCode, str]:
    """Why a reply by it is not written; why it is not loaded ahead, is told alike."""
    request = GenerationRequest(model, prompt="x", sampling=SamplingParams(max_tokens=1))
    [event] = [event async for event in client.generate(request) if isinstance(event, RequestFailed)]
    with pytest.raises(EngineError) as not_loaded:
        await client.load_model(model)
    assert (not_loaded.value.code, str(not_loaded.value)) == (event.code, event.message)
    return event.code, event.message


async def test_twelve_malformed_files_are_refused_by_one_worker_that_then_loads_a_good_one(
    tmp_path: Path, tiny_paths: dict[str, Path]
) -> None:
    client = EngineClient(WorkerConfig(None, tmp_path / "worker.log"))
    good = ModelConfig(str(tiny_paths["gqa"]), n_ctx=256, n_threads=1)
    await client.load_model(good)
    worker = psutil.Process(client.worker_pid)
    before = worker.memory_info().rss
    assert len(MALFORMED) == 12
    for number, content in enumerate(MALFORMED.values()):
        path = tmp_path / f"model {number}.gguf"
        path.write_bytes(content)
        code, message = await refused(client, ModelConfig(str(path)))
        assert code is ErrorCode.MODEL_INVALID
        assert path.name in message
        assert message.isprintable()
        assert client.worker_pid == worker.pid
    assert worker.memory_info().rss - before < MAX_GROWTH_BYTES
    request = GenerationRequest(good, prompt="x", sampling=SamplingParams(temperature=0.0, max_tokens=4))
    events = [event async for event in client.generate(request)]
    assert isinstance(events[-1], RequestFinished)
    assert client.worker_pid == worker.pid
    await client.close(10)
