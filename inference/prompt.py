"""From a request to prompt token ids; replies continue from the very ids the model sampled."""

from __future__ import annotations

from collections.abc import Mapping

from inference.chat_template import ChatTemplate, Segment
from inference.detokenizer import text_of_pieces
from inference.llama.vocab import Vocab
from inference.messages import Message, TokenId
from inference.request import EngineError, ErrorCode, GenerationRequest


class PromptBuilder:
    """Builds prompts for one loaded model. chat_templates: template sources by name, as in the GGUF."""

    def __init__(self, vocab: Vocab, chat_templates: Mapping[str, str]) -> None:
        self._vocab = vocab
        self._source = chat_templates.get("default")
        self._template: ChatTemplate | None = None

    def build(self, request: GenerationRequest) -> list[TokenId]:
        """Token ids of the prompt, one BOS in front if the model wants it. Raises EngineError."""
        if request.prompt is not None:
            token_ids = self._vocab.with_bos(self._vocab.tokenize(request.prompt))
        else:
            token_ids = self._chat_ids(request.messages or ())
        if not token_ids:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the prompt is empty")
        return token_ids

    def _chat_ids(self, messages: tuple[Message, ...]) -> list[TokenId]:
        if not messages:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the chat has no messages")
        segments = self._chat_template().segments(messages, keep_bos=self._vocab.adds_bos)
        token_ids: list[TokenId] = []
        pending_text = ""
        for segment in segments:
            sampled_ids = self._sampled_ids(segment, messages)
            if sampled_ids is None:
                # Joined before tokenising: a border between texts is no border between tokens.
                pending_text += segment.text
            else:
                token_ids += self._vocab.tokenize(pending_text)
                token_ids += sampled_ids
                pending_text = ""
        token_ids += self._vocab.tokenize(pending_text)
        return self._vocab.with_bos(token_ids)

    def _sampled_ids(self, segment: Segment, messages: tuple[Message, ...]) -> tuple[TokenId, ...] | None:
        """The message's own ids, if they still spell exactly the text that stands in the prompt."""
        if segment.message_index is None:
            return None
        token_ids = messages[segment.message_index].token_ids
        if not token_ids or any(not 0 <= token < self._vocab.size for token in token_ids):
            return None
        return token_ids if text_of_pieces(self._vocab.pieces(token_ids)) == segment.text else None

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            if self._source is None:
                raise EngineError(
                    ErrorCode.TEMPLATE_FAILED,
                    "this model has no chat template, so it cannot tell messages apart: choose a model made for chat",
                )
            bos, eos = self._vocab.special_text(self._vocab.bos), self._vocab.special_text(self._vocab.eos)
            self._template = ChatTemplate(self._source, bos, eos)
        return self._template
