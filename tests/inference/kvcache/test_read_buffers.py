"""Buffers that are used again."""

from inference.kvcache.read_buffers import ReadBuffers


def test_a_buffer_that_was_given_back_is_taken_again() -> None:
    buffers = ReadBuffers()
    first = buffers.take(100)
    buffers.give_back(first)
    assert buffers.take(80) is first


def test_no_buffer_has_two_users() -> None:
    buffers = ReadBuffers()
    buffers.give_back(buffers.take(100))
    assert buffers.take(100) is not buffers.take(100)


def test_one_that_is_too_small_is_not_given_out() -> None:
    buffers = ReadBuffers()
    buffers.give_back(buffers.take(100))
    assert buffers.take(101).size >= 101


def test_few_are_kept_and_those_the_largest() -> None:
    buffers = ReadBuffers()
    taken = [buffers.take(size) for size in (10, 30, 20, 40)]
    for buffer in taken:
        buffers.give_back(buffer)
    assert buffers.take(1) is taken[1]
    assert buffers.take(1) is taken[3]
    assert buffers.take(1).size == 1


def test_a_whole_sequences_buffer_is_not_held_on_to() -> None:
    buffers = ReadBuffers()
    huge = buffers.take(65 << 20)
    buffers.give_back(huge)
    assert buffers.take(1) is not huge
