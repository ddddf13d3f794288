"""Reported as nomic-ai/gpt4all PR #1742, netdur/llama_cpp_dart#96, gianlucamazza/xllama PR #186."""

from dataclasses import fields, replace

import pytest

from inference.kvcache.fingerprint import FINGERPRINT_BYTES, FingerprintFields, fingerprint

BASE = FingerprintFields(
    model_sha256="00" * 32,
    library_build="llama-cpp-python 0.3.36",
    type_k=1,
    type_v=1,
    flash_attention=True,
    n_swa=0,
    swa_full=False,
    rope_factors="none",
)
OTHER = {
    "model_sha256": "01" + "00" * 31,  # another quantisation, or a fine-tune of the same shape
    "library_build": "llama-cpp-python 0.3.37",
    "type_k": 8,
    "type_v": 8,
    "flash_attention": False,
    "n_swa": 512,
    "swa_full": True,
    "rope_factors": "long",
    "rope_freq_base": 10000.0,
    "rope_freq_scale": 0.5,
    "lora": ("00" * 32,),
    "layout_version": 2,
}


def test_the_list_of_differences_is_complete() -> None:
    assert OTHER.keys() == {field.name for field in fields(FingerprintFields)}


@pytest.mark.parametrize("name", OTHER)
def test_whatever_changes_the_meaning_of_kv_bytes_changes_the_fingerprint(name: str) -> None:
    assert fingerprint(replace(BASE, **{name: OTHER[name]})) != fingerprint(BASE)


def test_equal_fields_give_equal_fingerprints_in_every_process() -> None:
    # A literal, so that a random hash seed or a change of form cannot slip in.
    assert len(fingerprint(BASE)) == FINGERPRINT_BYTES
    assert fingerprint(BASE).hex() == fingerprint(replace(BASE)).hex()
    assert fingerprint(BASE).hex() == "e50a0b2fd349a52582a86dc92758485a77aaa09e11b6e462afb22f849c8ce280"
