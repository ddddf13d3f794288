"""Titles in the whole window with the starter model: what asking for one leaves behind, which is nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from desktop.conversations import ChatSettings
from desktop.starter_model import find_starter_model
from inference import EngineClient, EngineEvent, PromptCounts, WorkerConfig
from tests.desktop.running_window import RunningWindow, until

QUESTION = "Tell me in one sentence what a lighthouse is for."


class StoringWindow(RunningWindow):
    def _connect_engine(self, on_event: Callable[[EngineEvent], None]) -> EngineClient:  # type: ignore[override]
        self.client = EngineClient(WorkerConfig(self.paths.kv, self.paths.logs / "engine.log"), on_event)
        return self.client

    def kept(self) -> set[str]:
        """Names of all blocks and checkpoints on disk, which say what is in them."""
        return {path.name for path in self.paths.kv.rglob("*") if path.is_file() and len(path.name) > 32}

    async def kept_at_rest(self) -> set[str]:
        """Once nothing was added for a while."""
        before = self.kept()
        while True:
            await asyncio.sleep(0.4)
            if before and self.kept() == before:
                return before
            before = self.kept()


async def last_reply(window: RunningWindow) -> tuple[PromptCounts, int]:
    """Once its end is on disk."""
    # Nobody tells when.
    while (reply := (await window.stored_branch())[-1]).counts is None:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert reply.num_generation_tokens is not None
    return reply.counts, reply.num_generation_tokens


async def test_asking_for_a_title_stores_nothing_and_the_chat_stays_in_memory(tmp_path: Path) -> None:
    async with StoringWindow(tmp_path / "data", find_starter_model()) as window:
        await until(lambda: window.client.model_info is not None)
        window.everwarm.settings.change(lambda settings: replace(settings, write_titles=False))
        window.everwarm.open_chat.change_settings(
            ChatSettings(sampling={"temperature": 0.0, "max_tokens": 40})
        )
        await window.ask(QUESTION)
        kept = await window.kept_at_rest()
        window.everwarm.settings.change(lambda settings: replace(settings, write_titles=True))
        titles = window.everwarm.titles
        titles.start()
        assert titles.is_writing
        await until(lambda: not titles.is_writing)
        chat = window.everwarm.open_chat.id
        assert chat is not None
        assert titles._tries[chat] == 1
        print("the title:", window.titles)
        assert await window.kept_at_rest() == kept
        counts, num_generated = await last_reply(window)
        # All but the last token of the former reply, which was sampled and never read.
        read_before = counts.num_prompt_tokens + num_generated - 1
        await window.ask("And who builds one?")
        counts, _ = await last_reply(window)
        assert counts.reused_tokens + counts.restored_tokens >= read_before
