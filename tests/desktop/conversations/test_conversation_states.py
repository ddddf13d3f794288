"""Any sequence of calls leaves the store saying what a plain model of it says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from desktop.conversations import ConversationId, ConversationStore, MessageId, MessageStatus
from inference import SamplingParams

texts = st.text(max_size=20)
statuses = st.sampled_from([status for status in MessageStatus if status is not MessageStatus.STREAMING])


@dataclass
class ExpectedMessage:
    parent_id: MessageId | None
    role: str
    content: str
    status: MessageStatus = MessageStatus.COMPLETE


@dataclass
class ExpectedConversation:
    head_id: MessageId | None = None
    draft: str = ""
    deleted: bool = False
    messages: dict[MessageId, ExpectedMessage] = field(default_factory=dict)

    def branch(self) -> list[MessageId]:
        path: list[MessageId] = []
        message_id = self.head_id
        while message_id is not None:
            path.insert(0, message_id)
            message_id = self.messages[message_id].parent_id
        return path

    def children(self, parent_id: MessageId) -> list[MessageId]:
        return [message_id for message_id, message in self.messages.items() if message.parent_id == parent_id]


class ConversationStates(RuleBasedStateMachine):
    conversation_ids = Bundle("conversation_ids")
    streaming = Bundle("streaming")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = self.open()
        self.expected: dict[ConversationId, ExpectedConversation] = {}
        self.order: list[ConversationId] = []  # active last, comes last

    def open(self) -> ConversationStore:
        return ConversationStore.open(Path(self.folder.name) / "chats.sqlite3")

    def touch(self, conversation_id: ConversationId) -> None:
        if conversation_id in self.order:
            self.order.remove(conversation_id)
        self.order.append(conversation_id)

    def draw_message(
        self, data: st.DataObject, conversation_id: ConversationId, role: str | None = None
    ) -> MessageId | None:
        messages = self.expected[conversation_id].messages
        candidates = [message_id for message_id, message in messages.items() if role in (None, message.role)]
        return data.draw(st.sampled_from(candidates)) if candidates else None

    @rule(target=conversation_ids)
    def create(self) -> ConversationId:
        conversation_id = self.store.create_conversation().id
        self.expected[conversation_id] = ExpectedConversation()
        self.touch(conversation_id)
        return conversation_id

    @rule(conversation_id=conversation_ids, content=texts, data=st.data(), first=st.booleans())
    def send(self, conversation_id: ConversationId, content: str, data: st.DataObject, first: bool) -> None:
        parent_id = None if first else self.draw_message(data, conversation_id)
        message = self.store.add_user_message(conversation_id, content, parent_id)
        expected = self.expected[conversation_id]
        expected.messages[message.id] = ExpectedMessage(parent_id, "user", content)
        expected.head_id, expected.draft = message.id, ""
        self.touch(conversation_id)

    @rule(target=streaming, conversation_id=conversation_ids, data=st.data())
    def begin_reply(self, conversation_id: ConversationId, data: st.DataObject) -> object:
        parent_id = self.draw_message(data, conversation_id, "user")
        if parent_id is None:
            return multiple()
        reply = self.store.begin_reply(conversation_id, parent_id, "/m.gguf", SamplingParams())
        expected = self.expected[conversation_id]
        expected.messages[reply.id] = ExpectedMessage(parent_id, "assistant", "", MessageStatus.STREAMING)
        expected.head_id = reply.id
        self.touch(conversation_id)
        return (conversation_id, reply.id)

    def streaming_message(self, reply: tuple[ConversationId, MessageId]) -> ExpectedMessage | None:
        """None: withdrawn or marked interrupted since it began."""
        message = self.expected[reply[0]].messages.get(reply[1])
        return message if message and message.status is MessageStatus.STREAMING else None

    @rule(reply=streaming, content=texts)
    def save_reply(self, reply: tuple[ConversationId, MessageId], content: str) -> None:
        if message := self.streaming_message(reply):
            self.store.save_reply(reply[1], content, ())
            message.content = content

    @rule(reply=consumes(streaming), content=texts, status=statuses)
    def finish_reply(
        self, reply: tuple[ConversationId, MessageId], content: str, status: MessageStatus
    ) -> None:
        if message := self.streaming_message(reply):
            self.store.finish_reply(reply[1], status=status, content=content, token_ids=())
            message.content, message.status = content, status
            self.touch(reply[0])

    @rule(conversation_id=conversation_ids, data=st.data())
    def withdraw(self, conversation_id: ConversationId, data: st.DataObject) -> None:
        expected = self.expected[conversation_id]
        message_id = self.draw_message(data, conversation_id, "user")
        if message_id is None:
            return
        message, replies = expected.messages[message_id], expected.children(message_id)
        if any(
            expected.messages[reply].role == "user"
            or expected.messages[reply].content
            or expected.children(reply)
            for reply in replies
        ):
            return
        self.store.withdraw(message_id)
        if expected.head_id in (message_id, *replies):
            expected.head_id = message.parent_id
        expected.draft = "\n\n".join(text for text in (message.content, expected.draft) if text)
        for gone in (message_id, *replies):
            del expected.messages[gone]

    @rule(conversation_id=conversation_ids, data=st.data(), nothing=st.booleans())
    def set_head(self, conversation_id: ConversationId, data: st.DataObject, nothing: bool) -> None:
        head_id = None if nothing else self.draw_message(data, conversation_id)
        self.store.set_head(conversation_id, head_id)
        self.expected[conversation_id].head_id = head_id

    @rule(conversation_id=conversation_ids, draft=texts)
    def set_draft(self, conversation_id: ConversationId, draft: str) -> None:
        self.store.set_draft(conversation_id, draft)
        self.expected[conversation_id].draft = draft

    @rule(conversation_id=conversation_ids)
    def delete(self, conversation_id: ConversationId) -> None:
        self.store.delete(conversation_id)
        self.expected[conversation_id].deleted = True

    @rule(conversation_id=conversation_ids)
    def undelete(self, conversation_id: ConversationId) -> None:
        self.store.undelete(conversation_id)
        self.expected[conversation_id].deleted = False

    @rule(conversation_id=consumes(conversation_ids))
    def delete_and_purge(self, conversation_id: ConversationId) -> None:
        for other in self.order:
            self.undelete(other)
        self.delete(conversation_id)
        assert self.store.purge_deleted(datetime.now(UTC) + timedelta(seconds=1)) == 1
        self.expected[conversation_id] = ExpectedConversation()
        self.order.remove(conversation_id)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule()
    def reopen_after_a_death(self) -> None:
        self.reopen()
        marked = 0
        for expected in self.expected.values():
            for message in expected.messages.values():
                if message.status is MessageStatus.STREAMING:
                    message.status = MessageStatus.INTERRUPTED
                    marked += 1
        assert self.store.mark_interrupted() == marked

    @invariant()
    def lists_agree(self) -> None:
        listed = [conversation.id for conversation in self.store.conversations()]
        assert listed == [known for known in reversed(self.order) if not self.expected[known].deleted]

    @invariant()
    def branches_agree(self) -> None:
        for conversation_id in self.order:
            expected = self.expected[conversation_id]
            conversation = self.store.conversation(conversation_id)
            assert (conversation.head_id, conversation.draft) == (expected.head_id, expected.draft)
            branch = self.store.branch(conversation_id)
            assert [message.id for message in branch] == expected.branch()
            for message in branch:
                kept = expected.messages[message.id]
                assert (message.parent_id, message.role, message.content, message.status) == (
                    kept.parent_id,
                    kept.role,
                    kept.content,
                    kept.status,
                )

    def teardown(self) -> None:
        assert self.store.integrity_check() == []
        self.store.close()
        self.folder.cleanup()


TestConversationStates = ConversationStates.TestCase
TestConversationStates.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
