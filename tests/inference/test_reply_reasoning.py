"""What a model thinks is told from what it answers, while the tokens come."""

from collections.abc import Callable
from pathlib import Path

from inference.events import RequestFinished, TokenDelta
from inference.loaded_model import LoadedModel
from inference.messages import Message
from inference.model_config import ModelConfig
from inference.request import FinishReason, GenerationRequest
from inference.sampling_params import SamplingParams
from tests.inference.lone_run import LoneRun

Load = Callable[..., LoadedModel]
# The opening tag stands in the generation prompt, as with DeepSeek-R1 and its children.
OPENING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def ask(
    loaded: LoadedModel, path: Path, sampling: SamplingParams, *, template: str | None = None
) -> tuple[RequestFinished, list[TokenDelta]]:
    request = GenerationRequest(
        ModelConfig(str(path)),
        messages=(Message("user", "What is the capital of France?"),),
        sampling=sampling,
        chat_template=template,
    )
    run = LoneRun(request, loaded, None)
    run.run()
    finished = run.events[-1]
    assert isinstance(finished, RequestFinished)
    return finished, [event for event in run.events if isinstance(event, TokenDelta)]


def test_reasoning_that_the_model_opens_is_no_part_of_the_answer(load: Load, starter_path: Path) -> None:
    grammar = 'root ::= "<think>\\nIt is Paris, or " [A-Z] [a-z] [a-z] "?\\n</think>\\n\\nParis."'
    finished, deltas = ask(
        load(starter_path), starter_path, SamplingParams(temperature=0.0, max_tokens=60, grammar=grammar)
    )
    assert finished.text == "Paris."
    assert "".join(delta.text for delta in deltas) == "Paris."
    assert finished.reasoning is not None
    assert finished.reasoning.text.startswith("It is Paris, or ")
    assert "".join(delta.reasoning for delta in deltas) == finished.reasoning.text
    assert not finished.reasoning.was_cut
    assert 0 < finished.reasoning.num_tokens < finished.num_generation_tokens
    assert deltas[-1].num_reasoning_tokens == finished.reasoning.num_tokens
    assert 0 < finished.reasoning.seconds <= finished.timings.decode_s
    assert len(finished.token_ids) == finished.num_generation_tokens


def test_the_next_prompt_carries_the_answer_and_nothing_of_the_reasoning(
    load: Load, starter_path: Path
) -> None:
    # Reported as open-webui/open-webui#11259, #9421, PR #11708.
    loaded = load(starter_path)
    grammar = 'root ::= "<think>\\nIt is Paris.\\n</think>\\n\\nThat city."'
    sampling = SamplingParams(temperature=0.0, max_tokens=60, grammar=grammar)
    finished, _ = ask(loaded, starter_path, sampling)
    chat = (
        Message("user", "What is the capital of France?"),
        Message("assistant", finished.text, finished.token_ids),
        Message("user", "Are you sure?"),
    )
    request = GenerationRequest(ModelConfig(str(starter_path)), messages=chat)
    token_ids = loaded.prompt_builder.build(request).token_ids
    text = b"".join(map(loaded.model.vocab.written_piece, token_ids)).decode()
    assert "<|im_start|>assistant\nThat city.<|im_end|>" in text
    assert "think" not in text
    assert "Paris" not in text


def test_reasoning_that_the_prompt_opens_and_nothing_closes_was_cut(load: Load, starter_path: Path) -> None:
    finished, _ = ask(
        load(starter_path),
        starter_path,
        SamplingParams(temperature=0.0, max_tokens=12),
        template=OPENING_TEMPLATE,
    )
    assert finished.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert finished.text == ""
    assert finished.reasoning is not None
    assert finished.reasoning.was_cut
    assert finished.reasoning.text
    assert finished.reasoning.num_tokens == finished.num_generation_tokens


def test_a_grammar_is_the_answers_alone_where_the_prompt_opened_the_reasoning(
    load: Load, starter_path: Path
) -> None:
    """The grammar allows digits only; what is thought before it has words."""
    finished, _ = ask(
        load(starter_path),
        starter_path,
        SamplingParams(temperature=0.0, max_tokens=12, grammar="root ::= [0-9]+"),
        template=OPENING_TEMPLATE,
    )
    assert finished.reasoning is not None
    assert any(character.isalpha() for character in finished.reasoning.text)


def test_a_stop_string_ends_the_answer_and_not_the_reasoning(load: Load, starter_path: Path) -> None:
    grammar = 'root ::= "<think>one; two</think>three; four"'
    finished, deltas = ask(
        load(starter_path),
        starter_path,
        SamplingParams(temperature=0.0, max_tokens=60, grammar=grammar, stop=("; ",)),
    )
    assert finished.reasoning is not None
    assert finished.reasoning.text == "one; two"
    assert finished.text == "".join(delta.text for delta in deltas) == "three"
    assert finished.finish_reason is FinishReason.STOP


def test_a_reply_without_reasoning_has_none(load: Load, starter_path: Path) -> None:
    finished, _ = ask(load(starter_path), starter_path, SamplingParams(temperature=0.0, max_tokens=8))
    assert finished.reasoning is None
    assert finished.text


def test_raw_text_is_never_split(load: Load, starter_path: Path) -> None:
    grammar = 'root ::= "<think>a</think>b"'
    request = GenerationRequest(
        ModelConfig(str(starter_path)),
        prompt="Write:",
        sampling=SamplingParams(temperature=0.0, max_tokens=30, grammar=grammar),
    )
    assert LoneRun(request, load(starter_path), None).run().text == "<think>a</think>b"
