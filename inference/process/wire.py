"""Frames between window and worker: u32 little-endian length, then MessagePack of [type name, fields].

Both ends check every field against the dataclass it belongs to (msgspec), so a frame is never half understood.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO, get_args

import msgspec

from inference import events
from inference.model_config import ModelConfig
from inference.request import GenerationRequest, ReadAhead, RequestId
from inference.sampling_params import SamplingParams

_LENGTH = struct.Struct("<I")
# A prompt of a million tokens is some megabytes; more than this is no frame of ours.
MAX_FRAME_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Submit:
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Load:
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class Prefetch:
    request: GenerationRequest
    how_much: ReadAhead


@dataclass(frozen=True, slots=True)
class Explain:
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Count:
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class CheckGrammar:
    """sampling: whose grammar or JSON schema it is."""

    request_id: RequestId
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class Forget:
    owner: str


@dataclass(frozen=True, slots=True)
class SetPins:
    """owners: all that are pinned."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Stop:
    """store_timeout_s: how long the worker may still write what is whole before it exits."""

    store_timeout_s: float


Command = Submit | Load | Prefetch | Explain | Count | CheckGrammar | Forget | SetPins | Abort | Stop
Frame = Command | events.Event

_ENCODER = msgspec.msgpack.Encoder()
_ENVELOPE: msgspec.msgpack.Decoder[tuple[str, msgspec.Raw]] = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
# Made once: a decoder that is made for one frame takes three times as long as the frame.
# WorkerExited and StopUnanswered never travel: they are what the client says of a worker.
_DECODERS: dict[str, msgspec.msgpack.Decoder[Frame]] = {
    frame_type.__name__: msgspec.msgpack.Decoder(frame_type)
    for frame_type in (*get_args(Command), *get_args(events.Event))
}


class BrokenFrame(Exception):
    """The other side sent what is no frame; the stream cannot be followed any further."""


def encode_frame(frame: Frame) -> bytes:
    payload = _ENCODER.encode([type(frame).__name__, frame])
    return _LENGTH.pack(len(payload)) + payload


def decode_frame(payload: bytes) -> Frame:
    """Raises BrokenFrame."""
    try:
        name, fields = _ENVELOPE.decode(payload)
        return _DECODERS[name].decode(fields)
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise BrokenFrame(str(error)) from error


def read_frame(stream: BinaryIO) -> Frame | None:
    """The next frame; None at the end of the stream, also when it ends inside a frame. Raises BrokenFrame."""
    length = stream.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    if size > MAX_FRAME_BYTES:
        raise BrokenFrame(f"a frame of {size} bytes")
    payload = stream.read(size)
    return decode_frame(payload) if len(payload) == size else None
