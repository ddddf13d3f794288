"""Streaming bytes to text: never half a character, never later than its last byte."""

from __future__ import annotations

import codecs


class Detokenizer:
    """Joins the byte pieces of sampled tokens. A character whose bytes are split over tokens appears with its last byte.

    Bytes that can never become UTF-8 turn into U+FFFD, as in a decode of the whole.
    """

    def __init__(self) -> None:
        self._incomplete = b""

    def append(self, piece: bytes) -> str:
        """The characters that `piece` completes, possibly none."""
        data = self._incomplete + piece
        text, num_decoded = codecs.utf_8_decode(data, "replace", False)
        self._incomplete = data[num_decoded:]
        return text


def text_of_pieces(pieces: list[bytes]) -> str:
    """What a Detokenizer shows after all pieces: an incomplete character at the very end is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces))
