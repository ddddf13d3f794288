"""What is said below the composer while a message waits for its model."""

from __future__ import annotations

from collections.abc import Sequence

from desktop.chat.turn import Turn
from desktop.model_loading import ModelLoading
from inference import Phase

HELD_NOTE = (
    "Your message is saved. It waits, since the last load of its model went wrong: choose above how to go on."
)
LOADING_NOTE = "The model is still loading. Your message is saved and is answered as soon as it is ready."


def waiting_note(answering: Sequence[Turn], models: ModelLoading) -> str:
    """answering: the chat's turns that have not ended, the first one first. Empty: nothing waits for a model."""
    if not answering:
        return ""
    first = answering[0]
    if models.held.holds(first.question.model):
        return HELD_NOTE
    waits_for_load = first.phase is Phase.LOADING or (
        first.phase is Phase.QUEUED and models.loading is not None
    )
    return LOADING_NOTE if waits_for_load else ""
