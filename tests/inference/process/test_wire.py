import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.events import TokenDelta
from inference.messages import Message, TokenId
from inference.model_config import ModelConfig
from inference.process.wire import (
    MAX_FRAME_BYTES,
    Abort,
    BrokenFrame,
    Load,
    Submit,
    decode_frame,
    encode_frame,
    read_frame,
)
from inference.request import GenerationRequest, RequestId
from inference.sampling_params import SamplingParams

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["system", "user", "assistant"]),
        content=TEXT,
        token_ids=st.none() | st.lists(st.integers(0, 2**31).map(TokenId)).map(tuple),
    ),
    max_size=3,
).map(tuple)


@given(messages=MESSAGES, n_ctx=st.none() | st.integers(1, 10**6), temperature=st.floats(0, 100))
def test_a_request_arrives_as_it_was_sent(messages: Any, n_ctx: int | None, temperature: float) -> None:
    request = GenerationRequest(
        ModelConfig("/m.gguf", n_ctx=n_ctx),
        messages=messages,
        sampling=SamplingParams(temperature=temperature),
    )
    stream = io.BytesIO(encode_frame(Submit(request)) + encode_frame(Abort(request.request_id)))
    assert read_frame(stream) == Submit(request)
    assert read_frame(stream) == Abort(request.request_id)
    assert read_frame(stream) is None


@given(st.binary(max_size=200))
def test_bytes_that_are_no_frame_are_told_apart_from_one(data: bytes) -> None:
    try:
        frame = decode_frame(data)
    except BrokenFrame:
        return
    assert decode_frame(encode_frame(frame)[4:]) == frame


def test_a_stream_cut_inside_a_frame_ends_there() -> None:
    data = encode_frame(Load(ModelConfig("/m.gguf")))
    assert all(read_frame(io.BytesIO(data[:length])) is None for length in range(len(data)))


def test_a_field_of_another_type_is_refused() -> None:
    good = encode_frame(TokenDelta(RequestId("r"), "text", (TokenId(1),), 1, 0.0, 0.1))[4:]
    with pytest.raises(BrokenFrame):
        decode_frame(good.replace(b"\xa4text", b"\xc0"))


def test_an_unknown_frame_is_refused() -> None:
    with pytest.raises(BrokenFrame):
        decode_frame(encode_frame(Abort(RequestId("r")))[4:].replace(b"Abort", b"Adopt"))


def test_a_length_that_no_frame_has_is_refused_before_it_is_read() -> None:
    with pytest.raises(BrokenFrame, match="a frame of"):
        read_frame(io.BytesIO(struct.pack("<I", MAX_FRAME_BYTES + 1)))


def test_values_out_of_range_do_not_pass() -> None:
    frame = encode_frame(
        Submit(GenerationRequest(ModelConfig("/m"), prompt="x", sampling=SamplingParams(top_k=77)))
    )
    with pytest.raises(BrokenFrame):
        decode_frame(frame[4:].replace(b"top_k\x4d", b"top_k\xff"))
