"""From a request to prompt token ids; replies continue from the very ids the model sampled."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from inference.chat_template import ChatTemplate, Segment
from inference.detokenizer import text_of_pieces
from inference.llama.vocab import Vocab
from inference.messages import Message, TokenId
from inference.request import EngineError, ErrorCode, GenerationRequest


@dataclass(frozen=True, slots=True)
class Prompt:
    """Positions count tokens from the beginning; a position p stands between token p - 1 and token p.

    message_ends: where stored blocks close, ascending: before each message's text, so that the system prompt with
    all that the template puts around it is one piece, and before the generation prompt.
    system_end: the first of them where the chat begins with a system prompt. user_end: before the generation prompt.
    """

    token_ids: list[TokenId]
    message_ends: tuple[int, ...] = ()
    system_end: int | None = None
    user_end: int | None = None


class PromptBuilder:
    """Builds prompts for one loaded model. chat_templates: template sources by name, as in the GGUF."""

    def __init__(self, vocab: Vocab, chat_templates: Mapping[str, str]) -> None:
        self._vocab = vocab
        self._source = chat_templates.get("default")
        self._template: ChatTemplate | None = None

    def build(self, request: GenerationRequest) -> Prompt:
        """The prompt, with one BOS in front if the model wants it. Raises EngineError."""
        if request.prompt is not None:
            prompt = Prompt(self._vocab.with_bos(self._vocab.tokenize(request.prompt)))
        else:
            prompt = self._chat_prompt(request.messages or ())
        if not prompt.token_ids:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the prompt is empty")
        return prompt

    def _chat_prompt(self, messages: tuple[Message, ...]) -> Prompt:
        if not messages:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the chat has no messages")
        template = self._chat_template()
        segments = template.segments(messages, keep_bos=self._vocab.adds_bos)
        tokens = _TokenisedText(self._vocab)
        content_starts: dict[int, int] = {}
        for segment in segments:
            if segment.message_index is not None:
                content_starts[segment.message_index] = tokens.mark()
            sampled_ids = self._sampled_ids(segment, messages)
            if sampled_ids is not None:
                tokens.add_ids(sampled_ids)
            elif segment is segments[-1] and segment.text.endswith(template.generation_prompt):
                tokens.add_text(segment.text.removesuffix(template.generation_prompt))
                content_starts[len(messages)] = tokens.mark()
                tokens.add_text(template.generation_prompt)
            else:
                tokens.add_text(segment.text)
        positions = tokens.finish()
        token_ids = self._vocab.with_bos(tokens.token_ids)
        shift = len(token_ids) - len(tokens.token_ids)
        ends = {index: positions[mark] + shift for index, mark in content_starts.items()}
        starts_with_system = messages[0].role == "system"
        return Prompt(
            token_ids,
            message_ends=tuple(sorted({end for end in ends.values() if 0 < end < len(token_ids)})),
            system_end=ends.get(1) if starts_with_system else ends.get(0),
            user_end=ends.get(len(messages)),
        )

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


class _TokenisedText:
    """Joins texts before tokenising them, since a border between texts is no border between tokens, and tells
    afterwards at which token a mark set between two texts came to stand."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self.token_ids: list[TokenId] = []
        self._text = ""
        self._open_marks: list[tuple[int, int]] = []
        self._positions: list[int] = []

    def mark(self) -> int:
        """A number for the place reached now; finish() gives its position."""
        self._open_marks.append((len(self._positions), len(self._text)))
        self._positions.append(0)
        return len(self._positions) - 1

    def add_text(self, text: str) -> None:
        self._text += text

    def add_ids(self, token_ids: tuple[TokenId, ...]) -> None:
        self._tokenise()
        self.token_ids += token_ids

    def finish(self) -> list[int]:
        """Position of each mark. A token that reaches over a mark belongs behind it."""
        self._tokenise()
        return self._positions

    def _tokenise(self) -> None:
        ids = self._vocab.tokenize(self._text)
        if self._open_marks:
            ends = list(accumulate(len(self._vocab.written_piece(token)) for token in ids))
            for number, characters in self._open_marks:
                num_bytes = len(self._text[:characters].encode("utf-8", "replace"))
                self._positions[number] = len(self.token_ids) + bisect_right(ends, num_bytes)
        self.token_ids += ids
        self._text = ""
        self._open_marks = []
