"""Text to token ids and back, with the loaded model's own vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import cast

from inference.detokenizer import text_of_pieces
from inference.messages import TokenId
from inference.reasoning import REASONING_MARKERS

# No vocabulary has it in a piece, so nothing merges with it; some vocabularies spell it as three byte tokens.
_SEPARATOR = "\ue0ef"


class _Pieces(dict[TokenId, bytes]):
    """Bytes by token id, asked of the library at the first use."""

    def __init__(self, render: Callable[[TokenId], bytes]) -> None:
        super().__init__()
        self._render = render

    def __missing__(self, token: TokenId) -> bytes:
        piece = self[token] = self._render(token)
        return piece


class Vocab:
    """The vocabulary of a loaded model; valid as long as the model is."""

    def __init__(self, llama: ModuleType, model_handle: int) -> None:
        self._llama = llama
        self._handle = llama.llama_model_get_vocab(model_handle)
        self._pieces = _Pieces(lambda token: self._render(token, special=False))
        self._written_pieces = _Pieces(lambda token: self._render(token, special=True))
        self._is_end: dict[TokenId, bool] = {}
        self.size: int = llama.llama_vocab_n_tokens(self._handle)
        self.adds_bos: bool = llama.llama_vocab_get_add_bos(self._handle)
        bos = llama.llama_vocab_bos(self._handle)
        self.bos: TokenId | None = TokenId(bos) if bos >= 0 else None
        eos = llama.llama_vocab_eos(self._handle)
        self.eos: TokenId | None = TokenId(eos) if eos >= 0 else None

        self._separator_ids = self._tokenize(_SEPARATOR, parse_special=False)
        # llama.cpp puts a space in front of a text (SentencePiece's add_space_prefix) where the file asks for it.
        self._adds_space = self._spelled(self._tokenize("a", parse_special=False)) == b" a"

    def tokenize(self, text: str) -> list[TokenId]:
        """Ids of `text` alone, no BOS put in front; special tokens written out in the text are recognised."""
        return self._tokenize(text, parse_special=True)

    def tokenize_inside(self, text: str, *, parse_special: bool) -> list[TokenId]:
        """Ids of a text that stands behind other text, so that no space is put in front of it.

        parse_special False: what is spelled like a control token is text.
        """
        if not self._adds_space or not text:
            return self._tokenize(text, parse_special=parse_special)
        ids = self._tokenize(_SEPARATOR + text, parse_special=parse_special)
        num_front = len(self._separator_ids)
        if ids[:num_front] == self._separator_ids:
            return ids[num_front:]
        return self._tokenize(text, parse_special=parse_special)

    def has_token(self, text: str) -> bool:
        """Whether `text` is one token, apart from what it would be as text."""
        ids = self._tokenize(text, parse_special=True)
        return len(ids) == 1 and self.written_piece(ids[0]) == text.encode()

    def spells_control_token(self, text: str) -> bool:
        """Whether control tokens would be seen in `text` if it were read as a template's."""
        return self._tokenize(text, parse_special=True) != self._tokenize(text, parse_special=False)

    def spelled_text(self, token_ids: tuple[TokenId, ...]) -> str | None:
        """What a Detokenizer shows after these tokens; None where one is no token of this vocabulary.

        A few tens of nanoseconds a token: every prompt asks it of the whole chat.
        """
        if not token_ids:
            return ""
        if min(token_ids) < 0 or max(token_ids) >= self.size:
            return None
        return text_of_pieces([self._spelled(token_ids)])

    def _spelled(self, token_ids: Iterable[TokenId]) -> bytes:
        return b"".join(map(self._pieces.__getitem__, token_ids))

    def _tokenize(self, text: str, *, parse_special: bool) -> list[TokenId]:
        # A lone surrogate (a broken paste) has no UTF-8; it is read as U+FFFD like any other broken character.
        data = text.encode("utf-8", "replace")
        if not data:
            return []
        capacity = len(data) + 16
        while True:
            ids = (ctypes.c_int32 * capacity)()
            count = self._llama.llama_tokenize(
                self._handle, data, len(data), ids, capacity, False, parse_special
            )
            if count >= 0:
                return cast(list[TokenId], ids[:count])
            capacity = -count

    def with_bos(self, token_ids: list[TokenId]) -> list[TokenId]:
        """Exactly one BOS in front if the model wants one. A model that wants none gets what the text says."""
        if not self.adds_bos or self.bos is None:
            return token_ids
        start = 0
        while start < len(token_ids) and token_ids[start] == self.bos:
            start += 1
        return [self.bos, *token_ids[start:]]

    def piece(self, token: TokenId) -> bytes:
        """The bytes that `token` adds to the visible text; control tokens add none."""
        return self._pieces[token]

    def written_piece(self, token: TokenId) -> bytes:
        """The bytes that `token` stands for in a prompt's text, control tokens written out."""
        return self._written_pieces[token]

    def reply_piece(self, token: TokenId) -> bytes:
        """The bytes that `token` adds to a reply before its reasoning is told from its answer: as piece(), but control
        tokens that mark reasoning are written out."""
        piece = self._pieces[token]
        if piece:
            return piece
        written = self._written_pieces[token]
        return written if written.decode("utf-8", "replace") in REASONING_MARKERS else b""

    def pieces(self, token_ids: Iterable[TokenId]) -> list[bytes]:
        return [self.piece(token) for token in token_ids]

    def special_text(self, token: TokenId | None) -> str:
        """A token as a chat template writes it, e.g. "</s>"; empty for None."""
        return "" if token is None else self.written_piece(token).decode("utf-8", "replace")

    def ends_generation(self, token: TokenId) -> bool:
        """EOS, end of turn, or any other token the model ends its reply with."""
        is_end = self._is_end.get(token)
        if is_end is None:
            is_end = self._is_end[token] = bool(self._llama.llama_vocab_is_eog(self._handle, token))
        return is_end

    def _render(self, token: TokenId, *, special: bool) -> bytes:
        capacity = 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            count = self._llama.llama_token_to_piece(self._handle, token, buffer, capacity, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            capacity = -count
