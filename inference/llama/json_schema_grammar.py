"""JSON schema to GBNF, with llama-cpp-python's converter."""

from __future__ import annotations

import functools
import importlib
import json
import re
from typing import Any

from inference.gbnf import InvalidGrammar
from inference.llama.native_library import load_native_library

_NO_RULE_CHARACTERS = re.compile(r"[^a-zA-Z0-9]+")
_LITERAL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})
# The converter's own lets line breaks and other control characters into strings, where JSON forbids them.
_STRING_CHARACTER = (
    r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])'
)


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
        converter.visit(converter.resolve_refs(schema, "schema"), "")
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
        if isinstance(reference, str) and not reference.startswith("#/"):
            raise InvalidGrammar(f"the JSON schema refers to {reference[:100]}, which is outside of it")
        part = list(part.values())
    if isinstance(part, list):
        for child in part:
            _check_references(child)


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
            name = "ref" + _NO_RULE_CHARACTERS.sub("-", ref.partition("#")[2])
            if name not in self._rules and ref not in self._refs_being_resolved:
                self._refs_being_resolved.add(ref)
                name = self.visit(self._refs[ref], name)
                self._refs_being_resolved.remove(ref)
            return name

        def visit(self, schema: Any, name: str) -> Any:
            if schema is True:
                return self._add_primitive("value", library.PRIMITIVE_RULES["value"])
            limits = schema.get("minLength", 0), schema.get("maxLength")
            if schema.get("type") != "string" or limits == (0, None) or "pattern" in schema:
                return super().visit(schema, name)
            # The converter writes the repetition out, nested as deep as the string is long.
            character = self._add_primitive("char", None)
            times = f"{{{int(limits[0])},{'' if limits[1] is None else int(limits[1])}}}"
            rule_name = f"{name}-" if name in library.RESERVED_NAMES else name or "root"
            return self._add_rule(rule_name, rf'"\"" {character}{times} "\"" space')

    return Converter
