"""Finds, loads and initialises the native library: bindings from llama-cpp-python, shared files from our own build."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import sys
import threading
from pathlib import Path
from types import ModuleType

from inference.llama.native_log import install_native_log

_SHARED_LIBRARY_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_SHARED_LIBRARY_PREFIX = "" if sys.platform == "win32" else "lib"


class NativeLibraryMissing(Exception):
    """The native library is not where set-up leaves it; the message says what to do."""


def native_library_folder() -> Path:
    """EVERWARM_NATIVE_DIR, else the folder that set-up wrote into this environment."""
    override = os.environ.get("EVERWARM_NATIVE_DIR")
    if override:
        folder = Path(override)
    else:
        pointer = Path(sys.prefix) / "everwarm_native_library.txt"
        try:
            folder = Path(pointer.read_text(encoding="utf-8").strip())
        except OSError as error:
            raise NativeLibraryMissing(
                "the native library is not set up: run `make run` or `make test` once"
            ) from error
    if not (folder / _file_name("llama")).exists():
        raise NativeLibraryMissing(f"no native library in {folder}: run `make run` or `make test` once")
    return folder


def _file_name(stem: str) -> str:
    return f"{_SHARED_LIBRARY_PREFIX}{stem}{_SHARED_LIBRARY_SUFFIX}"


# The inference thread may need it just when a thread that checks a JSON schema does.
_loading = threading.RLock()


def load_native_library() -> ModuleType:
    """The `llama_cpp.llama_cpp` module over an initialised backend. Raises NativeLibraryMissing.

    The CPU variant that suits this processor, and every GPU backend whose driver is present, are chosen here
    by ggml itself (GGML_BACKEND_DL), so one build runs everywhere. Any thread may call.
    """
    with _loading:
        return _load()


@functools.cache
def _load() -> ModuleType:
    folder = native_library_folder()
    # The bindings read this at import.
    os.environ["LLAMA_CPP_LIB_PATH"] = str(folder)
    llama = importlib.import_module("llama_cpp.llama_cpp")
    install_native_log(llama)
    ggml = load_ggml()
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_load_all_from_path.restype = None
    ggml.ggml_backend_load_all_from_path(os.fsencode(folder))
    llama.llama_backend_init()
    return llama


@functools.cache
def load_ggml() -> ctypes.CDLL:
    """libggml of the same folder; the bindings do not cover its device functions."""
    return ctypes.CDLL(str(native_library_folder() / _file_name("ggml")))


@functools.cache
def library_build() -> str:
    """What tells two builds apart whose KV bytes may differ, e.g. "llama-cpp-python 0.3.36, llama.cpp b1234"."""
    llama = load_native_library()
    bindings = importlib.import_module("llama_cpp")
    return f"llama-cpp-python {bindings.__version__}, llama.cpp {llama.llama_version().decode()}"
