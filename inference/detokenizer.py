"""Streaming bytes to text: never half a character, never later than its last byte."""

from __future__ import annotations

import codecs


class Detokenizer:
    """Joins the byte pieces of sampled tokens. A character whose bytes are split over tokens appears with its last byte.

    Bytes that can never become UTF-8 turn into U+FFFD, as in a decode of the whole.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""

    def append(self, piece: bytes) -> str:
        """The characters that `piece` completes, possibly none."""
        new_text = self._decoder.decode(piece)
        self.text += new_text
        return new_text


def text_of_pieces(pieces: list[bytes]) -> str:
    """What a Detokenizer shows after all pieces: an incomplete character at the very end is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces))
