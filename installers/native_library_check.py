"""python -m installers.native_library_check FOLDER: exits with 0 when the libraries load and find a device."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_FILE_NAMES = {"win32": "{}.dll", "darwin": "lib{}.dylib"}


def count_devices(folder: Path) -> int:
    """Devices that ggml's backends in `folder` offer on this machine; the CPU is one."""
    file_name = _FILE_NAMES.get(sys.platform, "lib{}.so")
    ctypes.CDLL(str(folder / file_name.format("llama")))
    ggml = ctypes.CDLL(str(folder / file_name.format("ggml")))
    ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_load_all_from_path(str(folder).encode())
    return int(ggml.ggml_backend_dev_count())


if __name__ == "__main__":
    sys.exit(0 if count_devices(Path(sys.argv[1])) > 0 else "no backend in the folder runs on this CPU")
