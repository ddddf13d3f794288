"""Whether a reply can follow a grammar or a JSON schema, asked before there is one."""

from __future__ import annotations

import logging

from inference.gbnf import InvalidGrammar, check_gbnf
from inference.llama.json_schema_grammar import json_schema_grammar
from inference.llama.native_library import NativeLibraryMissing
from inference.sampling_params import SamplingParams

_logger = logging.getLogger(__name__)


def grammar_problem(sampling: SamplingParams) -> str | None:
    """Why no reply can follow it, one line; None: nothing was found. Loads the native library for a JSON schema."""
    try:
        if sampling.json_schema is not None:
            check_gbnf(json_schema_grammar(sampling.json_schema))
        elif sampling.grammar is not None:
            check_gbnf(sampling.grammar)
    except (InvalidGrammar, NativeLibraryMissing) as error:
        return str(error)
    except Exception as error:
        _logger.exception("a grammar could not be checked")
        return f"it could not be checked ({type(error).__name__})"
    return None
