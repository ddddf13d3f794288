"""How long a search over 100,000 messages takes, against reading as many messages from the same file by their ids."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

from desktop.conversations import ConversationStore
from desktop.conversations.search import MAX_HITS, search_chats

NUM_CHATS, MESSAGES_PER_CHAT = 1000, 100
NUM_WORDS = 40_000
# What nobody can search quicker than: one look-up in a full-text index of the same words, with FTS5's own ranking.
TARGET = 1.0
FETCH_TARGET = 100.0
TYPED = (
    "t",
    "th",
    "the",
    "w17",
    "w170",
    "w1703 the",
    "the and of",
    "w9999",
    '"the and"',
    "都",
    "京都",
    "の東京",
    "nothingatall",
)

pytestmark = pytest.mark.long


def fill(database: Path) -> None:
    """Words as frequent as in real text: the second half as often as the first, the third a third as often."""
    rng = random.Random(1)
    words = ["the", "and", "of", "to", "a", *(f"w{number}" for number in range(NUM_WORDS - 5))]
    weights = list(accumulate(1 / (rank + 2) for rank in range(NUM_WORDS)))
    with contextlib.closing(ConversationStore.open(database)) as store:
        db = store._db
        db.execute("BEGIN")
        for chat in range(1, NUM_CHATS + 1):
            db.execute(
                "INSERT INTO conversations (id, title, created_at, updated_at, owner) VALUES (?, ?, ?, ?, ?)",
                [chat, " ".join(rng.choices(words, cum_weights=weights, k=6)), chat, chat, str(chat)],
            )
            for _ in range(MESSAGES_PER_CHAT):
                text = " ".join(rng.choices(words, cum_weights=weights, k=rng.randint(5, 115)))
                if rng.random() < 0.1:
                    text += " " + "".join(rng.choices("東京都大阪府のはがをに日本語学生", k=40))
                db.execute(
                    "INSERT INTO messages (conversation_id, role, status, created_at, updated_at, content) "
                    "VALUES (?, 'user', 'complete', ?, 1, ?)",
                    [chat, chat, text],
                )
        db.conn.commit()


def least_seconds(work: Callable[[], object], times: int) -> float:
    durations = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        durations.append(time.perf_counter() - began)
    return min(durations)


def test_search_over_100_000_messages(tmp_path: Path) -> None:
    database = tmp_path / "chats.sqlite3"
    began = time.perf_counter()
    fill(database)
    filled_s = time.perf_counter() - began
    with contextlib.closing(ConversationStore.open(database)) as store:
        db = store._db
        [[num_messages]] = db.execute("SELECT count(*) FROM messages").fetchall()
        # The least that showing hits takes: their rows, which lie anywhere in the file.
        ids = random.Random(2).sample(range(1, num_messages + 1), MAX_HITS)
        fetch_s = least_seconds(
            lambda: [list(db.query("SELECT * FROM messages WHERE id = ?", [each])) for each in ids], 20
        )
        plain = "SELECT rowid FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rank LIMIT 60"
        plain_s = least_seconds(lambda: db.execute(plain, ["the"]).fetchall(), 5)
        took = {typed: least_seconds(lambda typed=typed: search_chats(store, typed), 5) for typed in TYPED}
        num_hits = {typed: len(search_chats(store, typed).hits) for typed in TYPED}

    worst = max(took, key=took.__getitem__)
    print(
        f"\n{num_messages} messages, written in {filled_s:.0f} s: the slowest of {len(TYPED)} searches ({worst!r}) took "
        f"{1000 * took[worst]:.1f} ms, {took[worst] / plain_s:.2f} x FTS5's own ranked search for 'the' "
        f"({1000 * plain_s:.1f} ms; target {TARGET}), {took[worst] / fetch_s:.1f} x reading {MAX_HITS} messages "
        f"({1000 * fetch_s:.2f} ms; target {FETCH_TARGET}); database {database.stat().st_size / 1e6:.0f} MB"
    )
    for typed, seconds in took.items():
        print(f"  {typed!r}: {num_hits[typed]} hits, {1000 * seconds:.1f} ms")
    assert num_messages == 100_000
    assert all(num_hits[typed] for typed in TYPED[:-1])
    assert took[worst] < TARGET * plain_s
    assert took[worst] < FETCH_TARGET * fetch_s
