"""The panel of chat settings, kept in step with the open chat, its model and the settings of all chats."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from desktop.bridge.background_tasks import BackgroundTasks
from desktop.bridge.settings_writer import SettingsWriter
from desktop.chat.open_chat import OpenChat
from desktop.chat.sampling_layers import merged_sampling
from desktop.chat.template_words import source_words
from desktop.chat_settings.settings_panel import ChatSettingsPanel
from desktop.conversations import ChatSettings
from desktop.model_loading import ModelLoading
from desktop.wording import as_sentence
from inference import EngineClient, EngineError, ModelInfo, SamplingParams


class ChatSettingsEditing(QObject):
    format_trouble = Signal(str)
    """The model's own format cannot be used: what is done instead, or has to be; empty: that is over."""

    def __init__(
        self,
        panel: ChatSettingsPanel,
        open_chat: OpenChat,
        engine: EngineClient,
        models: ModelLoading,
        settings: SettingsWriter,
        background: BackgroundTasks,
    ) -> None:
        super().__init__()
        self._panel = panel
        self._open_chat = open_chat
        self._engine = engine
        self._models = models
        self._settings = settings
        self._told = ""
        panel.changed.connect(self._change)
        panel.use_for_new_chats_requested.connect(self._use_for_new_chats)
        panel.check_wanted.connect(lambda sampling: background.start(self._check(sampling)))
        open_chat.opened.connect(lambda _: self.show(is_other_chat=True))
        open_chat.settings_changed.connect(self.show)
        open_chat.listing_changed.connect(self.show)
        models.loading_changed.connect(self.show)

    def show(self, *, is_other_chat: bool = False) -> None:
        chat, model = self._open_chat, self.model
        self._panel.show_settings(
            chat.settings,
            self._settings.settings.sampling,
            model,
            default_template=chat.default_template,
            has_messages=chat.conversation is not None and chat.conversation.head_id is not None,
            is_other_chat=is_other_chat,
        )
        # Told once: what was dismissed does not come back with every message.
        if (trouble := _trouble(model, chat.settings.template or chat.default_template)) != self._told:
            self._told = trouble
            self.format_trouble.emit(trouble)

    @property
    def model(self) -> ModelInfo | None:
        """The open chat's, if it is the loaded one."""
        return self._models.loaded_model(self._open_chat.model_path)

    def _change(self, settings: ChatSettings) -> None:
        self._open_chat.change_settings(settings)
        self.show()

    def _use_for_new_chats(self) -> None:
        chat, path = self._open_chat.settings, self._open_chat.model_path
        settings = self._settings.settings
        templates = dict(settings.templates)
        if chat.template is not None and path is not None:
            templates[str(path)] = chat.template
        sampling = merged_sampling(settings.sampling, chat.sampling)
        self._settings.change(lambda settings: replace(settings, sampling=sampling, templates=templates))
        self.show()

    async def _check(self, sampling: SamplingParams) -> None:
        try:
            problem = await self._engine.check_grammar(sampling)
        except EngineError as error:
            problem = f"it could not be checked, {error}"
        self._panel.form_row.show_verdict(sampling, problem)


def _trouble(model: ModelInfo | None, chosen: str | None) -> str:
    if model is None or chosen is not None or model.template.reason is None:
        return ""
    reason = as_sentence(model.template.reason)
    if model.template.source is None:
        return reason
    instead = source_words(model.template.source)
    return f"{reason} Chats are written for it in the format {instead}: its vocabulary was made for that."
