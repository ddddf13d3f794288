"""A loaded model: checked before the library sees the file, and read back after the load."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from inference.llama.devices import Device, DeviceKind, list_devices
from inference.llama.gguf_header import GGUFHeader, InvalidGGUF, ModelFileMissing, read_gguf_header
from inference.llama.native_library import load_native_library
from inference.llama.native_log import captured_native_log
from inference.llama.vocab import Vocab
from inference.remedies import SAFE_N_CTX, remedies
from inference.request import EngineError, ErrorCode


@dataclass(frozen=True, slots=True)
class Offload:
    """layers_offloaded of layers run on device; read from the library's log after the load."""

    device_name: str
    backend: str
    layers_offloaded: int
    layers: int


class Model:
    """llama_model and its vocabulary."""

    def __init__(self, llama: ModuleType, handle: int, header: GGUFHeader, offload: Offload) -> None:
        self.llama = llama
        self.handle = handle
        self.header = header
        self.offload = offload
        self.vocab = Vocab(llama, handle)
        self.n_ctx_train: int = llama.llama_model_n_ctx_train(handle)
        self.size_bytes: int = llama.llama_model_size(handle)
        self.num_params: int = llama.llama_model_n_params(handle)
        self.n_swa: int = llama.llama_model_n_swa(handle)
        # A hybrid's recurrent layers bind it just as much.
        self.is_recurrent: bool = llama.llama_model_is_recurrent(handle) or llama.llama_model_is_hybrid(
            handle
        )

    def close(self) -> None:
        if self.handle is not None:
            self.llama.llama_model_free(self.handle)
            self.handle = None  # type: ignore[assignment]


def read_model_header(path: Path) -> GGUFHeader:
    """Raises EngineError (model_not_found, model_invalid) with a line for the user."""
    try:
        return read_gguf_header(path)
    except ModelFileMissing as error:
        raise EngineError(ErrorCode.MODEL_NOT_FOUND, str(error)) from error
    except InvalidGGUF as error:
        raise EngineError(ErrorCode.MODEL_INVALID, str(error)) from error


def load_model(path: Path, n_gpu_layers: int | None, on_progress: Callable[[float], bool]) -> Model:
    """Load from a GGUF file. n_gpu_layers None: as many as fit. on_progress (0.0 to 1.0) ends the load with False.

    Raises EngineError.
    """
    header = read_model_header(path)
    llama = load_native_library()
    devices = list_devices()
    gpus = [device for device in devices if device.is_gpu]
    wanted = _layers_that_fit(header, gpus) if n_gpu_layers is None else n_gpu_layers
    while True:
        handle, log = _load(llama, path, wanted, gpus, on_progress)
        if handle:
            return Model(llama, handle, header, _read_offload(log, header, devices))
        if n_gpu_layers is not None or wanted == 0:
            raise EngineError(
                ErrorCode.MODEL_LOAD_FAILED, _why_not_loaded(path, log, uses_gpu=wanted > 0 and bool(gpus))
            )
        # Auto: the estimate was too high for this driver; the next lower try is half.
        wanted //= 2


def _load(
    llama: ModuleType,
    path: Path,
    n_gpu_layers: int,
    gpus: Sequence[Device],
    on_progress: Callable[[float], bool],
) -> tuple[int | None, list[str]]:
    params = llama.llama_model_default_params()
    params.n_gpu_layers = n_gpu_layers
    # An empty list keeps a GPU out altogether; with 0 layers alone it would still take large batches.
    handles = [gpu.handle for gpu in gpus] if n_gpu_layers else []
    device_list = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
    params.devices = ctypes.cast(device_list, ctypes.c_void_p)
    progress = llama.llama_progress_callback(lambda fraction, _user_data: on_progress(fraction))
    params.progress_callback = progress
    with captured_native_log() as log:
        handle = llama.llama_model_load_from_file(str(path).encode(), params)
    return handle, log


def _layers_that_fit(header: GGUFHeader, gpus: Sequence[Device]) -> int:
    """Layers whose weights fit into free GPU memory, leaving a quarter for the KV cache and compute buffers."""
    layers = header.block_count + 1
    free = sum(gpu.free_bytes for gpu in gpus) * 3 // 4
    return min(layers, layers * free // max(1, header.size_bytes))


def _read_offload(log: Sequence[str], header: GGUFHeader, devices: Sequence[Device]) -> Offload:
    text = "\n".join(log)
    count = re.search(r"offloaded (\d+)/(\d+) layers to GPU", text)
    layers_offloaded = int(count[1]) if count else 0
    layers = int(count[2]) if count else header.block_count + 1
    used = [device for device in devices if device.is_gpu and f"{device.name} model buffer size" in text]
    if layers_offloaded and used:
        backend = re.sub(r"\d+$", "", used[0].name)
        return Offload(", ".join(device.description for device in used), backend, layers_offloaded, layers)
    cpu = next((device for device in devices if device.kind == DeviceKind.CPU), None)
    return Offload(cpu.description if cpu else "CPU", "CPU", 0, layers)


def _why_not_loaded(path: Path, log: Sequence[str], *, uses_gpu: bool) -> str:
    if any(
        re.search("alloc|out of memory", line, re.IGNORECASE)
        for line in log
        if "failed" in line or "unable" in line
    ):
        # A context comes after the weights, so a smaller one would not help.
        tries = remedies(SAFE_N_CTX, None, uses_gpu=uses_gpu)
        return f"not enough memory for {path.name}: try {tries}"
    reasons = [line.split("error loading model: ", 1)[1] for line in log if "error loading model: " in line]
    reason = reasons[-1] if reasons else "the log has more"
    return f"{path.name} could not be loaded: {reason}. Choose another model, or download this one again"
