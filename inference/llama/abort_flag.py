"""A flag that stops a decode from inside, read by the library between two graph nodes."""

from __future__ import annotations

import ctypes


class AbortFlag:
    """The library asks its abort callback before every graph node, hundreds of times a token.

    A Python callback there would take the interpreter lock each time. `strlen` of a two-byte buffer is the
    same question in C: an empty string is "go on", a string of one byte is "stop".
    """

    def __init__(self) -> None:
        self._bytes = bytearray(2)
        self._buffer = (ctypes.c_char * 2).from_buffer(self._bytes)
        self._strlen = (
            ctypes.cast(ctypes.CDLL(None).strlen, ctypes.c_void_p)
            if _has_global_libc()
            else (ctypes.cast(ctypes.cdll.msvcrt.strlen, ctypes.c_void_p))
        )

    @property
    def callback_address(self) -> int:
        address = self._strlen.value
        assert address is not None
        return address

    @property
    def data_address(self) -> int:
        return ctypes.addressof(self._buffer)

    def set(self) -> None:
        self._bytes[0] = 1

    def clear(self) -> None:
        self._bytes[0] = 0

    def is_set(self) -> bool:
        return self._bytes[0] != 0


def _has_global_libc() -> bool:
    import sys

    return sys.platform != "win32"
