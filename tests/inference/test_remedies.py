"""What is suggested fits what is asked for."""

from inference.model_config import ModelConfig
from inference.remedies import remedies, safe_config


def test_the_safe_settings_use_no_gpu_and_a_small_context() -> None:
    assert safe_config(ModelConfig("m", n_threads=3)) == ModelConfig(
        "m", n_ctx=2048, n_gpu_layers=0, n_threads=3
    )
    assert safe_config(ModelConfig("m", n_ctx=512)) == ModelConfig("m", n_ctx=512, n_gpu_layers=0)


def test_nothing_is_safer_than_the_safe_settings() -> None:
    safe = safe_config(ModelConfig("m"))
    assert safe is not None
    assert safe_config(safe) is None


def test_only_what_is_in_use_can_be_lessened() -> None:
    assert remedies(8192, None).startswith("fewer GPU layers")
    assert "GPU" not in remedies(8192, 0)
    assert "GPU" not in remedies(8192, None, uses_gpu=False)
    assert "a smaller context (2,048 tokens)" in remedies(None, 0)
    assert "context" not in remedies(2048, 0)
    assert remedies(8192, 0, takes_memory=False) == "another model"


def test_what_is_said_to_people_names_no_key_of_a_file() -> None:
    assert "settings.toml" not in remedies(None, None)
