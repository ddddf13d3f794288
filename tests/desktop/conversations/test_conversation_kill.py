"""Case 39: whatever a call returned for is on disk, however the process ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import desktop
from desktop.conversations import ConversationStore, MessageStatus, StoredMessage

# Says what it has been promised, on one line each; then goes on until it is killed.
WRITER = """
import sys
from pathlib import Path
from desktop.conversations import ConversationStore, MessageStatus
from inference import SamplingParams

database, stage = Path(sys.argv[1]), sys.argv[2]
store = ConversationStore.open(database)
conversation = store.create_conversation()
question = store.add_user_message(conversation.id, "the question", None)
print("sent", flush=True)
if stage == "sent":
    sys.stdin.read()
reply = store.begin_reply(conversation.id, question.id, "/m.gguf", SamplingParams())
for num_tokens in range(1, 1_000_000):
    store.save_reply(reply.id, "word " * num_tokens, range(num_tokens))
    print(num_tokens, flush=True)
    if stage == "ended" and num_tokens == 20:
        break
store.finish_reply(reply.id, status=MessageStatus.COMPLETE, content="word " * 20, token_ids=range(20))
print("ended", flush=True)
sys.stdin.read()
"""


def killed_at(database: Path, stage: str, last_line: str) -> list[str]:
    """SIGKILL the writer once it has said last_line; everything it said until it was dead."""
    command = [sys.executable, "-c", WRITER, str(database), stage]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(desktop.__file__).parents[1],
    ) as writer:
        assert writer.stdout is not None
        lines = []
        for line in writer.stdout:
            lines.append(line.strip())
            if lines[-1] == last_line:
                writer.kill()
        assert writer.wait() != 0
    assert last_line in lines
    return lines


def reopened(database: Path) -> list[StoredMessage]:
    store = ConversationStore.open(database)
    store.mark_interrupted()
    [conversation] = store.conversations()
    branch = store.branch(conversation.id)
    assert store.integrity_check() == []
    store.close()
    return branch


def test_a_sent_message_outlives_a_kill(database: Path) -> None:
    killed_at(database, "sent", "sent")
    assert [message.content for message in reopened(database)] == ["the question"]


@pytest.mark.parametrize("last_line", ["1", "7", "40"])
def test_a_reply_killed_midway_is_there_as_last_saved_and_marked_interrupted(
    database: Path, last_line: str
) -> None:
    promised = int(killed_at(database, "streaming", last_line)[-1])
    [question, reply] = reopened(database)
    assert question.content == "the question"
    assert reply.status is MessageStatus.INTERRUPTED
    assert reply.token_ids is not None
    # One save may have been committed after the last line came out.
    assert len(reply.token_ids) in (promised, promised + 1)
    assert reply.token_ids == tuple(range(len(reply.token_ids)))
    assert reply.content == "word " * len(reply.token_ids)


def test_a_reply_that_had_ended_outlives_a_kill_as_complete(database: Path) -> None:
    killed_at(database, "ended", "ended")
    [_, reply] = reopened(database)
    assert (reply.status, reply.content) == (MessageStatus.COMPLETE, "word " * 20)
