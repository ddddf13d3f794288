"""The chats in one file, of whichever program: the kind of each is told by its content, never by the file's name."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from desktop.conversations.whole_chats import ChatColumns
from desktop.exchange import (
    chatgpt,
    everwarm_json,
    lm_studio,
    message_lists,
    open_webui,
    silly_tavern,
)
from desktop.exchange.errors import NotReadable
from desktop.exchange.foreign_values import Object, as_id
from desktop.exchange.incoming import IncomingChat
from desktop.exchange.json_values import JsonValue, is_json_lines, json_lines, json_values
from desktop.exchange.report import title_of
from desktop.exchange.sources import Source

log = logging.getLogger(__name__)

_MAX_STRANGE = 10_000
"""So many entries that are no chats: it is no file of chats, and no reason to read all of it."""
_MAX_LIST_MESSAGES = 200_000
_NO_CHAT = "it is no chat"
_NO_CHATS = "it holds no chats of a kind that is known"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A chat that did not come in. title empty: it has none."""

    title: str
    reason: str


def read_chats(source: Source, columns: ChatColumns) -> Iterator[IncomingChat | Unreadable]:
    """columns: of the database they are for. Raises NotReadable if the file cannot be read (any further)."""
    with source.open() as file:
        is_lines = is_json_lines(file.readline)
    with source.open() as file:
        values = json_lines(file.readline) if is_lines else json_values(file.read)
        yield from _chats(values, source, columns)


def _chats(
    values: Iterator[JsonValue], source: Source, columns: ChatColumns
) -> Iterator[IncomingChat | Unreadable]:
    gathered = _Gathered(source)
    strange: list[Unreadable] = []
    num_chats = 0
    cut: NotReadable | None = None
    try:
        for value in values:
            if value.fault:
                strange.append(Unreadable("", value.fault))
            elif not isinstance(value.value, dict):
                if gathered.takes_all(value):
                    for chat in gathered.take_out():
                        num_chats += 1
                        yield chat
                else:
                    strange.append(Unreadable("", _NO_CHAT))
            elif read := _reader(value.value, columns):
                num_chats += 1
                yield _noted(_read(read, value.value), value.num_replaced)
            elif not gathered.takes(value.value, value.num_replaced):
                reason = "it has no messages; it may be a folder" if title_of(value.value) else _NO_CHAT
                strange.append(Unreadable(title_of(value.value), reason))
            if len(strange) >= _MAX_STRANGE:
                cut = NotReadable(f"{_MAX_STRANGE:,} entries of it are no chats; the rest was not read")
                break
    except NotReadable as error:
        # A chat whose messages it may not have told to the end is left out.
        cut = error
    else:
        for chat in gathered.take_out():
            num_chats += 1
            yield chat
    if not num_chats:
        # Of a file that is something else, one reason is enough.
        is_clear = len(strange) == 1 and not strange[0].title and strange[0].reason != _NO_CHAT
        raise cut or NotReadable(strange[0].reason if is_clear else _NO_CHATS)
    yield from strange
    if cut is not None:
        raise cut


def _reader(element: dict[str, Any], columns: ChatColumns) -> Callable[[Object], IncomingChat] | None:
    if everwarm_json.is_chat(element):
        return lambda chat: everwarm_json.read_chat(chat, columns)
    for is_chat, read in _KINDS:
        if is_chat(element):
            return read
    return None


_KINDS: tuple[tuple[Callable[[Object], bool], Callable[[Object], IncomingChat]], ...] = (
    (chatgpt.is_chat, chatgpt.read_chat),
    (open_webui.is_chat, open_webui.read_chat),
    (lm_studio.is_chat, lm_studio.read_chat),
    (message_lists.is_chat, message_lists.read_chat),
)


def _read(read: Callable[[Object], IncomingChat], element: Object) -> IncomingChat | Unreadable:
    try:
        return read(element)
    except NotReadable as error:
        return Unreadable(title_of(element), str(error))
    except Exception as fault:
        # One chat that this code has no idea of must not keep the others out.
        # Without the error's words, which may be the chat's.
        trace = "".join(traceback.format_tb(fault.__traceback__))
        log.error("import of a chat: %s\n%s", type(fault).__name__, trace)
        return Unreadable(
            title_of(element), f"a fault of Everwarm's own ({type(fault).__name__}); see the log"
        )


def _noted(chat: IncomingChat | Unreadable, num_replaced: int) -> IncomingChat | Unreadable:
    if num_replaced and isinstance(chat, IncomingChat):
        chat.notes["unreadable character (shown as \ufffd)"] += num_replaced
    return chat


class _Gathered:
    """Messages that stand in the file by themselves, until it is known that their chat is complete."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._header: Object = {}
        self._silly: list[Object] = []
        self._jan: dict[str, list[Object]] = {}
        self._plain: list[Object] = []
        self._num = self._num_replaced = 0

    def takes_all(self, value: JsonValue) -> bool:
        """Of a list of messages, which is a chat."""
        elements = value.value if isinstance(value.value, list) else []
        self._num_replaced += value.num_replaced
        return bool(elements) and all(isinstance(each, dict) and self.takes(each) for each in elements)

    def takes(self, element: Object, num_replaced: int = 0) -> bool:
        """False: it is no message."""
        self._num_replaced += num_replaced
        if silly_tavern.is_header(element):
            self._header = self._header or element
            return True
        if silly_tavern.is_message(element):
            self._silly.append(element)
        elif message_lists.is_jan_message(element):
            self._jan.setdefault(as_id(element.get("thread_id")), []).append(element)
        elif message_lists.is_message(element):
            self._plain.append(element)
        else:
            return False
        self._num += 1
        if self._num > _MAX_LIST_MESSAGES:
            raise NotReadable(f"it is a chat of more than {_MAX_LIST_MESSAGES:,} messages")
        return True

    def take_out(self) -> Iterator[IncomingChat | Unreadable]:
        num_replaced = self._num_replaced
        for chat in self._chats():
            yield _noted(chat, num_replaced)
            num_replaced = 0
        self._header, self._silly, self._jan, self._plain = {}, [], {}, []
        self._num = self._num_replaced = 0

    def _chats(self) -> Iterator[IncomingChat | Unreadable]:
        silly, plain = self._silly, self._plain
        if silly or self._header:
            yield _read(lambda header: silly_tavern.read_chat(header, silly), self._header)
        for thread_id, messages in self._jan.items():
            read = partial(message_lists.read_jan_thread, messages)
            yield _read(read, self._jan_thread(thread_id))
        if plain:
            yield _read(lambda _: message_lists.read_messages(plain, message_lists.OPENAI), {})

    def _jan_thread(self, thread_id: str) -> Object:
        """What the thread.json beside messages.jsonl says of it."""
        beside = self._source.sibling("thread.json")
        if beside is None:
            return {"id": thread_id}
        try:
            with beside.open() as file:
                for value in json_values(file.read):
                    if isinstance(value.value, dict) and value.value.get("object") == "thread":
                        return value.value
                    break
        except NotReadable:
            pass
        return {"id": thread_id}
