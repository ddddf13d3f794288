"""The panel of chat settings in the whole window, with a scripted engine."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from desktop.chat import chat_prefetch, draft_reading
from desktop.chat_settings.editors import ChoiceRow, TypedRow
from desktop.chat_settings.settings_panel import ChatSettingsPanel
from desktop.conversations import ChatSettings, ConversationStore
from inference import (
    ErrorCode,
    GenerationRequest,
    ReadAhead,
    SamplingDefaults,
    SamplingParams,
    TemplateInfo,
    TemplateOption,
    TemplateUse,
)
from tests.desktop.running_window import RunningWindow, until
from tests.desktop.scripted_engine import failed, finished, reply

MakeWindow = Callable[..., RunningWindow]
THINKING = TemplateInfo(
    "model",
    None,
    ("model", "built-in chatml"),
    {"model": (TemplateOption("enable_thinking", (True, False)),)},
)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_prefetch, "PREFETCH_PAUSE_MS", 5)
    monkeypatch.setattr(draft_reading, "DRAFT_READING_PAUSE_MS", 5)
    monkeypatch.setattr(draft_reading, "OPENED_PAUSE_MS", 5)


def panel_of(window: RunningWindow) -> ChatSettingsPanel:
    return window.everwarm.settings_panel


async def loaded(window: RunningWindow) -> None:
    await until(lambda: window.engine.model_info is not None and window.everwarm.models.loading is None)


async def saved(window: RunningWindow) -> ChatSettings:
    """What is on disk of the open chat, once all is there."""
    chat = window.everwarm.open_chat
    await until(lambda: chat.conversation is not None and chat.conversation.settings == chat.settings)
    assert chat.id is not None
    with contextlib.closing(ConversationStore.open(window.paths.database)) as store:
        return store.conversation(chat.id).settings


def typed(window: RunningWindow, name: str, text: str) -> TypedRow:
    row = panel_of(window).rows[name]
    assert isinstance(row, TypedRow)
    row.editor.setText("")
    QTest.keyClicks(row.editor, text)
    return row


def chosen(row: ChoiceRow, words: str) -> None:
    index = row.editor.findText(words)
    assert index >= 0, [row.editor.itemText(place) for place in range(row.editor.count())]
    row.editor.setCurrentIndex(index)
    row.editor.activated.emit(index)


def prompt_of(request: GenerationRequest) -> tuple[object, ...]:
    contents = [(message.role, message.content) for message in request.messages or ()]
    return (
        contents,
        request.chat_template,
        dict(request.template_options),
        request.template_time,
        request.owner,
    )


async def test_a_key_opens_the_panel_and_closes_it(window: RunningWindow) -> None:
    async with window:
        panel = panel_of(window)
        assert panel.isHidden()
        QTest.keyClick(window.input, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
        assert panel.isVisible()
        assert QApplication.focusWidget() is panel.system_prompt.editor
        QTest.keyClick(panel.system_prompt.editor, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
        assert panel.isHidden()
        assert QApplication.focusWidget() is window.input
        QTest.mouseClick(window.everwarm.panel.settings_button, Qt.MouseButton.LeftButton)
        assert panel.isVisible()


async def test_what_is_set_holds_from_the_next_reply_on_for_this_chat_only(make_window: MakeWindow) -> None:
    window = make_window()
    async with window:
        await loaded(window)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        typed(window, "temperature", "0,2")
        QTest.keyClicks(panel_of(window).system_prompt.editor, "Be brief.")
        window.engine.enqueue(reply("Fine."))
        # At once: what was typed just before Enter counts.
        await window.ask("And now?")
        before, after = window.engine.requests
        assert (before.sampling.temperature, after.sampling.temperature) == (None, 0.2)
        assert [message.role for message in before.messages or ()] == ["user"]
        assert prompt_of(after)[0] == [
            ("system", "Be brief."),
            ("user", "Hi"),
            ("assistant", "Hello!"),
            ("user", "And now?"),
        ]
        expected = ChatSettings("Be brief.", {"temperature": 0.2})
        assert await saved(window) == expected
        await window.everwarm.open_chat.open(None)
        assert panel_of(window).settings == ChatSettings()
        assert panel_of(window).system_prompt.editor.text() == ""
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Another chat")
        assert window.engine.requests[-1].sampling == SamplingParams()
    again = make_window()
    async with again:
        again.everwarm.list_view.open_next()
        await until(lambda: again.everwarm.open_chat.settings == expected)
        row = panel_of(again).rows["temperature"]
        assert isinstance(row, TypedRow)
        assert (row.text(), row.origin_label.text()) == ("0.2", "this chat; else 0.7, default")
        assert panel_of(again).system_prompt.editor.text() == "Be brief."


async def test_a_bad_value_is_refused_in_place_and_what_held_before_holds_on(window: RunningWindow) -> None:
    async with window:
        await loaded(window)
        row = typed(window, "top_p", "0.9")
        assert await saved(window) == ChatSettings(sampling={"top_p": 0.9})
        QTest.keyClick(row.editor, Qt.Key.Key_Home)
        QTest.keyClicks(row.editor, "7")
        assert row.error == "Must be above 0 and at most 1, not 70.9. Not used."
        assert row.editor.accessibleDescription().startswith(row.error)
        assert await saved(window) == ChatSettings(sampling={"top_p": 0.9})
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        # What was typed is still there to be mended.
        assert (row.text(), row.error[:4]) == ("70.9", "Must")
        assert window.engine.requests[-1].sampling.top_p == 0.9
        row.reset_button.click()
        assert (row.text(), row.error, row.origin_label.text()) == ("", "", "default")
        assert await saved(window) == ChatSettings()


async def test_values_say_where_they_come_from(make_window: MakeWindow) -> None:
    window = make_window()
    window.paths.prepare()
    window.paths.settings.write_text("[sampling]\ntop_k = 5\n")
    window.engine.model_changes = {
        "sampling_defaults": SamplingDefaults(temperature=0.6),
        "recommended_sampling": ("temperature",),
    }
    async with window:
        await loaded(window)
        await until(lambda: "recommends" in panel_of(window).rows["temperature"].origin_label.text())
        rows = panel_of(window).rows
        assert rows["temperature"].origin_label.text() == "the model recommends 0.6"
        assert rows["top_k"].origin_label.text() == "from settings"
        assert rows["min_p"].origin_label.text() == "default"
        assert rows["top_k"].reset_button.isHidden()


async def test_a_chat_s_values_can_become_those_of_new_chats(window: RunningWindow) -> None:
    async with window:
        await loaded(window)
        button = panel_of(window).new_chats_button
        assert not button.isEnabled()
        typed(window, "temperature", "0.2")
        typed(window, "stop", "END\\n")
        button.click()
        await until(lambda: window.paths.settings.exists() and "END" in window.paths.settings.read_text())
        kept = tomllib.loads(window.paths.settings.read_text())["sampling"]
        assert (kept["temperature"], kept["stop"]) == (0.2, ["END\n"])
        await window.everwarm.open_chat.open(None)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        assert window.engine.requests[-1].sampling == SamplingParams(temperature=0.2, stop=("END\n",))


async def test_a_draft_and_an_opened_chat_are_read_as_the_reply_will_be_asked(window: RunningWindow) -> None:
    window.engine.model_changes = {"template": THINKING}
    async with window:
        await loaded(window)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        panel = panel_of(window)
        QTest.keyClicks(panel.system_prompt.editor, "Be brief.")
        chosen(panel.template_section.template_row, "The model's own")
        chosen(panel.template_section.option_rows["enable_thinking"], "off")
        expected = ChatSettings("Be brief.", {}, "model", {"enable_thinking": False})
        assert await saved(window) == expected
        window.engine.drafts.clear()
        window.type("And now")
        await until(lambda: any(how_much is ReadAhead.ALL for _, how_much in window.engine.drafts))
        # A change of the settings alone is news for the reader, too.
        window.engine.drafts.clear()
        chosen(panel.template_section.option_rows["enable_thinking"], "on")
        await until(lambda: any(how_much is ReadAhead.ALL for _, how_much in window.engine.drafts))
        draft = window.engine.drafts[-1][0]
        window.engine.enqueue(reply("Fine."))
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.engine.requests) == 2)
        await window.idle()
        asked = window.engine.requests[-1]
        assert prompt_of(draft) == prompt_of(asked)
        assert asked.template_options == {"enable_thinking": True}
        assert asked.chat_template == "model"
        conversation = window.everwarm.open_chat.conversation
        assert conversation is not None
        assert asked.template_time == conversation.created_at.timestamp()
        window.engine.prefetched.clear()
        await window.everwarm.open_chat.open(conversation.id)
        await until(lambda: bool(window.engine.prefetched))
        contents, *how = prompt_of(window.engine.prefetched[-1])
        assert contents == [*prompt_of(asked)[0], ("assistant", "Fine.")]  # type: ignore[misc]
        assert how == list(prompt_of(asked)[1:])


async def test_a_grammar_is_used_once_it_has_been_found_good(window: RunningWindow) -> None:
    async with window:
        await loaded(window)
        form = panel_of(window).form_row
        window.engine.grammar_problems["root ::= answer"] = "line 1: there is no rule “answer”"
        form.kind_box.setCurrentIndex(1)
        form.kind_box.activated.emit(1)
        form.text_box.setText("root ::= answer")
        form.check()
        await until(lambda: bool(form.error))
        assert form.error == "Not used: line 1: there is no rule “answer”."
        assert window.everwarm.open_chat.settings == ChatSettings()
        form.text_box.setText('root ::= "a"')
        form.check()
        await until(lambda: not form.error)
        expected = {"grammar": 'root ::= "a"', "json_schema": None}
        assert await saved(window) == ChatSettings(sampling=expected)
        window.engine.enqueue(reply("a"))
        await window.ask("Hi")
        assert window.engine.requests[-1].sampling == SamplingParams(grammar='root ::= "a"')
        assert form.text_box.text() == 'root ::= "a"'
        form.reset_button.click()
        assert await saved(window) == ChatSettings()
        assert form.text_box.isHidden()


async def test_a_verdict_on_what_has_been_typed_over_says_nothing(window: RunningWindow) -> None:
    async with window:
        form = panel_of(window).form_row
        form.kind_box.setCurrentIndex(1)
        form.text_box.setText('root ::= "new"')
        form.show_verdict(SamplingParams(grammar='root ::= "old"'), "wrong")
        form.show_verdict(SamplingParams(grammar='root ::= "old"'), None)
        assert form.error == ""
        assert window.everwarm.open_chat.settings == ChatSettings()


async def test_settings_that_cannot_be_saved_hold_until_they_can(
    window: RunningWindow, disk_full: Callable[[bool], None]
) -> None:
    async with window:
        await loaded(window)
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        disk_full(True)
        typed(window, "temperature", "0.2")
        await until(lambda: "disk is full" in window.notice("not saved"))
        # Another chat would lose them, so this one stays.
        opened = window.everwarm.open_chat.id
        await window.everwarm.open_chat.open(None)
        assert window.everwarm.open_chat.id == opened
        disk_full(False)
        window.engine.enqueue(reply("Fine."))
        await window.ask("And now?")
        assert window.engine.requests[-1].sampling.temperature == 0.2
        assert await saved(window) == ChatSettings(sampling={"temperature": 0.2})
        await until(lambda: window.notice("not saved") == "")


async def test_a_reply_s_details_name_its_format_and_what_was_done_to_the_chat(
    make_window: MakeWindow,
) -> None:
    use = TemplateUse("built-in gemma", ("system prompt in the first user message",))
    words = "gemma, built into Everwarm; it knows no system prompt, so that was folded into the first message"
    window = make_window()
    async with window:
        window.engine.enqueue([finished("Hello!", template=use)])
        await window.ask("Hi")
        assert ("Template", words) in [(detail.label, detail.value) for detail in window.rows[-1].details]
    again = make_window()
    async with again:
        assert ("Template", words) in [(detail.label, detail.value) for detail in again.rows[-1].details]


async def test_a_model_whose_format_is_guessed_is_never_silent_about_it(window: RunningWindow) -> None:
    window.engine.model_changes = {
        "template": TemplateInfo(
            "built-in chatml", "the model's file has no chat template", ("built-in chatml",)
        )
    }
    async with window:
        await until(lambda: "chatml, built into Everwarm" in window.notice("format"))
        assert "has no chat template" in window.notice("format")
        # Dismissed, it does not come back with the next message.
        window.everwarm.notices.dismiss("format")
        window.engine.enqueue(reply("Hello!"))
        await window.ask("Hi")
        assert window.notice("format") == ""
        await window.everwarm.open_chat.open(window.everwarm.open_chat.id)
        chosen(panel_of(window).template_section.template_row, "Chatml, built into Everwarm")
        assert await saved(window) == ChatSettings(template="built-in chatml")
        assert window.notice("format") == ""


async def test_a_model_that_no_format_fits_leads_to_the_choice(window: RunningWindow) -> None:
    """Case 19: raw text is never tried blindly."""
    reason = "the model's file has no chat template, and its vocabulary shows no format"
    window.engine.model_changes = {
        "template": TemplateInfo(None, reason, ("built-in chatml", "built-in alpaca"))
    }
    async with window:
        await until(lambda: "shows no format" in window.notice("format"))
        line = window.everwarm.notices.line("format")
        assert line is not None
        line.buttons[0].click()
        row = panel_of(window).template_section.template_row
        assert panel_of(window).isVisible()
        assert QApplication.focusWidget() is row.editor
        panel_of(window).hide()
        window.engine.enqueue([failed(ErrorCode.TEMPLATE_FAILED, reason)])
        await window.ask("Hi")
        window.act("choose_template")
        assert panel_of(window).isVisible()
        chosen(row, "Alpaca, built into Everwarm")
        assert await saved(window) == ChatSettings(template="built-in alpaca")
        window.engine.enqueue(reply("Hello!"))
        window.act("retry")
        await until(lambda: window.texts[-1].startswith("Hello!"))
        await window.idle()
        assert window.engine.requests[-1].chat_template == "built-in alpaca"
        # Once for all chats with this model, and for no other.
        panel_of(window).new_chats_button.click()
        await window.everwarm.open_chat.open(None)
        assert row.editor.itemText(0) == "From settings: alpaca, built into Everwarm"
        assert window.notice("format") == ""
        window.type("And here")
        await until(lambda: bool(window.engine.drafts))
        window.engine.enqueue(reply("Hello!"))
        window.press(Qt.Key.Key_Return)
        await until(lambda: len(window.engine.requests) == 3)
        await window.idle()
        assert window.engine.requests[-1].chat_template == "built-in alpaca"
        assert window.engine.drafts[-1][0].chat_template == "built-in alpaca"
        assert window.everwarm.open_chat.settings == ChatSettings()
        await window.everwarm.settings.save()
        model = window.engine.requests[-1].model.path
        assert tomllib.loads(window.paths.settings.read_text())["templates"] == {model: "built-in alpaca"}
        await window.everwarm.open_chat.set_model(window.paths.root / "other.gguf")
        assert window.everwarm.open_chat.default_template is None


async def test_typing_quickly_writes_only_what_is_newest(window: RunningWindow) -> None:
    async with window:
        await loaded(window)
        text = "You answer in one sentence."
        QTest.keyClicks(panel_of(window).system_prompt.editor, text)
        assert (await saved(window)).system_prompt == text
        assert panel_of(window).system_prompt.editor.text() == text
        assert panel_of(window).system_prompt.editor.textCursor().position() == len(text)
