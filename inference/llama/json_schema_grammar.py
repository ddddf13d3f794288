"""JSON schema to GBNF, with llama-cpp-python's converter."""

from __future__ import annotations

import functools
import importlib
import json
import re
from typing import Any

from inference.gbnf import MAX_REPETITIONS, InvalidGrammar
from inference.llama.native_library import load_native_library

_NO_RULE_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+")
_LITERAL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
# The converter's own lets line breaks and other control characters into strings, where JSON forbids them.
_STRING_CHARACTER = (
    r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])'
)

_OTHER_KEYS = frozenset({"$ref", "oneOf", "anyOf", "const", "enum", "pattern"})
_STRING_LIMITS, _ARRAY_LIMITS = frozenset({"minLength", "maxLength"}), frozenset({"minItems", "maxItems"})
# Those that have rules of their own.
_FORMATS = frozenset({"date", "time", "date-time", "uuid", *(f"uuid{version}" for version in range(1, 6))})
_NUMBERS = re.compile(r"(?<=[{,])\s*\d+(?=\s*[,}])")


@functools.lru_cache(maxsize=16)
def json_schema_grammar(schema_text: str) -> str:
    """A grammar whose texts are the JSON that the schema describes. Raises InvalidGrammar.

    What a grammar cannot count is not enforced: minimum, maximum, multipleOf, uniqueItems, not, and formats other
    than date, time, date-time and uuid. Schemas elsewhere ($ref to a URL) are not fetched.
    """
    try:
        schema = json.loads(schema_text)
        if not isinstance(schema, dict):
            raise InvalidGrammar("the JSON schema is no JSON object")
        _check_references(schema)
        converter = _converter_class()(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        # In place of its resolve_refs(), which passes over what stands beside a $ref.
        converter._refs = _Definitions(schema)
        converter.visit(schema, "")
        return str(converter.format_grammar())
    except json.JSONDecodeError as error:
        raise InvalidGrammar(f"the JSON schema is not JSON: {error}") from None
    except RecursionError:
        raise InvalidGrammar("the JSON schema is nested too deeply") from None
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # The converter takes a schema's shape for granted; whatever it trips over is the schema's.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidGrammar(f"the JSON schema cannot be followed: {reason}") from None


def _check_references(part: object) -> None:
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
            raise InvalidGrammar(f"the JSON schema refers to {reference[:100]}, which is outside of it")
        part = list(part.values())
    if isinstance(part, list):
        for child in part:
            _check_references(child)


class _Definitions(dict[str, Any]):
    """Parts of a schema by the $ref that names them, a JSON pointer behind "#"."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__()
        self._schema = schema

    def __missing__(self, reference: str) -> Any:
        part: Any = self._schema
        for step in reference.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                part = part[int(step)] if isinstance(part, list) else part[step]
            except (LookupError, TypeError, ValueError):
                raise InvalidGrammar(
                    f"the JSON schema refers to {reference[:100]}, which is not there"
                ) from None
        self[reference] = part
        return part


def _repeated(schema: dict[str, Any]) -> str | None:
    """ "string" or "array" where its length is limited and nothing else says what it holds."""
    if not _OTHER_KEYS.isdisjoint(schema):
        return None
    kind = schema.get("type", "array" if "items" in schema else None)
    if kind == "string" and not _STRING_LIMITS.isdisjoint(schema) and schema.get("format") not in _FORMATS:
        return "string"
    if kind == "array" and not _ARRAY_LIMITS.isdisjoint(schema) and isinstance(schema.get("items"), dict):
        return "array"
    return None


def _list_rule(item: str, schema: dict[str, Any]) -> str:
    low, high = _limit(schema, "minItems") or 0, _limit(schema, "maxItems")
    if high == 0 and low == 0:
        return '"[" space "]" space'
    more = f"{{{max(low, 1) - 1},{'' if high is None else high - 1}}}"
    items = f'{item} ("," space {item}){more}'
    return f'"[" space {items if low else f"({items})?"} "]" space'


def _times(schema: dict[str, Any], least: str, most: str) -> str:
    high = _limit(schema, most)
    return f"{{{_limit(schema, least) or 0},{'' if high is None else high}}}"


def _limit(schema: dict[str, Any], key: str) -> int | None:
    value = schema.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value <= MAX_REPETITIONS:
        raise InvalidGrammar(
            f"the JSON schema cannot be followed: {key} must be a whole number up to {MAX_REPETITIONS}"
        )
    return value


def _check_pattern(schema: dict[str, Any]) -> None:
    """A regular expression's repetitions are written out by the converter."""
    if any(
        len(number) > 4 or int(number) > MAX_REPETITIONS
        for number in _NUMBERS.findall(str(schema.get("pattern")))
    ):
        raise InvalidGrammar(
            f"the JSON schema cannot be followed: its pattern repeats more than {MAX_REPETITIONS} times"
        )


@functools.cache
def _converter_class() -> Any:
    """The library's class with its faults mended; made late, since its module loads the native library."""
    load_native_library()
    library = importlib.import_module("llama_cpp.llama_grammar")

    class Converter(library.SchemaConverter):  # type: ignore[misc, name-defined]
        def _format_literal(self, literal: str) -> str:
            # The converter leaves JSON's escapes to be read as the grammar's, so "\\n" would become a line break.
            text = json.dumps(json.loads(literal), ensure_ascii=False)
            return f'"{text.translate(_LITERAL_ESCAPES)}"'

        def _add_primitive(self, name: str, rule: Any) -> Any:
            if name == "char":
                rule = library.BuiltinRule(_STRING_CHARACTER)
            return super()._add_primitive(name, rule)

        def _resolve_ref(self, ref: str) -> str:
            # By the whole path: two definitions may end in the same word, and a rule's name has no underscore.
            name = "ref" + _NO_RULE_CHARACTERS.sub("-", ref)
            if name not in self._rules and ref not in self._refs_being_resolved:
                self._refs_being_resolved.add(ref)
                name = self.visit(self._refs[ref], name)
                self._refs_being_resolved.remove(ref)
            return name

        def visit(self, schema: Any, name: str) -> Any:
            if schema is True:
                return self._add_primitive("value", library.PRIMITIVE_RULES["value"])
            kind = _repeated(schema)
            if kind is None:
                _check_pattern(schema)
                return super().visit(schema, name)
            # The converter writes repetitions out, nested as deep as the text or the list is long.
            if kind == "string":
                character = self._add_primitive("char", None)
                rule = rf'"\"" {character}{_times(schema, "minLength", "maxLength")} "\"" space'
            else:
                item = self.visit(schema["items"], f"{name}-item" if name else "item")
                rule = _list_rule(item, schema)
            return self._add_rule(f"{name}-" if name in library.RESERVED_NAMES else name or "root", rule)

    return Converter
