from __future__ import annotations

from pytestqt.qtbot import QtBot

from desktop.bridge.delta_coalescer import DeltaCoalescer
from inference import TokenDelta
from tests.desktop.scripted_engine import delta


def test_the_first_delta_is_painted_at_once(qapp: object) -> None:
    painted: list[TokenDelta] = []
    DeltaCoalescer(painted.append).add(delta("Hel"))
    assert [each.text for each in painted] == ["Hel"]


def test_deltas_that_follow_are_joined_into_one_paint(qtbot: QtBot) -> None:
    painted: list[TokenDelta] = []
    coalescer = DeltaCoalescer(painted.append, interval_ms=50)
    for index, text in enumerate("Hello", start=1):
        coalescer.add(delta(text, num_generation_tokens=index, decode_s=index / 10))
    assert [each.text for each in painted] == ["H"]
    qtbot.waitUntil(lambda: len(painted) == 2)
    assert painted[1].text == "ello"
    assert painted[1].token_ids == (2, 3, 4, 5)
    assert (painted[1].num_generation_tokens, painted[1].decode_s) == (5, 0.5)


def test_no_timer_runs_once_nothing_arrives(qtbot: QtBot) -> None:
    coalescer = DeltaCoalescer(lambda _: None, interval_ms=5)
    coalescer.add(delta("a"))
    coalescer.add(delta("b"))
    qtbot.waitUntil(lambda: not coalescer.is_waiting)


def test_flush_paints_what_is_pending_now(qapp: object) -> None:
    painted: list[TokenDelta] = []
    coalescer = DeltaCoalescer(painted.append, interval_ms=60_000)
    coalescer.add(delta("a"))
    coalescer.add(delta("b"))
    coalescer.flush()
    assert [each.text for each in painted] == ["a", "b"]
    coalescer.flush()
    assert not coalescer.is_waiting
