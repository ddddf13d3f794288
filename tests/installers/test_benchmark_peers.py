from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from installers import benchmark_peers
from installers.benchmark_peers import PEERS, peer_binary
from installers.native_recipe import CMAKE_FLAGS, NativeRecipe


class ScriptedCompiler:
    """Stands in for the nine minutes of compiling: writes what a build would leave, and notes what it was asked for."""

    def __init__(self) -> None:
        self.targets: list[Sequence[str]] = []
        self.recipes: list[NativeRecipe] = []

    def __call__(
        self, recipe: NativeRecipe, source: Path, build: Path, log: Path, targets: Sequence[str]
    ) -> None:
        self.recipes.append(recipe)
        self.targets.append(targets)
        log.write_text("warnings")
        (build / "bin").mkdir(parents=True)
        for target in targets:
            (build / "bin" / target).write_text("built")


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScriptedCompiler:
    scripted = ScriptedCompiler()
    monkeypatch.setenv("EVERWARM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(benchmark_peers, "download_sdist", lambda recipe, work, log: work / "sdist.tar.gz")
    monkeypatch.setattr(benchmark_peers, "unpack_source", lambda sdist, destination: destination)
    monkeypatch.setattr(benchmark_peers, "compile_targets", scripted)
    return scripted


def test_all_peers_are_built_together_and_once(compiler: ScriptedCompiler) -> None:
    assert all(peer_binary(name).read_text() == "built" for name in PEERS)
    assert compiler.targets == [PEERS]


def test_a_cache_that_has_only_the_server_is_completed(compiler: ScriptedCompiler) -> None:
    folder = peer_binary("llama-server").parent
    (folder / "llama-bench").unlink()
    (folder / "llama-batched-bench").unlink()
    assert peer_binary("llama-server").read_text() == "built"
    assert compiler.targets == [PEERS, PEERS]
    assert sorted(path.name for path in folder.iterdir()) == sorted(PEERS)


def test_the_library_in_the_peers_has_the_flags_of_our_own(compiler: ScriptedCompiler) -> None:
    peer_binary("llama-bench")
    [recipe] = compiler.recipes
    # Other programs are built beside it; of the library itself nothing differs.
    assert {flag: recipe.flags[flag] for flag in CMAKE_FLAGS if not flag.startswith("LLAMA_BUILD_")} == {
        flag: value for flag, value in CMAKE_FLAGS.items() if not flag.startswith("LLAMA_BUILD_")
    }


def test_what_is_left_beside_the_peers_is_nothing(compiler: ScriptedCompiler) -> None:
    folder = peer_binary("llama-server").parent
    assert list(folder.parent.iterdir()) == [folder]
