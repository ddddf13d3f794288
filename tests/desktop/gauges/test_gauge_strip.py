from __future__ import annotations

from dataclasses import replace

import pytest
from pytestqt.qtbot import QtBot

from desktop.gauges.gauge_strip import GaugeStrip
from inference import EngineStats, ErrorCode, ModelConfig, ModelLoaded, ModelLoadProgress, Phase, WorkerExited
from tests.desktop.scripted_engine import KV, delta, failed, finished, model_info, phase, prefill

CONFIG = ModelConfig("/models/SmolLM2.gguf")


@pytest.fixture
def strip(qtbot: QtBot) -> GaugeStrip:
    strip = GaugeStrip()
    qtbot.addWidget(strip)
    return strip


def test_nothing_is_claimed_before_the_engine_has_said_it(strip: GaugeStrip) -> None:
    for gauge in (strip.phase, strip.decode_rate, strip.first_token, strip.kv, strip.store, strip.device):
        assert gauge.text() == ""
        assert gauge.isHidden()


def test_loading_is_shown_with_its_progress(strip: GaugeStrip) -> None:
    strip.show_event(ModelLoadProgress(CONFIG, 0.409))
    assert strip.phase.text() == "Loading SmolLM2 40 %"


def test_prefill_is_shown_with_its_progress(strip: GaugeStrip) -> None:
    strip.show_event(phase(Phase.PREFILL))
    assert strip.phase.text() == "Reading your message (prefill)"
    strip.show_event(prefill(62, 100))
    assert strip.phase.text() == "Reading your message (prefill) 62 %"


def test_a_prompt_with_nothing_to_read_is_fully_read(strip: GaugeStrip) -> None:
    strip.show_event(prefill(0, 0))
    assert strip.phase.text() == "Reading your message (prefill) 100 %"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (Phase.QUEUED, "Waiting for the model"),
        (Phase.LOADING, "Loading the model"),
        (Phase.RESTORING, "Restoring from disk"),
        (Phase.DECODE, "Writing (decode)"),
    ],
)
def test_each_phase_has_its_words(strip: GaugeStrip, name: Phase, words: str) -> None:
    strip.show_event(phase(name))
    assert strip.phase.text() == words


def test_the_phase_is_what_the_engine_does_once_a_reply_ends(strip: GaugeStrip) -> None:
    strip.show_event(ModelLoaded(model_info(CONFIG)))
    strip.show_event(phase(Phase.DECODE))
    strip.show_event(finished("hi"))
    assert strip.phase.text() == "Ready"
    strip.show_event(phase(Phase.PREFILL))
    strip.show_event(failed(ErrorCode.DECODE_FAILED, "no"))
    assert strip.phase.text() == "Ready"


def test_the_live_rate_leaves_the_first_token_out(strip: GaugeStrip) -> None:
    strip.show_event(delta("a", num_generation_tokens=1, decode_s=0.0))
    assert strip.decode_rate.text() == ""
    strip.show_event(delta("b", num_generation_tokens=11, decode_s=0.5))
    assert strip.decode_rate.text() == "decode 20.0 tok/s"


def test_the_live_rate_is_that_of_the_last_second(strip: GaugeStrip) -> None:
    for tokens, seconds in ((1, 0.0), (11, 1.0), (31, 2.0)):
        strip.show_event(delta("a", num_generation_tokens=tokens, decode_s=seconds))
    assert strip.decode_rate.text() == "decode 20.0 tok/s"


def test_after_the_reply_its_own_rate_stands(strip: GaugeStrip) -> None:
    strip.show_event(delta("b", num_generation_tokens=11, decode_s=0.5))
    strip.show_event(finished("hi", rate=41.2))
    assert strip.decode_rate.text() == "decode 41.2 tok/s"


def test_the_first_token_gauge_shows_the_workers_ttft(strip: GaugeStrip) -> None:
    strip.show_event(delta("a", ttft_s=0.12))
    assert strip.first_token.text() == "first token 0.12 s"


def test_memory_and_disk_are_the_figures_of_the_event(strip: GaugeStrip) -> None:
    strip.show_event(EngineStats(KV))
    assert strip.kv.text() == "KV 12 of 184 MB"
    assert strip.store.text() == "store 93 MB of 20 GB"


def test_what_the_store_wrote_and_read_is_told_on_hovering(strip: GaugeStrip) -> None:
    kv = replace(
        KV,
        bytes_written=12_000_000,
        bytes_read=3_000_000,
        bytes_written_today=250_000_000,
        bytes_written_total=41_000_000_000,
    )
    strip.show_event(EngineStats(kv))
    _, *lines = strip.store.toolTip().splitlines()
    assert lines == [
        "Written to disk: 250 MB today, 41 GB in all",
        "Since the engine started: 12 MB written, 3 MB read",
    ]


def test_the_device_is_what_was_read_back_after_the_load(strip: GaugeStrip) -> None:
    strip.show_event(ModelLoaded(model_info(CONFIG)))
    assert strip.device.text() == "CPU · 2 threads"
    on_gpu = model_info(CONFIG, layers_offloaded=30, device_name="Vulkan0", backend="Vulkan")
    strip.show_event(ModelLoaded(on_gpu))
    assert strip.device.text() == "30/31 layers on Vulkan0"


def test_a_dead_worker_holds_nothing_in_memory(strip: GaugeStrip) -> None:
    strip.show_event(ModelLoaded(model_info(CONFIG)))
    strip.show_event(EngineStats(KV))
    strip.show_event(WorkerExited("SIGSEGV", "the engine stopped"))
    assert strip.kv.text() == ""
    assert strip.device.text() == ""
    assert strip.store.text() == "store 93 MB of 20 GB"


def test_another_chat_does_not_show_the_figures_of_the_last_one(strip: GaugeStrip) -> None:
    strip.show_event(ModelLoaded(model_info(CONFIG)))
    strip.show_event(phase(Phase.DECODE))
    strip.show_event(delta("b", num_generation_tokens=11, decode_s=0.5))
    strip.forget_reply()
    assert strip.phase.text() == "Ready"
    assert strip.decode_rate.text() == ""
    assert strip.first_token.text() == ""
    assert strip.kv.text() != ""
