"""Chats put into the shape that a template takes: the system prompt folded in, messages of one role joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inference.messages import Message, Role

Mend = Literal["system prompt in the first user message", "messages of one role joined"]
# Between contents that end up in one message.
SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as the template is given it. message_indexes: whose contents it holds, in this order."""

    role: Role
    message_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShapedChat:
    """mends: what was done to the chat; none: it is as it was."""

    turns: tuple[Turn, ...]
    mends: tuple[Mend, ...] = ()


def shapes(messages: Sequence[Message]) -> Iterator[ShapedChat]:
    """The chat as it is, and then the shapes to try in turn when the template refuses it."""
    chat = ShapedChat(tuple(Turn(message.role, (index,)) for index, message in enumerate(messages)))
    tried = {chat.turns}
    yield chat
    for shape in (_joined(chat), _folded(chat), _joined(_folded(chat))):
        if shape.turns not in tried:
            tried.add(shape.turns)
            yield shape


def _joined(chat: ShapedChat) -> ShapedChat:
    turns: list[Turn] = []
    for turn in chat.turns:
        if turns and turns[-1].role == turn.role:
            turns[-1] = replace(turn, message_indexes=turns[-1].message_indexes + turn.message_indexes)
        else:
            turns.append(turn)
    if len(turns) == len(chat.turns):
        return chat
    return ShapedChat(tuple(turns), (*chat.mends, "messages of one role joined"))


def _folded(chat: ShapedChat) -> ShapedChat:
    """System prompts, wherever they stand, go into the user message after them; with none there, into one of their own."""
    turns: list[Turn] = []
    waiting: tuple[int, ...] = ()
    for turn in chat.turns:
        if turn.role == "system":
            waiting += turn.message_indexes
        elif turn.role == "user":
            turns.append(replace(turn, message_indexes=waiting + turn.message_indexes))
            waiting = ()
        else:
            if waiting and not turns:
                turns.append(Turn("user", waiting))
                waiting = ()
            turns.append(turn)
    if waiting:
        turns.append(Turn("user", waiting))
    if tuple(turns) == chat.turns:
        return chat
    return ShapedChat(tuple(turns), (*chat.mends, "system prompt in the first user message"))
