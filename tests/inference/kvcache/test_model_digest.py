import hashlib
import os
from pathlib import Path

import pytest

from inference.kvcache.model_digest import ModelDigests


def test_the_digest_is_the_files_sha256(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights" * 10_000)
    assert (
        ModelDigests(tmp_path / "digests.json").sha256([model])
        == hashlib.sha256(model.read_bytes()).hexdigest()
    )


def test_a_known_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    first = ModelDigests(tmp_path / "digests.json").sha256([model])
    monkeypatch.setattr(hashlib, "sha256", lambda: pytest.fail("hashed again"))
    assert ModelDigests(tmp_path / "digests.json").sha256([model]) == first


def test_a_file_rewritten_with_its_old_size_and_time_is_read_again(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    status = model.stat()
    digests = ModelDigests(tmp_path / "digests.json")
    first = digests.sha256([model])
    model.write_bytes(b"WEIGHTS")
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.sha256([model]) != first


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}'])
def test_a_damaged_list_of_digests_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"weights")
    (tmp_path / "digests.json").write_bytes(damage)
    assert ModelDigests(tmp_path / "digests.json").sha256([model]) == hashlib.sha256(b"weights").hexdigest()


def test_parts_are_one_model_and_their_order_counts(tmp_path: Path) -> None:
    parts = [tmp_path / "1.gguf", tmp_path / "2.gguf"]
    for part in parts:
        part.write_bytes(part.name.encode())
    digests = ModelDigests(tmp_path / "digests.json")
    assert len({digests.sha256(parts), digests.sha256(parts[::-1]), digests.sha256(parts[:1])}) == 3
