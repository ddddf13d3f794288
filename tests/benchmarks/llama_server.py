"""The peer: llama.cpp's own server."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from inference.cpu_threads import default_threads
from installers.benchmark_peers import peer_binary
from tests.benchmarks.engine_runs import starter


@dataclass(frozen=True, slots=True)
class LlamaServer:
    """A running server. Seconds are read on this side, from the request to the last byte."""

    url: str

    def post(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        request = self._request(path, body)
        began = time.perf_counter()
        with urllib.request.urlopen(request) as response:
            content = response.read()
        return json.loads(content), time.perf_counter() - began

    def first_token(self, prompt: str) -> tuple[int, float]:
        """Prompt tokens really evaluated, and seconds until the one token of the reply is here."""
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0, "cache_prompt": True, "id_slot": 0}
        answer, seconds = self.post("/completion", body)
        return answer["timings"]["prompt_n"], seconds

    def streamed(self, prompt: str, num_tokens: int) -> Iterator[dict[str, Any]]:
        """What the server sends of a greedy reply of exactly so many tokens, as it comes; nothing of the prompt is taken
        from a cache."""
        body = {
            "prompt": prompt,
            "n_predict": num_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "cache_prompt": False,
        }
        with urllib.request.urlopen(self._request("/completion", body)) as response:
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[len(b"data: ") :])

    def slot(self, action: str, file_name: str) -> float:
        return self.post(f"/slots/0?action={action}", {"filename": file_name})[1]

    def _request(self, path: str, body: dict[str, Any]) -> urllib.request.Request:
        return urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )


@contextmanager
def running_server(
    environment: Mapping[str, str], *, n_ctx: int, slots: int, options: tuple[str, ...] = ()
) -> Iterator[LlamaServer]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(str(peer_binary("llama-server")), "--model", str(starter()), "--host", "127.0.0.1"),
        *("--port", str(port), "--ctx-size", str(n_ctx), "--parallel", str(slots)),
        *("--threads", str(default_threads()), "--flash-attn", "on", *options),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(environment)
    ) as process:
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
