"""Text to token ids and back, with the loaded model's own vocabulary."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import ModuleType
from typing import cast

from inference.messages import TokenId


class Vocab:
    """The vocabulary of a loaded model; valid as long as the model is."""

    def __init__(self, llama: ModuleType, model_handle: int) -> None:
        self._llama = llama
        self._handle = llama.llama_model_get_vocab(model_handle)
        self._pieces: dict[TokenId, bytes] = {}
        self._written_pieces: dict[TokenId, bytes] = {}
        self.size: int = llama.llama_vocab_n_tokens(self._handle)
        self.adds_bos: bool = llama.llama_vocab_get_add_bos(self._handle)
        bos = llama.llama_vocab_bos(self._handle)
        self.bos: TokenId | None = TokenId(bos) if bos >= 0 else None
        eos = llama.llama_vocab_eos(self._handle)
        self.eos: TokenId | None = TokenId(eos) if eos >= 0 else None

    def tokenize(self, text: str) -> list[TokenId]:
        """Ids of `text` alone, no BOS put in front; special tokens written out in the text are recognised."""
        # A lone surrogate (a broken paste) has no UTF-8; it is read as U+FFFD like any other broken character.
        data = text.encode("utf-8", "replace")
        if not data:
            return []
        capacity = len(data) + 16
        while True:
            ids = (ctypes.c_int32 * capacity)()
            count = self._llama.llama_tokenize(self._handle, data, len(data), ids, capacity, False, True)
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
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._render(token, special=False)
        return piece

    def written_piece(self, token: TokenId) -> bytes:
        """The bytes that `token` stands for in a prompt's text, control tokens written out."""
        piece = self._written_pieces.get(token)
        if piece is None:
            piece = self._written_pieces[token] = self._render(token, special=True)
        return piece

    def pieces(self, token_ids: Iterable[TokenId]) -> list[bytes]:
        return [self.piece(token) for token in token_ids]

    def special_text(self, token: TokenId | None) -> str:
        """A token as a chat template writes it, e.g. "</s>"; empty for None."""
        return "" if token is None else self.written_piece(token).decode("utf-8", "replace")

    def ends_generation(self, token: TokenId) -> bool:
        """EOS, end of turn, or any other token the model ends its reply with."""
        return bool(self._llama.llama_vocab_is_eog(self._handle, token))

    def _render(self, token: TokenId, *, special: bool) -> bytes:
        capacity = 64
        while True:
            buffer = ctypes.create_string_buffer(capacity)
            count = self._llama.llama_token_to_piece(self._handle, token, buffer, capacity, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            capacity = -count
