"""The compute devices of this build, read live from ggml."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

from inference.llama.native_library import load_ggml, load_native_library


class DeviceKind(IntEnum):
    """ggml_backend_dev_type."""

    CPU = 0
    GPU = 1
    INTEGRATED_GPU = 2
    ACCELERATOR = 3


@dataclass(frozen=True, slots=True)
class Device:
    """handle: ggml_backend_dev_t. free/total: bytes, as the driver reports them."""

    handle: int
    name: str
    description: str
    kind: DeviceKind
    free_bytes: int
    total_bytes: int

    @property
    def is_gpu(self) -> bool:
        return self.kind in (DeviceKind.GPU, DeviceKind.INTEGRATED_GPU)


def list_devices() -> list[Device]:
    load_native_library()
    ggml = load_ggml()
    handle = ctypes.c_void_p
    ggml.ggml_backend_dev_count.restype = ctypes.c_size_t
    ggml.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    ggml.ggml_backend_dev_get.restype = handle
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description"):
        function = getattr(ggml, name)
        function.argtypes, function.restype = [handle], ctypes.c_char_p
    ggml.ggml_backend_dev_type.argtypes = [handle]
    ggml.ggml_backend_dev_type.restype = ctypes.c_int
    ggml.ggml_backend_dev_memory.argtypes = [
        handle,
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.POINTER(ctypes.c_size_t),
    ]
    ggml.ggml_backend_dev_memory.restype = None
    devices = []
    for index in range(ggml.ggml_backend_dev_count()):
        device = ggml.ggml_backend_dev_get(index)
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        ggml.ggml_backend_dev_memory(device, ctypes.byref(free), ctypes.byref(total))
        kind = ggml.ggml_backend_dev_type(device)
        devices.append(
            Device(
                handle=device,
                name=ggml.ggml_backend_dev_name(device).decode("utf-8", "replace"),
                description=ggml.ggml_backend_dev_description(device).decode("utf-8", "replace").strip(),
                kind=DeviceKind(kind) if kind in DeviceKind._value2member_map_ else DeviceKind.ACCELERATOR,
                free_bytes=free.value,
                total_bytes=total.value,
            )
        )
    return devices
