"""What the user has chosen, kept as settings.toml."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import tomli_w

from inference import SamplingParams

Theme = Literal["system", "light", "dark"]
ReadDrafts = Literal["always", "on mains power", "never"]
MIN_TEXT_SCALE, MAX_TEXT_SCALE = 0.6, 3.0
_MAX_RECENT_MODELS = 10


class SettingsNotSaved(Exception):
    """The file is as it was before; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class Settings:
    """templates: the chat template of a model, by its path, for chats that choose none (see
    GenerationRequest.chat_template). n_gpu_layers, n_threads, n_ctx: None is "auto" in the file; see ModelConfig for what auto means.

    store_budget_bytes None: the engine's default. window_geometry: what QWidget.saveGeometry() gave.
    safe_models: paths of those that are loaded with safe settings. read_drafts: when the model reads a draft while it is typed. write_titles: whether the model names chats. recent_model_paths: newest first. text_scale: of the transcript; 1.0 is 15 px text.
    """

    last_model_path: str | None = None
    recent_model_paths: tuple[str, ...] = ()
    n_gpu_layers: int | None = None
    n_threads: int | None = None
    n_ctx: int | None = None
    theme: Theme = "system"
    text_scale: float = 1.0
    store_budget_bytes: int | None = None
    window_geometry: bytes | None = None
    last_conversation_id: int | None = None
    read_drafts: ReadDrafts = "always"
    write_titles: bool = True
    safe_models: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    templates: Mapping[str, str] = field(default_factory=dict)

    def with_model(self, path: str) -> Settings:
        """`path` becomes the last model used and the first of the recent ones."""
        others = tuple(known for known in self.recent_model_paths if known != path)
        return replace(self, last_model_path=path, recent_model_paths=(path, *others)[:_MAX_RECENT_MODELS])

    def with_safe_model(self, path: str, *, is_safe: bool) -> Settings:
        """Whether `path` is loaded with safe settings from now on."""
        others = tuple(known for known in self.safe_models if known != path)
        return replace(self, safe_models=(*others, path) if is_safe else others)


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """problems: one line for each value that could not be used, and for which the default stands."""

    settings: Settings
    problems: tuple[str, ...] = ()


def load_settings(path: Path) -> LoadedSettings:
    """Never fails: whatever cannot be read or used is named in `problems`."""
    try:
        document = _read_document(path)
    except (OSError, ValueError) as error:
        return LoadedSettings(
            Settings(), (f"{path} cannot be read ({_one_line(error)}); the defaults are used.",)
        )
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, parse in _PARSERS.items():
        if name not in document:
            continue
        try:
            values[name] = parse(document[name])
        except ValueError as error:
            problems.append(f"settings.toml: {name} {error}; the default is used.")
    values["sampling"] = _parse_sampling(document.get("sampling", {}), problems)
    return LoadedSettings(Settings(**values), tuple(problems))


def save_settings(path: Path, settings: Settings) -> None:
    """Replace the file in one step, readable by its owner only. Keys this version does not know are kept.

    A file that is not TOML is kept beside it as settings.toml.unreadable. Raises SettingsNotSaved.
    """
    try:
        try:
            document = _read_document(path)
        except ValueError:
            os.replace(path, path.with_name(path.name + ".unreadable"))
            document = {}
        _merge(document, settings)
        # A file name that is not Unicode has no spelling in TOML; it must not cost the other settings.
        _replace_file(path, tomli_w.dumps(document).encode("utf-8", "replace"))
    except OSError as error:
        raise SettingsNotSaved(
            f"The settings were not saved to {path} ({_one_line(error)}). They hold until you quit."
        ) from error


def _read_document(path: Path) -> dict[str, Any]:
    """Raises OSError, or ValueError (TOMLDecodeError and UnicodeDecodeError are both) if it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _merge(document: dict[str, Any], settings: Settings) -> None:
    """Write `settings` over the keys of `document` that this version knows."""
    values: dict[str, Any] = {
        "last_model_path": settings.last_model_path,
        "recent_model_paths": list(settings.recent_model_paths),
        "n_gpu_layers": "auto" if settings.n_gpu_layers is None else settings.n_gpu_layers,
        "n_threads": "auto" if settings.n_threads is None else settings.n_threads,
        "n_ctx": "auto" if settings.n_ctx is None else settings.n_ctx,
        "theme": settings.theme,
        "text_scale": settings.text_scale,
        "store_budget_bytes": settings.store_budget_bytes,
        "window_geometry": settings.window_geometry and base64.b64encode(settings.window_geometry).decode(),
        "last_conversation_id": settings.last_conversation_id,
        "read_drafts": settings.read_drafts,
        "write_titles": settings.write_titles,
        "templates": dict(settings.templates) or None,
        "safe_models": list(settings.safe_models),
    }
    sampling = document.get("sampling")
    if not isinstance(sampling, dict):
        sampling = document["sampling"] = {}
    for table, known in ((document, values), (sampling, asdict(settings.sampling))):
        for name, value in known.items():
            if value is None:  # TOML has no null
                table.pop(name, None)
            else:
                table[name] = value


def _replace_file(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        # Exclusive, so that the mode is really set; a file left by a killed process of the same id goes first.
        temporary.unlink(missing_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _one_line(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be a text, not {value!r}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list of texts, not {value!r}")
    return tuple(_text(element) for element in value)


def _texts_by_name(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table of texts, not {value!r}")
    return {name: _text(element) for name, element in value.items()}


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _integer(minimum: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        # bool is an int to Python, not to the user.
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError(f"must be a whole number from {minimum} up, not {value!r}")
        return value

    return parse


def _auto_or_integer(minimum: int) -> Callable[[object], int | None]:
    def parse(value: object) -> int | None:
        if value == "auto":
            return None
        try:
            return _integer(minimum)(value)
        except ValueError:
            raise ValueError(f'must be "auto" or a whole number from {minimum} up, not {value!r}') from None

    return parse


def _text_scale(value: object) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not MIN_TEXT_SCALE <= value <= MAX_TEXT_SCALE
    ):
        raise ValueError(f"must be a number from {MIN_TEXT_SCALE} to {MAX_TEXT_SCALE}, not {value!r}")
    return float(value)


def _one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return parse


def _base64(value: object) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("must be base64") from None


def _parse_sampling(table: object, problems: list[str]) -> SamplingParams:
    """Each value is tried alone, so that one bad one does not cost the others."""
    if not isinstance(table, dict):
        problems.append(f"settings.toml: sampling must be a table, not {table!r}; the defaults are used.")
        return SamplingParams()
    values: dict[str, Any] = {}
    for parameter in fields(SamplingParams):
        name = parameter.name
        if name not in table:
            continue
        try:
            values[name] = getattr(SamplingParams(**{name: table[name]}), name)
        except ValueError as error:
            problems.append(f"settings.toml: sampling.{error}; the default is used.")
    try:
        return SamplingParams(**values)
    except ValueError as error:  # two that exclude each other
        problems.append(f"settings.toml: sampling.{error}; both are left out.")
        for name in ("grammar", "json_schema"):
            del values[name]
        return SamplingParams(**values)


_PARSERS: dict[str, Callable[[object], object]] = {
    "last_model_path": _text,
    "recent_model_paths": _texts,
    "n_gpu_layers": _auto_or_integer(0),
    "n_threads": _auto_or_integer(1),
    "n_ctx": _auto_or_integer(1),
    "theme": _one_of(get_args(Theme)),
    "text_scale": _text_scale,
    "store_budget_bytes": _integer(0),
    "window_geometry": _base64,
    "last_conversation_id": _integer(1),
    "safe_models": _texts,
    "read_drafts": _one_of(get_args(ReadDrafts)),
    "write_titles": _boolean,
    "templates": _texts_by_name,
}
