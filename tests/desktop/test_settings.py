"""settings.toml: what is kept, what is said of bad values, and that a failed save costs nothing."""

from __future__ import annotations

import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from desktop.settings import Settings, SettingsNotSaved, load_settings, save_settings
from inference import SamplingParams

texts = st.text(min_size=1)
any_settings = st.builds(
    Settings,
    last_model_path=st.none() | texts,
    recent_model_paths=st.lists(texts, max_size=10).map(tuple),
    n_gpu_layers=st.none() | st.integers(0, 200),
    n_threads=st.none() | st.integers(1, 256),
    n_ctx=st.none() | st.integers(1, 2**20),
    safe_models=st.lists(texts, max_size=3).map(tuple),
    theme=st.sampled_from(["system", "light", "dark"]),
    text_scale=st.floats(0.6, 3.0),
    store_budget_bytes=st.none() | st.integers(0, 2**50),
    window_geometry=st.none() | st.binary(min_size=1),
    last_conversation_id=st.none() | st.integers(1, 2**62),
    templates=st.dictionaries(texts, texts, max_size=3),
    sampling=st.builds(
        SamplingParams,
        temperature=st.none() | st.floats(0, 100),
        top_k=st.none() | st.integers(0, 1000),
        top_p=st.none() | st.floats(0.01, 1),
        seed=st.none() | st.integers(0, 2**32 - 2),
        max_tokens=st.none() | st.integers(1, 10**6),
        logit_bias=st.lists(st.tuples(st.integers(0, 2**31 - 1), st.floats(-100, 100))).map(tuple),
        stop=st.lists(st.text(min_size=1, max_size=20), max_size=3).map(tuple),
        grammar=st.none() | st.just('root ::= "\\n"\n'),
        ignore_eos=st.booleans(),
    ),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_without_a_file_the_defaults_stand_and_nothing_is_said(path: Path) -> None:
    loaded = load_settings(path)
    assert loaded.settings == Settings()
    assert loaded.problems == ()
    assert not path.exists()


@given(first=any_settings, second=any_settings)
@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_saved_is_loaded_again_whatever_was_there(
    path: Path, first: Settings, second: Settings
) -> None:
    save_settings(path, first)
    save_settings(path, second)
    loaded = load_settings(path)
    assert loaded.settings == second
    assert loaded.problems == ()


def test_choices_left_to_the_engine_read_auto_in_the_file(path: Path) -> None:
    save_settings(path, Settings())
    document = tomllib.loads(path.read_text())
    assert (document["n_gpu_layers"], document["n_threads"], document["n_ctx"]) == ("auto", "auto", "auto")


def test_keys_of_another_version_are_kept_on_save(path: Path) -> None:
    path.write_text('font_size = 15\n[sampling]\nsmoothing = 2\n[hub]\nmirror = "https://example.org"\n')
    loaded = load_settings(path)
    assert loaded.problems == ()
    save_settings(path, loaded.settings)
    document = tomllib.loads(path.read_text())
    assert document["font_size"] == 15
    assert document["sampling"]["smoothing"] == 2
    assert document["hub"] == {"mirror": "https://example.org"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("last_model_path = 3", "last_model_path"),
        ('recent_model_paths = "one"', "recent_model_paths"),
        ("recent_model_paths = [1]", "recent_model_paths"),
        ('n_gpu_layers = "all"', "n_gpu_layers"),
        ("n_gpu_layers = -1", "n_gpu_layers"),
        ("n_threads = 0", "n_threads"),
        ("n_threads = true", "n_threads"),
        ("n_ctx = 4096.0", "n_ctx"),
        ('theme = "drak"', "theme"),
        ("text_scale = 0.1", "text_scale"),
        ("text_scale = true", "text_scale"),
        ("text_scale = nan", "text_scale"),
        ("store_budget_bytes = -5", "store_budget_bytes"),
        ('window_geometry = "not base64!"', "window_geometry"),
        ("last_conversation_id = 0", "last_conversation_id"),
        ("templates = 'chatml'", "templates"),
        ("templates = {'/m.gguf' = 1}", "templates"),
        ("sampling = 1", "sampling"),
        ("sampling.temperature = -1.0", "sampling.temperature"),
        ('sampling.temperature = "hot"', "sampling.temperature"),
        ("sampling.temperature = nan", "sampling.temperature"),
        ("sampling.top_k = 1.5", "sampling.top_k"),
        ("sampling.max_tokens = true", "sampling.max_tokens"),
        ("sampling.seed = 4294967295", "sampling.seed"),
        ("sampling.mirostat = 3", "sampling.mirostat"),
        ("sampling.stop = ['']", "sampling.stop"),
        ("sampling.stop = 'END'", "sampling.stop"),
        ("sampling.logit_bias = [[1, 2, 3]]", "sampling.logit_bias"),
        ("sampling.ignore_eos = 1", "sampling.ignore_eos"),
        ("sampling.grammar = ''", "sampling.grammar"),
    ],
)
def test_a_bad_value_is_named_in_one_line_and_costs_only_itself(path: Path, line: str, name: str) -> None:
    path.write_text(f"{line}\nsampling.min_p = 0.25\n" if "sampling =" not in line else line)
    loaded = load_settings(path)
    [problem] = loaded.problems
    assert f" {name} " in problem
    assert "\n" not in problem
    expected: dict[str, Any] = {} if "sampling =" in line else {"sampling": SamplingParams(min_p=0.25)}
    assert loaded.settings == Settings(**expected)


def test_every_bad_value_is_named(path: Path) -> None:
    path.write_text('theme = 1\nn_ctx = "big"\n[sampling]\ntop_p = 7\nmin_p = 7\n')
    names = [problem.split()[1] for problem in load_settings(path).problems]
    assert names == ["n_ctx", "theme", "sampling.top_p", "sampling.min_p"]


def test_a_grammar_and_a_schema_at_once_are_both_left_out(path: Path) -> None:
    path.write_text("[sampling]\ngrammar = 'root ::= \"a\"'\njson_schema = '{}'\ntop_k = 3\n")
    loaded = load_settings(path)
    assert [problem.split()[1] for problem in loaded.problems] == ["sampling.json_schema"]
    assert loaded.settings.sampling == SamplingParams(top_k=3)


def test_a_whole_number_will_do_where_a_fraction_is_meant(path: Path) -> None:
    path.write_text("[sampling]\ntemperature = 1\n")
    assert load_settings(path).settings.sampling == SamplingParams(temperature=1.0)


@pytest.mark.parametrize("content", [b"theme = ", b"\xff\xfe\x00", b"just words\n"])
def test_a_file_that_is_not_toml_is_said_and_kept_aside_on_save(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    loaded = load_settings(path)
    assert loaded.settings == Settings()
    assert len(loaded.problems) == 1
    assert path.read_bytes() == content
    save_settings(path, Settings(theme="dark"))
    assert load_settings(path).settings.theme == "dark"
    assert path.with_name("settings.toml.unreadable").read_bytes() == content


def test_a_folder_in_the_files_place_is_said_and_saving_to_it_refused(path: Path) -> None:
    path.mkdir()
    [problem] = load_settings(path).problems
    assert str(path) in problem
    with pytest.raises(SettingsNotSaved, match="not saved"):
        save_settings(path, Settings())
    assert list(path.parent.iterdir()) == [path]


def test_a_save_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_settings(path, Settings(theme="dark"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SettingsNotSaved, match="No space left on device"):
        save_settings(path, Settings(theme="light"))
    assert load_settings(path).settings.theme == "dark"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no permission bits")
def test_the_file_is_readable_by_its_owner_only(path: Path) -> None:
    path.touch(mode=0o644)
    save_settings(path, Settings())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_path_that_is_not_unicode_does_not_cost_the_other_settings(path: Path) -> None:
    save_settings(path, Settings(last_model_path="/models/\udcff.gguf", theme="dark"))
    assert load_settings(path).settings.theme == "dark"


def test_the_model_used_last_comes_first_once_and_ten_are_remembered() -> None:
    settings = Settings()
    for number in [*range(12), 5]:
        settings = settings.with_model(f"/{number}.gguf")
    assert settings.last_model_path == "/5.gguf"
    assert settings.recent_model_paths == tuple(
        f"/{number}.gguf" for number in (5, 11, 10, 9, 8, 7, 6, 4, 3, 2)
    )
