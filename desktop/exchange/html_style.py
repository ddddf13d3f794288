"""The style sheet of exported HTML: the window's two themes, chosen by the reader's system."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_THEMES = Path(__file__).parent.parent.parent / "resources" / "themes"
_COLOURS = ("page", "bubble", "border", "text", "muted", "link", "code_page", "code_text")
_CODE = [
    "comment",
    "keyword",
    "string",
    "number",
    "function",
    "type",
    "constant",
    "operator",
    "inserted",
    "deleted",
]  # of the themes' code_… colours

_RULES = """\
:root { color-scheme: light dark; }
body { background: var(--page); color: var(--text); margin: 0;
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere; }
article + article { border-top: 1px solid var(--border); margin-top: 3rem; padding-top: 1rem; }
h1 { font-size: 1.5rem; margin: 1rem 0 0; }
section > h2 { font-size: .85rem; color: var(--muted); margin: 1.75rem 0 .25rem; }
section.user > div { background: var(--bubble); border-radius: 10px; padding: .6rem .9rem; }
section.system > div { border-left: 3px solid var(--border); padding-left: .9rem; }
section > div > :first-child { margin-top: 0; } section > div > :last-child { margin-bottom: 0; }
.date, .note { color: var(--muted); font-size: .85rem; }
a { color: var(--link); }
pre { background: var(--code_page); color: var(--code_text); border: 1px solid var(--border);
  border-radius: 8px; padding: .7rem .9rem; overflow-x: auto; white-space: pre; overflow-wrap: normal; }
code, pre { font: .875rem/1.5 ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace; }
:not(pre) > code { background: var(--code_page); border-radius: 4px; padding: .1em .3em; }
.language { display: block; color: var(--muted); font-size: .75rem; margin-bottom: .4rem; user-select: none; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--border); padding: .3rem .6rem; }
blockquote { border-left: 3px solid var(--border); color: var(--muted); margin-left: 0; padding-left: .9rem; }
details { border: 1px solid var(--border); border-radius: 8px; color: var(--muted); margin: .3rem 0 .8rem;
  padding: .4rem .9rem; }
summary { cursor: pointer; }
@media print { details { display: none; } pre { white-space: pre-wrap; } }
"""


@cache
def style_sheet() -> str:
    light, dark = (_variables(name) for name in ("light", "dark"))
    code = "".join(f".code_{name} {{ color: var(--code_{name}); }}\n" for name in _CODE)
    return (
        f":root {{\n{light}}}\n@media (prefers-color-scheme: dark) {{ :root {{\n{dark}}} }}\n{_RULES}{code}"
    )


def _variables(theme: str) -> str:
    colours = tomllib.loads((_THEMES / f"{theme}.toml").read_text(encoding="utf-8"))
    names = (*_COLOURS, *(f"code_{name}" for name in _CODE))
    return "".join(f"  --{name}: {colours[name]};\n" for name in names)
