"""What the library reports as too little memory is told with what to do about it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bounds a process's memory as Linux does")

CODE = """
import resource, sys
from pathlib import Path
import psutil
from inference.llama.context import Context, ContextParams
from inference.llama.model import load_model
from inference.llama.native_library import load_native_library
from inference.request import EngineError

def bound(more_bytes):
    most = psutil.Process().memory_info().vms + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))

path = Path(sys.argv[1])
load_native_library()
if sys.argv[2] == "weights":
    bound(path.stat().st_size // 2)
model = None
try:
    model = load_model(path, 0, lambda fraction: True)
    bound(2**27)
    Context(model, ContextParams(n_ctx=65536))
except EngineError as error:
    print(error.code, error, model is None)
"""


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("weights", "try closing other programs or a smaller model True"),
        ("context", "not enough memory for a context of 65,536 tokens"),
    ],
)
def test_the_line_says_what_was_too_much_and_what_to_try(starter_path: Path, what: str, says: str) -> None:
    command = [sys.executable, "-c", CODE, str(starter_path), what]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout.startswith("model_load_failed not enough memory"), (result.stdout, result.stderr)
    assert says in result.stdout
    assert "GPU" not in result.stdout
    assert ("2,048 tokens" in result.stdout) == (what == "context")
