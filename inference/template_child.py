"""The process that runs chat templates: one JSON request a line on stdin, one JSON answer a line on stdout.

A template is a program from a stranger's file. Here it can neither reach anything nor outlive its parent, and whoever
started this may kill it at any moment. Nothing but Jinja and the standard library is imported, so it starts quickly.

Request: {"source": Jinja text, "renders": [variables of each], "now": Unix time or null, "max_chars": of one text}.
Answer: {"results": [{"text": …} or {"error": …, "kind": …} for each render]}; a source that is no template gives at
least one result, so no renders at all ask for just that, and are told {"variables": {name: [texts that the template
compares it with or sets it to]}} as well. The first line is {"ready": true}. Arguments: the
most memory it may take, in bytes; the parent's process id.
"""

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
from collections import OrderedDict
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MAX_COMPILED = 16


class _Generation(Extension):
    """{% generation %} marks replies for training; for a prompt it is nothing."""

    tags = {"generation"}  # noqa: RUF012 (Jinja declares it so)

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Renderer:
    """The environment and its extras are those that Hugging Face's apply_chat_template gives to templates, which
    they are written for."""

    def __init__(self) -> None:
        self._environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        self._environment.globals["raise_exception"] = _raise_exception
        self._environment.globals["strftime_now"] = self._strftime_now
        self._environment.filters["tojson"] = _to_json
        self._compiled: OrderedDict[str, jinja2.Template] = OrderedDict()
        self._now = datetime.now()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        # One time for all renders of a request: they are compared with each other.
        self._now = datetime.now() if request["now"] is None else datetime.fromtimestamp(request["now"])
        try:
            template = self._template(request["source"])
        except MemoryError:
            refusal = {"error": "", "kind": "memory"}
        except Exception as error:
            # Compiling also computes the template's constants, so that anything may come of it.
            refusal = {"error": str(error)[:500], "kind": "syntax"}
        else:
            answer: dict[str, Any] = {
                "results": [
                    _render(template, variables, request["max_chars"]) for variables in request["renders"]
                ]
            }
            if not request["renders"]:
                answer["variables"] = self._variables(request["source"])
            return answer
        return {"results": [refusal] * max(1, len(request["renders"]))}

    def _template(self, source: str) -> jinja2.Template:
        template = self._compiled.pop(source, None) or self._environment.from_string(source)
        self._compiled[source] = template
        if len(self._compiled) > _MAX_COMPILED:
            self._compiled.popitem(last=False)
        return template

    def _variables(self, source: str) -> dict[str, list[str]]:
        """What the template reads of what it is given: nothing is run for it."""
        # Looking for variables puts constants together, so it has a tree of its own.
        names = meta.find_undeclared_variables(self._environment.parse(source))
        tree = self._environment.parse(source)
        found: dict[str, list[str]] = {name: [] for name in sorted(names)}
        comparisons = [(node.expr, node) for node in tree.find_all(nodes.Compare)]
        assignments = [(node.target, node) for node in tree.find_all(nodes.Assign)]
        for name, node in [*comparisons, *assignments]:
            if isinstance(name, nodes.Name) and name.name in found:
                texts = found[name.name]
                for constant in node.find_all(nodes.Const):
                    if isinstance(constant.value, str) and constant.value and constant.value not in texts:
                        texts.append(constant.value)
        return found

    def _strftime_now(self, pattern: str) -> str:
        return self._now.strftime(pattern)


def _render(template: jinja2.Template, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
    try:
        pieces, num_chars = [], 0
        for piece in template.generate(variables):
            pieces.append(piece)
            num_chars += len(piece)
            if num_chars > max_chars:
                return {"error": "", "kind": "size"}
        return {"text": "".join(pieces)}
    except MemoryError:
        return {"error": "", "kind": "memory"}
    except Exception as error:
        # Whatever a template raises is its failure, not ours.
        return {"error": f"{type(error).__name__}: {error}"[:500], "kind": "render"}


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateRuntimeError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and & for HTML, which a prompt must not be.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _bound_memory(max_bytes: int) -> None:
    """Address space, where the system can bound it."""
    try:
        import resource
    except ImportError:  # Windows: the parent watches
        return
    # Refused by some systems; the parent watches there too.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))


def _end_with_parent(parent_pid: int) -> None:
    """By the kernel (Linux): a template that holds the interpreter lock keeps every thread here from noticing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != parent_pid:
            os._exit(0)


def _read_requests(requests: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    # The parent is gone, or has had enough: whatever template is running, end now.
    os._exit(0)


def main() -> None:
    # Ctrl+C in a terminal reaches the whole process group; the parent decides when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(int(sys.argv[2]))
    _bound_memory(int(sys.argv[1]))
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    renderer = _Renderer()
    answer: dict[str, Any] = {"ready": True}
    while True:
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
        answer = renderer.answer(json.loads(requests.get()))


if __name__ == "__main__":
    main()
