"""Second half of set-up, run by the environment's own Python: the native library, its bindings, the starter model."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path

from installers.environment import LOG, Stamps, stamps_of
from installers.errors import SetUpError
from installers.logged_command import run_logged
from installers.native_library import bindings_wheel, cache_root, ensure_native_library
from installers.native_recipe import recipe_for_this_system
from installers.starter_model import ensure_starter_model


def set_up_engine(prefix: Path) -> None:
    stamps = stamps_of(prefix)
    folder = ensure_native_library(recipe_for_this_system(), prefix, cache_root())
    _ensure_bindings(bindings_wheel(folder), stamps)
    ensure_starter_model(stamps, LOG)


def _ensure_bindings(wheel: Path, stamps: Stamps) -> None:
    key = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if stamps.is_current("bindings", key) and _installed_without_libraries():
        return
    print("Installing the Python bindings …", flush=True)
    run_logged(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--force-reinstall", str(wheel)],
        LOG,
        doing="Installing the Python bindings",
    )
    importlib.invalidate_caches()
    if not _installed_without_libraries():
        raise SetUpError(
            "The Python bindings are not as they were built. Remove .venv and run the same command again."
        )
    stamps.record("bindings", key)


def _installed_without_libraries() -> bool:
    # A plain "pip install llama-cpp-python" puts libraries made for one CPU into llama_cpp/lib.
    spec = importlib.util.find_spec("llama_cpp")
    return spec is not None and spec.origin is not None and not (Path(spec.origin).parent / "lib").exists()


if __name__ == "__main__":
    try:
        set_up_engine(Path(sys.prefix))
    except SetUpError as error:
        sys.exit(f"\n{error}")
    except OSError as error:
        sys.exit(
            f"\nSet-up could not go on: {error}. When that is mended, the same command goes on from here."
        )
    except KeyboardInterrupt:
        sys.exit(130)
