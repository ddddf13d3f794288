"""The text of a reply as its tokens come in: whole characters, reasoning told from the answer, no stop string."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from inference.detokenizer import Detokenizer
from inference.llama.vocab import Vocab
from inference.messages import Message, TokenId
from inference.reasoning import Reasoning, ReasoningSplitter, SplitDelta
from inference.stop_strings import StopStrings


class ReplyText:
    """text and reasoning: of the whole reply, with what it went on from. is_opened_by_prompt: reasoning that the prompt
    opened has not been closed yet. num_reasoning_tokens: sampled while reasoning was open, in this run or before."""

    def __init__(self, vocab: Vocab, opening: str | None, stop: Sequence[str]) -> None:
        """opening: the prompt's text that the reply follows on; None: raw text, in which reasoning is not looked for."""
        self._vocab = vocab
        self._detokenizer = Detokenizer()
        self._splitter = None if opening is None else ReasoningSplitter(opening)
        self._stop_strings = StopStrings(stop)
        self.is_opened_by_prompt = self.is_reasoning
        self.num_reasoning_tokens = 0
        self.text = self.reasoning = ""
        self._pending_text = self._pending_reasoning = ""
        # Characters that a reader has already, held back since what follows may make something else of them.
        self._num_known = self._num_known_reasoning = 0

    @property
    def is_reasoning(self) -> bool:
        return self._splitter is not None and self._splitter.is_reasoning

    @property
    def has_stop_string(self) -> bool:
        return self._stop_strings.found is not None

    def append(self, token: TokenId) -> None:
        if self._splitter is None:
            self._show(self._stop_strings.append(self._detokenizer.append(self._vocab.piece(token))))
        else:
            piece = self._detokenizer.append(self._vocab.reply_piece(token))
            self._take_split(self._splitter.feed(piece))

    def go_on_behind(self, begun_ids: Sequence[TokenId], shown: str) -> list[TokenId]:
        """As if this run had written the tokens, whose answer was shown as `shown`: the last character may be half, the
        end may be the beginning of a stop string or tag. Those that belong to the answer."""
        answer_ids: list[TokenId] = []
        stop_strings = deepcopy(self._stop_strings)
        for token in begun_ids:
            self.is_opened_by_prompt &= self.is_reasoning
            self.num_reasoning_tokens += self.is_reasoning
            if not self.is_opened_by_prompt:
                answer_ids.append(token)
            self.append(token)
        as_finished = deepcopy(self)
        as_finished.finish()
        if as_finished.text == shown and not as_finished.has_stop_string:
            self._num_known = len(as_finished.text) - len(self.text)
        else:
            # What is a stop string now was none when it was written.
            self._stop_strings, self.text = stop_strings, shown
        self._num_known_reasoning = len(as_finished.reasoning) - len(self.reasoning)
        self._pending_text = self._pending_reasoning = ""
        return answer_ids

    def finish(self) -> None:
        """Show what was held back; nothing may follow."""
        if self._splitter is not None:
            self._take_split(self._splitter.finish())
        self._show(self._stop_strings.finish())

    def take_pending(self) -> tuple[str, str]:
        """Text and reasoning that nobody was told of yet."""
        pending = self._pending_text, self._pending_reasoning
        self._pending_text = self._pending_reasoning = ""
        return pending

    def finished_reasoning(self, seconds: float, *, has_tokens: bool) -> Reasoning | None:
        was_cut = self.is_reasoning and has_tokens
        if not self.reasoning and not was_cut:
            return None
        return Reasoning(self.reasoning, self.num_reasoning_tokens, seconds, was_cut)

    def _take_split(self, delta: SplitDelta) -> None:
        answer, reasoning = delta
        if reasoning:
            self.reasoning += reasoning
            self._pending_reasoning += reasoning[self._num_known_reasoning :]
            self._num_known_reasoning = max(0, self._num_known_reasoning - len(reasoning))
        if answer:
            self._show(self._stop_strings.append(answer))

    def _show(self, text: str) -> None:
        self.text += text
        self._pending_text += text[self._num_known :]
        self._num_known = max(0, self._num_known - len(text))

    def __deepcopy__(self, memo: dict[int, object]) -> ReplyText:
        copied = object.__new__(ReplyText)
        for name, value in vars(self).items():
            setattr(copied, name, value if name == "_vocab" else deepcopy(value, memo))
        return copied


def begun_ids(vocab: Vocab, begun: Message, opening: str) -> tuple[TokenId, ...]:
    """The ids that a reply goes on behind: its own, reasoning included, if they spell its text in this vocabulary; else
    those of its text, behind the end of the reasoning that the prompt opens. opening: the end of the prompt's text."""
    ids = begun.token_ids
    if ids and all(0 <= token < vocab.size for token in ids):
        text = ReplyText(vocab, opening, ())
        for token in ids:
            text.append(token)
        text.finish()
        if text.text == begun.content:
            return ids
    closing = ReasoningSplitter(opening).closing
    front = vocab.tokenize_inside(f"{closing}\n\n", parse_special=True) if closing else []
    return (*front, *vocab.tokenize_inside(begun.content, parse_special=False))
