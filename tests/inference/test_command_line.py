"""`python -m inference generate`: the outside contract."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tiny_models import TinyModel, write_llama

FIELDS = {
    "text",
    "token_ids",
    "prompt_tokens",
    "reused_tokens",
    "restored_tokens",
    "prefilled_tokens",
    "ttft_ms",
    "load_ms",
    "restore_ms",
    "prefill_ms",
    "decode_tokens_per_second",
    "finish_reason",
    "kv",
    "device",
    "seed",
    "logprobs",
}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    environment = {**os.environ, "EVERWARM_DATA_DIR": str(tmp_path / "data")}

    def run(*arguments: str | bytes | Path) -> "subprocess.CompletedProcess[str]":
        command: list[str | bytes | Path] = [sys.executable, "-m", "inference", "generate", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return run


def report_of(result: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    report: dict[str, Any] = json.loads(result.stdout)
    parts = report["reused_tokens"] + report["restored_tokens"] + report["prefilled_tokens"]
    assert parts == report["prompt_tokens"]
    return report


def test_a_second_process_reads_a_4000_token_prompt_from_disk(
    run: Run, starter_path: Path, tmp_path: Path
) -> None:
    prompt = "The river bends twice before it meets the old mill. " * 364
    arguments = [
        starter_path,
        "--prompt",
        prompt,
        "--kv-store",
        tmp_path / "kv",
        "--max-tokens",
        "16",
        "--json",
    ]
    cold = report_of(run(*arguments))
    # The quickest of three: one decode step takes many times as long when another program has a core.
    warm = min((report_of(run(*arguments)) for _ in range(3)), key=lambda report: report["ttft_ms"])
    assert cold["prompt_tokens"] > 3900
    assert cold["prefilled_tokens"] == cold["prompt_tokens"]
    assert warm["prefilled_tokens"] <= 2
    assert warm["token_ids"] == cold["token_ids"]
    assert warm["text"] == cold["text"]
    # A ratio within one machine and one run, no clock by itself.
    assert warm["ttft_ms"] < cold["ttft_ms"] / 100
    assert warm["kv"]["bytes_read"] == cold["kv"]["bytes_written"] == cold["kv"]["store_bytes"]


def test_the_json_object_has_every_field_of_the_contract(run: Run, starter_path: Path) -> None:
    report = report_of(
        run(starter_path, "--prompt", "Once", "--max-tokens", "3", "--json", "--context", "512")
    )
    assert report.keys() >= FIELDS
    assert report["kv"].keys() == {
        "used_bytes",
        "allocated_bytes",
        "store_bytes",
        "bytes_read",
        "bytes_written",
    }
    assert report["device"].keys() == {"name", "backend", "layers_offloaded", "layers"}
    assert report["finish_reason"] == "length"
    assert len(report["token_ids"]) == 3
    assert (report["kv"]["store_bytes"], report["kv"]["bytes_written"]) == (0, 0)


def test_a_reply_by_schema_with_logprobs(run: Run, starter_path: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2, "maxItems": 2}')
    options = ["--max-tokens", "40", "--json", "--context", "256", "--top-logprobs", "2"]
    report = report_of(run(starter_path, "--prompt", "Colours:", "--json-schema", schema, *options))
    assert len(json.loads(report["text"])) == 2
    assert report["finish_reason"] == "stop"
    told = [step["token_id"] for step in report["logprobs"]]
    assert told[: len(report["token_ids"])] == report["token_ids"]
    assert all(len(step["top"]) == 2 for step in report["logprobs"])


def test_without_json_the_text_alone_is_printed(run: Run, starter_path: Path) -> None:
    arguments = [starter_path, "--prompt", "Once upon a time", "--max-tokens", "10", "--context", "512"]
    result = run(*arguments)
    assert result.stdout == report_of(run(*arguments, "--json"))["text"] + "\n"
    assert result.stderr == ""


def test_a_chat_file_goes_through_the_template(run: Run, starter_path: Path, tmp_path: Path) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(
        json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    )
    report = report_of(run(starter_path, "--chat", chat, "--max-tokens", "5", "--json", "--context", "512"))
    assert report["prompt_tokens"] > 10


def test_a_prompt_as_long_as_the_context_ends_with_context(run: Run, starter_path: Path) -> None:
    report = report_of(run(starter_path, "--prompt", "hello " * 250, "--context", "256", "--json"))
    assert report["finish_reason"] == "context"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--prompt", ""], "prompt is empty"),
        (["--prompt", "hello " * 600, "--context", "512"], "shorten it"),
        (["--chat", "missing.json"], "No such file"),
        (["--chat", "text.json"], "not JSON"),
        (["--chat", "object.json"], "a list of"),
        (["--chat", "role.json"], "'robot'"),
        (["--chat", "empty.json"], "no messages"),
        (["--chat", "deep.json"], "not JSON"),
        (["--prompt", "x", "--context", "999999999"], "GB of memory"),
        (["--prompt", "x", "--context", "64", "--grammar", "text.json"], "line 1 of the grammar"),
        (["--prompt", "x", "--context", "64", "--json-schema", "deep.json"], "nested too deeply"),
        (["--prompt", "x", "--grammar", "missing.json"], "No such file"),
    ],
)
def test_refused_input_is_one_line_and_exit_code_1(
    run: Run,
    starter_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "object.json").write_text("{}")
    (tmp_path / "empty.json").write_text("[]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "role.json").write_text('[{"role": "robot", "content": "x"}]')
    arguments = [str(tmp_path / part) if part.endswith(".json") else part for part in arguments]
    result = run(starter_path, *arguments, "--json")
    assert (result.returncode, result.stdout) == (1, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_chat_that_no_template_fits_goes_through_one_that_is_named(run: Run, tmp_path: Path) -> None:
    chat, model = tmp_path / "chat.json", write_llama(tmp_path / "m.gguf", TinyModel(chat_template=None))
    chat.write_text(json.dumps([{"role": "user", "content": "hello"}]))
    # A vocabulary of no known format.
    model.write_bytes(model.read_bytes().replace(b"<|im_start|>", b"<|zz_start|>"))
    arguments = [model, "--chat", chat, "--max-tokens", "2"]
    refused = run(*arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "choose a built-in template" in refused.stderr
    assert "--template NAME; --help lists the names" in refused.stderr
    as_told = run("--help")
    assert "built in: llama3, " in " ".join(as_told.stdout.split())
    report = report_of(run(*arguments, "--template", "alpaca", "--json"))
    assert (
        report["token_ids"]
        == report_of(run(*arguments, "--template", "built-in alpaca", "--json"))["token_ids"]
    )
    unknown = run(*arguments, "--template", "variant none")
    assert unknown.returncode == 1
    assert "choose another one, of built-in llama3, " in unknown.stderr


def test_a_template_that_stands_in_is_told(run: Run, tmp_path: Path) -> None:
    chat, model = tmp_path / "chat.json", write_llama(tmp_path / "m.gguf", TinyModel(chat_template=None))
    chat.write_text(json.dumps([{"role": "user", "content": "hello"}]))
    arguments = [model, "--chat", chat, "--max-tokens", "2"]
    result = run(*arguments)
    assert result.returncode == 0
    assert result.stderr.startswith("warning: the model's file has no chat template: ")
    assert "“built-in chatml” (--template chooses another)" in result.stderr
    # Who chose knows, and raw text has none.
    assert run(*arguments, "--template", "chatml").stderr == ""
    assert run(model, "--prompt", "hello", "--max-tokens", "2").stderr == ""


def test_a_named_template_is_what_the_store_explains(run: Run, tmp_path: Path) -> None:
    chat, model = tmp_path / "chat.json", write_llama(tmp_path / "m.gguf")
    chat.write_text(json.dumps([{"role": "user", "content": "hello " * 50}]))
    kv = tmp_path / "kv"
    named = ["--chat", chat, "--template", "alpaca", "--json"]
    report = report_of(run(model, *named, "--kv-store", kv, "--max-tokens", "2"))
    command = (sys.executable, "-m", "inference", "store", kv, "explain", model)

    def explain(*arguments: str | Path) -> dict[str, int]:
        explained = subprocess.run([*command, *arguments], capture_output=True, check=True)
        told: dict[str, int] = json.loads(explained.stdout)
        return told

    assert explain(*named)["restorable_tokens"] == report["prompt_tokens"] - 1
    assert explain("--chat", chat, "--json")["restorable_tokens"] < 50


@pytest.mark.parametrize("content", [None, b"", b"plain text", b"GGUF" + b"\xff" * 100])
def test_a_file_that_is_no_model_is_exit_code_1(run: Run, tmp_path: Path, content: bytes | None) -> None:
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    result = run(model, "--prompt", "x", "--json")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--prompt", "x", "--chat", "y"],
        ["--prompt", "x", "--gpu-layers", "some"],
        ["--prompt", "x", "--temperature", "-1"],
        ["--prompt", "x", "--max-tokens", "0"],
        ["--prompt", "x", "--kv-store", "d", "--no-kv-store"],
        ["--prompt", "x", "--unknown"],
        ["--prompt", "x", "--temperature", "nan"],
        ["--prompt", "x", "--top-p", "nan"],
        ["--prompt", "x", "--mirostat", "3"],
        ["--prompt", "x", "--logit-bias", "5"],
        ["--prompt", "x", "--logit-bias", "5=101"],
        ["--prompt", "x", "--stop", ""],
        ["--prompt", "x", "--max-tokens", "99999999999999999999"],
        ["--prompt", "x", "--context", "4294967296"],
        ["--prompt", "x", "--threads", "100000"],
        ["--prompt", "x", "--kv-store", ""],
        ["--prompt", "x", "--template", "chatml"],
        ["--chat", "x", "--template", "chatlm"],
        ["--prompt", "x", "--kv-store", b"/tmp/\xff"],
    ],
    ids=str,
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    run: Run, starter_path: Path, arguments: list[str | bytes]
) -> None:
    result = run(starter_path, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_a_dead_engine_is_exit_code_3_and_what_was_written_is_still_printed(
    starter_path: Path, as_json: bool
) -> None:
    command = [
        sys.executable,
        "-m",
        "inference",
        "generate",
        str(starter_path),
        "--prompt",
        "Once upon a time",
    ]
    # Unbounded, so that the worker is surely at work when it is killed.
    process = subprocess.Popen(
        command + ["--json"] * as_json, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=0
    )
    assert process.stdout is not None
    children: list[psutil.Process] = []
    while not children and process.poll() is None:
        children = psutil.Process(process.pid).children()
        time.sleep(0.05)
    (worker,) = children
    written = "" if as_json else process.stdout.read(1)
    # With --json nothing shows that it writes, but loading and reading are done long before this much work.
    while as_json and worker.cpu_times().user < 10 and process.poll() is None:
        time.sleep(0.05)
    worker.kill()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "SIGKILL" in stderr
    assert stderr.count("\n") == 1
    if as_json:
        report = json.loads(stdout)
        assert report["finish_reason"] == "error"
        assert report["text"]
    else:
        assert (written + stdout).strip()


def test_text_that_is_no_unicode_is_read_with_question_marks(run: Run, starter_path: Path) -> None:
    options = ["--max-tokens", "3", "--json", "--context", "256"]
    broken = report_of(run(starter_path, "--prompt", b"abc\xff", *options))
    assert broken["token_ids"] == report_of(run(starter_path, "--prompt", "abc?", *options))["token_ids"]


def test_a_store_that_cannot_be_used_is_a_warning_and_the_reply_comes_all_the_same(
    run: Run, starter_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    result = run(
        starter_path, "--prompt", "x", "--kv-store", tmp_path / "file", "--max-tokens", "2", "--json"
    )
    report_of(result)
    assert result.stderr.startswith("warning: The KV store")
    assert result.stderr.count("\n") == 1


def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(starter_path: Path) -> None:
    command = [sys.executable, "-m", "inference", "generate", str(starter_path), "--prompt", "x"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*command, "--max-tokens", "2"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 1
    assert "cannot be written" in result.stderr
    assert result.stderr.count("\n") == 1


INTERRUPTS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@INTERRUPTS
def test_an_interrupted_reply_ends_there_and_is_no_error(starter_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "inference", "generate", str(starter_path), "--prompt", "x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, b"")


def test_a_second_interrupt_ends_a_worker_that_does_not_answer(starter_path: Path) -> None:
    command = [sys.executable, "-m", "inference", "generate", str(starter_path), "--prompt", "x"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    assert process.stdout is not None
    assert process.stdout.read(1)
    [worker] = psutil.Process(process.pid).children()
    worker.suspend()
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
    assert (process.returncode, process.stderr and process.stderr.read()) == (0, b"")
    assert not worker.is_running()


@INTERRUPTS
def test_a_command_interrupted_while_the_model_loads_prints_its_object(
    starter_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "inference", "generate", str(starter_path), "--prompt", "x", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not psutil.Process(process.pid).children() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    assert json.loads(stdout)["finish_reason"] == "cancelled"
