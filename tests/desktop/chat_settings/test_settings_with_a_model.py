"""Chat settings in the whole window with a real worker: what is set is what the model really gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from desktop.chat import draft_reading
from desktop.conversations import ChatSettings
from desktop.starter_model import find_starter_model
from inference import EngineClient, EngineEvent, ModelInfo, ReadAhead, WorkerConfig
from tests.desktop.running_window import RunningWindow, until
from tests.tiny_models import CHATML, TinyModel, write_llama

GO = "{{- range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}"
# Random weights ramble, so replies are cut short.
SHORT = {"temperature": 0.0, "max_tokens": 4}


class RealEngineWindow(RunningWindow):
    client: EngineClient

    def _connect_engine(self, on_event: Callable[[EngineEvent], None]) -> EngineClient:  # type: ignore[override]
        self.client = EngineClient(WorkerConfig(log_file=self.paths.logs / "engine.log"), on_event)
        return self.client

    async def quit(self) -> None:
        await super().quit()
        await self.client.close(5)

    async def loaded(self) -> ModelInfo:
        await until(lambda: self.client.model_info is not None and self.everwarm.models.loading is None)
        assert self.client.model_info is not None
        return self.client.model_info

    async def set(self, settings: ChatSettings) -> None:
        chat = self.everwarm.open_chat
        chat.change_settings(settings)
        await until(lambda: chat.conversation is not None and chat.conversation.settings == settings)

    async def stored_seeds(self) -> list[int | None]:
        return [message.seed for message in await self.stored_branch() if message.role == "assistant"]

    @property
    def details(self) -> dict[str, str]:
        return {detail.label: detail.value for detail in self.rows[-1].details}


@pytest.mark.parametrize(
    ("template", "reason"), [(None, "has no chat template"), (GO, "chat template cannot be read")]
)
async def test_a_model_without_a_usable_template_names_its_format_and_takes_another(
    tmp_path: Path, template: str | None, reason: str
) -> None:
    model = write_llama(tmp_path / "tiny.gguf", TinyModel(chat_template=template))
    async with RealEngineWindow(tmp_path / "data", model) as window:
        await window.loaded()
        await until(lambda: reason in window.notice("format"))
        assert "chatml, built into Everwarm" in window.notice("format")
        await window.set(ChatSettings("Be brief.", SHORT))
        await window.ask("hello")
        assert window.details["Template"] == "chatml, built into Everwarm"
        await window.set(ChatSettings("Be brief.", SHORT, "built-in gemma"))
        assert window.notice("format") == ""
        await window.ask("hello again")
        assert window.details["Template"] == (
            "gemma, built into Everwarm; it knows no system prompt, so that was folded into the first message"
        )


async def test_a_draft_that_was_read_with_the_chat_s_settings_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_reading, "DRAFT_READING_PAUSE_MS", 5)
    thinking = (
        CHATML + "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"
        "{{ strftime_now('%A %d %B %Y, %H:%M:%S') if add_generation_prompt }}"
    )
    model = write_llama(tmp_path / "tiny.gguf", TinyModel(chat_template=thinking))
    async with RealEngineWindow(tmp_path / "data", model) as window:
        info = await window.loaded()
        assert [option.name for option in info.template.options_of(None)] == ["enable_thinking"]
        await window.set(ChatSettings("Be brief.", SHORT, None, {"enable_thinking": False}))
        await window.ask("hello")
        draft = "and what of the others, then?"
        window.type(draft)
        await until(lambda: window.everwarm.draft_reading._told == (ReadAhead.ALL, draft))
        # Nothing tells that a draft was read; but it is before the worker has taken up so many other things.
        for _ in range(5):
            await window.client.load_model(info.config)
            await asyncio.sleep(0.05)
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.rows) == 4)
        await window.idle()
        await until(lambda: bool(window.details))
        assert window.details["Read (prefill)"].startswith("1 token "), window.details


async def test_the_starter_model_follows_what_the_chat_sets(tmp_path: Path) -> None:
    starter = find_starter_model()
    assert starter is not None
    async with RealEngineWindow(tmp_path / "data", starter) as window:
        info = await window.loaded()
        assert (info.template.source, info.template.reason) == ("model", None)
        assert window.notice("format") == ""
        form = window.everwarm.settings_panel.form_row
        form.kind_box.setCurrentIndex(form.kind_box.findData("grammar"))
        form.kind_box.activated.emit(form.kind_box.currentIndex())
        form.text_box.setText("root ::= answer")
        await until(lambda: "answer" in form.error)
        form.text_box.setText('root ::= "The answer is " ("yes" | "no") "."')
        await until(lambda: "grammar" in window.everwarm.open_chat.settings.sampling)
        await window.ask("Is water wet?")
        assert window.texts[-1].startswith(("The answer is yes.", "The answer is no."))
        assert window.details["Template"] == "the model's own"


async def test_each_reply_is_stored_with_the_seed_that_was_really_used(tmp_path: Path) -> None:
    # Reported as abetlen/llama-cpp-python#1809, #386; deepset-ai/haystack-core-integrations#1269.
    model = write_llama(tmp_path / "tiny.gguf")
    rambling = {"temperature": 1.0, "max_tokens": 12}
    async with RealEngineWindow(tmp_path / "data", model) as window:
        await window.loaded()
        for settings in (rambling, {**rambling, "seed": 7}, rambling):
            await window.set(ChatSettings("", settings))
            await window.ask("hello")
            await window.ask("hello")
        seeds = await window.stored_seeds()
        while None in seeds:
            # A reply's end is stored just after it is shown.
            await asyncio.sleep(0.05)
            seeds = await window.stored_seeds()
    assert len(seeds) == 6
    assert seeds[2:4] == [7, 7]
    # Drawn anew for each reply, and not brought back by the KV state that each of them goes on from.
    drawn = [*seeds[:2], *seeds[4:]]
    assert len({*drawn, 7}) == 5
