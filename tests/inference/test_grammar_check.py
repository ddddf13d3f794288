"""What is said of a grammar or a JSON schema while it is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference import EngineClient, SamplingParams, WorkerConfig
from inference.grammar_check import grammar_problem


def test_what_can_be_followed_has_no_problem() -> None:
    assert grammar_problem(SamplingParams(grammar='root ::= "yes" | "no"')) is None
    assert grammar_problem(SamplingParams(json_schema='{"type": "object"}')) is None
    assert grammar_problem(SamplingParams()) is None


@pytest.mark.parametrize(
    ("sampling", "problem"),
    [
        (SamplingParams(grammar="root ::= answer"), "answer"),
        (SamplingParams(grammar='root ::= "yes'), "line 1"),
        (SamplingParams(json_schema='{"type": '), "not JSON"),
        (SamplingParams(json_schema='{"$ref": "https://example.org"}'), "outside"),
        (SamplingParams(json_schema='{"type": "no such type"}'), "cannot be followed"),
    ],
)
def test_a_problem_is_one_line_that_says_where_or_what(sampling: SamplingParams, problem: str) -> None:
    found = grammar_problem(sampling)
    assert found is not None
    assert problem in found
    assert "\n" not in found


async def test_the_worker_checks_without_a_model(tmp_path: Path) -> None:
    client = EngineClient(WorkerConfig(log_file=tmp_path / "worker.log"))
    try:
        assert await client.check_grammar(SamplingParams(json_schema='{"type": "object"}')) is None
        problem = await client.check_grammar(SamplingParams(grammar="root ::= answer"))
        assert problem is not None
        assert "answer" in problem
    finally:
        await client.close(5)
