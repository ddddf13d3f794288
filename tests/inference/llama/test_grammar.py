"""Grammars and JSON schemas in the native matcher: none ends the process, and texts are told apart as they should."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.gbnf import InvalidGrammar, check_gbnf
from inference.llama import grammar as grammar_module
from inference.llama.grammar import Candidates, Grammar, SamplingRefused, reply_grammar
from inference.llama.json_schema_grammar import json_schema_grammar
from inference.llama.model import Model, load_model
from inference.messages import TokenId
from inference.sampling_params import SamplingParams

FRAGMENTS = [
    *(
        '"x"',
        '"the "',
        '""',
        "[a-z]",
        "[^a-z]",
        ".",
        "(",
        ")",
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "{0,3}",
        "{1,}",
        "{3,2}",
    ),
    *(
        "{0}",
        "a",
        "b",
        "root",
        '"\\n"',
        "[äé]",
        '"é"',
        "[\\]-]",
        "[\\x00-\\xff]",
        '"\\U0010FFFF"',
        '"\\ud83d"',
    ),
]
BODIES = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map(" ".join)


@pytest.fixture(scope="module")
def model(tiny_paths: dict[str, Path]) -> Iterator[Model]:
    """Every byte is a token."""
    model = load_model(tiny_paths["mha"], 0, lambda _fraction: True)
    yield model
    model.close()


def native(model: Model, gbnf: str) -> Grammar:
    return Grammar(model.llama, model.llama.llama_model_get_vocab(model.handle), gbnf)


def follows(model: Model, gbnf: str, text: str) -> bool:
    """Whether the whole text, and an end after it, fit into the grammar."""
    grammar = native(model, gbnf)
    try:
        for token in model.vocab.tokenize(text):
            if not grammar.allows(token):
                return False
            grammar.accept(token)
        assert model.vocab.eos is not None
        return grammar.allows(model.vocab.eos)
    finally:
        grammar.close()


def accept_all(grammar: Grammar, token_ids: list[TokenId]) -> None:
    for token in token_ids:
        grammar.accept(token)


def one_line(error: Exception, says: str = "") -> None:
    assert "\n" not in str(error)
    assert says in str(error)


@given(BODIES, BODIES, BODIES, st.randoms(use_true_random=False))
def test_no_grammar_that_passes_the_check_ends_the_process(
    model: Model, root: str, a: str, b: str, random: Any
) -> None:
    try:
        grammar = native(model, f"root ::= {root}\na ::= {a}\nb ::= {b}")
    except SamplingRefused as refused:
        one_line(refused)
        return
    candidates, logits = Candidates(model.llama, model.vocab.size), np.zeros(model.vocab.size, np.float32)
    try:
        for _ in range(6):
            restricted = candidates.fill(logits)
            grammar.restrict(restricted)
            fitting = [TokenId(token) for token in range(model.vocab.size) if grammar.allows(TokenId(token))]
            assert candidates.any_possible == bool(fitting)
            if not fitting:
                break
            grammar.accept(random.choice(fitting))
    except SamplingRefused as refused:
        one_line(refused, "too many ways")
    finally:
        grammar.close()


def test_the_grammars_that_come_with_the_library_are_taken(model: Model) -> None:
    library = importlib.import_module("llama_cpp.llama_grammar")
    grammars = [text for name, text in vars(library).items() if name.endswith("_GBNF")]
    assert len(grammars) > 5
    for gbnf in grammars:
        native(model, gbnf).close()


def test_a_character_over_several_tokens_is_followed(model: Model) -> None:
    assert len(model.vocab.tokenize("é")) == 2
    assert follows(model, "root ::= [é-ü]", "é")
    assert not follows(model, "root ::= [é-ü]", "á")


def test_a_grammar_that_the_check_lets_pass_and_the_library_refuses_is_an_error(model: Model) -> None:
    gbnf = 'root ::= ("a" |)*'
    check_gbnf(gbnf)
    with pytest.raises(SamplingRefused, match=r"llama\.cpp refused it"):
        native(model, gbnf)


def test_a_grammar_that_becomes_too_ambiguous_is_given_up(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After n letters there are 2^n ways to go on.
    monkeypatch.setattr(grammar_module, "_MAX_STEP_S", 0.02)
    grammar = native(model, 'root ::= "a" root "x" | "a" root "y" | "a"')
    [letter] = model.vocab.tokenize("a")
    with pytest.raises(SamplingRefused, match="less ambiguous"):
        accept_all(grammar, [letter] * 30)
    grammar.close()


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "age": {"type": "integer"}},
    "required": ["name"],
}
# Every word that JSON or GBNF escapes.
ODD = 'a"\\b\n\tü\U0001f600'


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (PERSON, ['{"name": "Mia"}', '{"name":"Ü\\n","age": 30}'], ["{}", '{"name": "Maria"}', '{"name": 1}']),
        (PERSON, [], ['{"name": "a\nb"}', '{"name": "x", "town": "y"}', '{"name": "x"', "x"]),
        ({"enum": [ODD, 1, None]}, [json.dumps(ODD, ensure_ascii=False), "1", "null"], ['"a"', "2"]),
        ({"type": "object", "properties": {ODD: {"const": True}}, "required": [ODD]},
         [json.dumps({ODD: True}, ensure_ascii=False)], ['{"a": true}']),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
         ["[true]", "[true, false]"], ["[]", "[true,true,true]"]),
        ({"items": {"type": "null"}, "maxItems": 400}, ["[]", "[null, null]"], ["[1]", "[null,]"]),
        ({"type": "string", "enum": ["ab"], "maxLength": 1}, ['"ab"'], ['"a"']),
        ({"anyOf": [{"type": "null"}, {"type": "string", "minLength": 2}]}, ["null", '"ab"'], ['"a"', "1"]),
        ({"type": "object", "properties": {"string": {"type": "string", "maxLength": 1}, "any": {}}},
         ['{"string": "x", "any": {"k": "long"}}'], ['{"string": "xy"}']),
        ({"$defs": {"tree_node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree_node"}}}},
          "$ref": "#/$defs/tree_node"}, ["{}", '{"next": {"next": {}}}'], ['{"next": 1}']),
        ({"$defs": {"a": {"kind": {"const": 1}}, "b": {"kind": {"const": 2}}},
          "type": "array", "prefixItems": [{"$ref": "#/$defs/a/kind"}, {"$ref": "#/$defs/b/kind"}]},
         ["[1, 2]"], ["[1, 1]", "[2, 2]"]),
        ({"definitions": {"named": {"properties": {"name": {"type": "null"}}}}, "allOf": [
            {"$ref": "#/definitions/named"}, {"properties": {"age": {"type": "integer"}}}]},
         ['{"name": null, "age": 1}'], ["{}", '{"name": 1, "age": 1}']),
        ({"type": "object", "properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
         ['{"child": {"child": null}}'], ['{"child": 1}']),
        ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"yesterday"']),
        ({"type": "string", "pattern": "^[a-c]{2,3}$"}, ['"ab"', '"abc"'], ['"a"', '"abcd"']),
        ({"type": "string", "maxLength": 2000}, ['"' + "x" * 2000 + '"'], ['"' + "x" * 2001 + '"']),
    ],
    ids=lambda value: json.dumps(value)[:40],
)  # fmt: skip
def test_a_schema_lets_its_own_json_pass_and_no_other(
    model: Model, schema: object, valid: list[str], invalid: list[str]
) -> None:
    gbnf = json_schema_grammar(json.dumps(schema))
    assert [text for text in valid if not follows(model, gbnf, text)] == []
    assert [text for text in invalid if follows(model, gbnf, text)] == []


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is no JSON object"),
        ("true", "is no JSON object"),
        ('{"type": "strange"}', "strange"),
        ('{"$ref": "https://example.org/schema.json"}', "outside of it"),
        ('{"$ref": "#/$defs/missing"}', "#/$defs/missing, which is not there"),
        ('{"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}', "begins with itself"),
        ('{"type": "string", "pattern": "a"}', "Pattern must start with"),
        ('{"type": "string", "pattern": "^\\\\d$"}', "the escape \\d is unknown"),
        ('{"type": "string", "minLength": 5, "maxLength": 3}', "ends before it begins"),
        (
            '{"type": "array", "items": {}, "maxItems": 1000000000}',
            "maxItems must be a whole number up to 2000",
        ),
        ('{"type": "string", "format": "email", "maxLength": 1000000000}', "maxLength must be"),
        ('{"type": "string", "pattern": "^a{3,999999999}$"}', "pattern repeats"),
        ('{"properties": 3}', "cannot be followed"),
        ('{"items": ' * 3000 + "{}" + "}" * 3000, "nested too deeply"),
        ("[" * 20_000, "nested too deeply"),
    ],
    ids=lambda text: text[:40],
)
def test_a_schema_that_cannot_be_followed_is_refused_in_one_line(
    model: Model, schema: str, says: str
) -> None:
    handle = model.llama.llama_model_get_vocab(model.handle)
    with pytest.raises(SamplingRefused) as raised:
        reply_grammar(model.llama, handle, SamplingParams(json_schema=schema))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.sampled_from(["string", "object", "#/x"]),
        lambda values: (
            st.lists(values, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "enum",
                        "anyOf",
                        "allOf",
                        "required",
                        "$ref",
                        "pattern",
                        "maxLength",
                    ]
                ),
                values,
                max_size=4,
            )
        ),
    )
)
def test_whatever_is_given_for_a_schema_becomes_a_grammar_or_one_error(schema: object) -> None:
    try:
        check_gbnf(json_schema_grammar(json.dumps(schema)))
    except InvalidGrammar as error:
        one_line(error)
