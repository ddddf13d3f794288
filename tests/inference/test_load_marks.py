"""Which loads never ended, as the next start finds it."""

from pathlib import Path

import pytest

from inference.load_marks import LoadMarks
from inference.model_config import ModelConfig

ONE, OTHER = ModelConfig("/models/one.gguf"), ModelConfig("/models/one.gguf", n_gpu_layers=0)


@pytest.fixture
def marks(tmp_path: Path) -> LoadMarks:
    return LoadMarks(tmp_path / "loads.json")


def test_a_load_is_marked_while_it_runs_and_not_afterwards(marks: LoadMarks, tmp_path: Path) -> None:
    with marks.loading(ONE):
        assert LoadMarks(tmp_path / "loads.json").read() == (ONE,)
    assert marks.read() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_fails_in_order_leaves_no_mark(marks: LoadMarks) -> None:
    with pytest.raises(ValueError, match="refused"), marks.loading(ONE):
        raise ValueError("refused")
    assert marks.read() == ()


def test_a_load_of_other_settings_does_not_clear_the_mark(marks: LoadMarks) -> None:
    unended = marks.loading(ONE)
    unended.__enter__()
    with marks.loading(OTHER):
        assert marks.read() == (ONE, OTHER)
    assert marks.read() == (ONE,)


def test_the_file_does_not_grow_without_end(marks: LoadMarks) -> None:
    unended = [marks.loading(ModelConfig(f"/models/{number}.gguf")) for number in range(40)]
    for load in unended:
        load.__enter__()
    assert marks.read()[-1].path == "/models/39.gguf"
    assert len(marks.read()) == 20


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"path": 1}', b"[[]]"])
def test_a_damaged_file_marks_nothing_and_is_replaced(
    marks: LoadMarks, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "loads.json").write_bytes(content)
    assert marks.read() == ()
    with marks.loading(ONE):
        assert marks.read() == (ONE,)


def test_where_nothing_can_be_written_loads_go_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with LoadMarks(tmp_path / "file" / "loads.json").loading(ONE):
        pass
    with LoadMarks(None).loading(ONE):
        assert LoadMarks(None).read() == ()
