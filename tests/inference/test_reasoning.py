"""Reasoning told from the answer, however the text is cut on its way.

Reported as open-webui/open-webui#11259 (opening tag in the prompt), #9421, #11708 (never closes, tag in a code block).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.reasoning import REASONING_MARKERS, ReasoningSplitter, SplitDelta

HARMONY = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=f<|message|>{}<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hi <|x\n<|return|>"
)


def split(text: str, generation_prompt: str = "", pieces: int | None = None) -> SplitDelta:
    """The whole text fed in pieces of that many characters; None: at once."""
    splitter = ReasoningSplitter(generation_prompt)
    size = pieces or max(1, len(text))
    deltas = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)]
    deltas.append(splitter.finish())
    return SplitDelta("".join(d.answer for d in deltas), "".join(d.reasoning for d in deltas))


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("Answer\n", "Answer\n", ""),
        ("", "", ""),
        (" \n", " \n", ""),
        ("  indented", "  indented", ""),
        ("<think>\nplan\n</think>\n\nAnswer", "Answer", "plan"),
        ("\n<think>plan</think>Answer", "Answer", "plan"),
        ("<thinking>x</thinking>y", "y", "x"),
        ("[THINK]x[/THINK]y", "y", "x"),
        ("◁think▷x◁/think▷y", "y", "x"),
        ("<seed:think>x</seed:think>y", "y", "x"),
        ("<|START_THINKING|>x<|END_THINKING|>y", "y", "x"),
        ("<|channel>thought\nx<channel|>y", "y", "x"),
        ("<think></think>y", "y", ""),
        ("<think>\n\n</think>\n\n  y", "y", ""),
        ("<think>a</thinking>b</think>c", "c", "a</thinking>b"),
        ("<think>a</think>b\n<think>c</think>d", "b\nd", "a\n\nc"),
        ("<think>never closes\n", "", "never closes"),
        ("<think>ends in half a tag </thi", "", "ends in half a tag </thi"),
        ("half <thi", "half <thi", ""),
        ("<thi", "<thi", ""),
        ("The tag <think> opens it.", "The tag <think> opens it.", ""),
        ("`<think>` opens it.", "`<think>` opens it.", ""),
        ("```html\n<think>\n```\nx", "```html\n<think>\n```\nx", ""),
        ("~~~~\n~~~\n<think>\n~~~~\n<think>a</think>b", "~~~~\n~~~\n<think>\n~~~~\nb", "a"),
        ("1. x\n   ```\n   <think>\n   ```", "1. x\n   ```\n   <think>\n   ```", ""),
        ("```x``` in a line\n<think>a</think>b", "```x``` in a line\nb", "a"),
        ("<think>```\na</think>b\n<think>c</think>", "b\n", "```\na\n\nc"),
        ("a stray </think> is text", "a stray </think> is text", ""),
        (HARMONY, "Hi <|x\n", "Hm.\n\n{}"),
        ("<|channel|>final<|message|>Hi", "Hi", ""),
        ("<|channel|>analysis<|message|>cut off", "", "cut off"),
        ("<|channel|>no message", "no message", ""),
    ],
)
@pytest.mark.parametrize("pieces", [None, 1, 3])
def test_reasoning_and_answer_come_apart(text: str, answer: str, reasoning: str, pieces: int | None) -> None:
    assert split(text, pieces=pieces) == SplitDelta(answer, reasoning)


@pytest.mark.parametrize(
    ("generation_prompt", "text", "answer", "reasoning"),
    [
        ("<|assistant|><think>\n", "plan</think>Answer", "Answer", "plan"),
        ("<|assistant|><think>\n", "<think>\nplan</think>Answer", "Answer", "plan"),
        ("<|assistant|><think>\n", "cut off", "", "cut off"),
        ("<|assistant|><think>\n\n</think>\n\n", "Answer </think>", "Answer </think>", ""),
        ("<|start|>assistant", HARMONY, "Hi <|x\n", "Hm.\n\n{}"),
        ("<|start|>assistant<|channel|>", "analysis<|message|>x<|channel|>final<|message|>y", "y", "x"),
        (
            "<|start|>assistant<|channel|>analysis<|message|>",
            "x<|end|><|start|>assistant<|message|>y",
            "",
            "x\n\ny",
        ),
        ("<|start|>assistant<|channel|>final<|message|>", "y", "y", ""),
    ],
)
@pytest.mark.parametrize("pieces", [None, 1, 3])
def test_the_prompt_may_have_opened_the_reasoning(
    generation_prompt: str, text: str, answer: str, reasoning: str, pieces: int | None
) -> None:
    assert split(text, generation_prompt, pieces) == SplitDelta(answer, reasoning)


def test_reasoning_that_was_cut_off_is_told_from_an_answer() -> None:
    for text, is_reasoning in [("<think>a", True), ("<think>a</think>", False), (HARMONY, False)]:
        splitter = ReasoningSplitter()
        splitter.feed(text)
        splitter.finish()
        assert splitter.is_reasoning == is_reasoning


def test_text_that_can_be_told_is_not_held_back() -> None:
    splitter = ReasoningSplitter()
    assert splitter.feed("Hello <thi") == SplitDelta("Hello <thi", "")
    assert splitter.feed("nk> on") == SplitDelta("nk> on", "")
    assert splitter.feed("\n<thi") == SplitDelta("\n", "")
    assert splitter.feed("nk>so") == SplitDelta("", "so")
    assert splitter.feed(" far </th") == SplitDelta("", " far")
    assert splitter.feed("ink>y") == SplitDelta("y", "")


fragments = st.lists(
    st.one_of(
        st.sampled_from(
            [*sorted(REASONING_MARKERS), "```", "~~~~", "\n", " ", "final", "analysis", "thought", "a", "`"]
        ),
        st.text(max_size=3),
    ),
    max_size=14,
)


@given(fragments, st.sampled_from(["", "<think>\n", "<|start|>assistant<|channel|>"]), st.data())
def test_any_cutting_gives_the_same(texts: list[str], generation_prompt: str, data: st.DataObject) -> None:
    text = "".join(texts)
    whole = split(text, generation_prompt)
    splitter = ReasoningSplitter(generation_prompt)
    answer = reasoning = ""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        delta = splitter.feed(text[start:end])
        answer, reasoning = answer + delta.answer, reasoning + delta.reasoning
    last = splitter.finish()
    assert SplitDelta(answer + last.answer, reasoning + last.reasoning) == whole
    assert split(text, generation_prompt, 1) == whole


@given(st.text(alphabet="ab \n`~<>", max_size=40))
def test_text_without_tags_is_the_answer_as_it_is(text: str) -> None:
    assert split(text, pieces=1) == SplitDelta(text, "")
