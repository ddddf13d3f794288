"""Templates that run wild end with a reason; the process that runs them never outlives its parent."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from inference.template_process import TemplateProcess, TemplateRefused

ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
ENDLESS_WRITER = ENDLESS.replace("{% endfor %}", "more and more{% endfor %}", 1)


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    process = TemplateProcess(render_timeout_s=0.5, max_chars=100_000)
    yield process
    process.close()


def test_an_endless_template_is_stopped_and_the_next_one_runs(process: TemplateProcess) -> None:
    process.render("warm", [{}])
    first = process.pid
    assert first is not None
    with pytest.raises(TemplateRefused, match=r"0.5 seconds") as refused:
        process.render(ENDLESS, [{}])
    assert refused.value.kind == "time"
    assert not psutil.pid_exists(first)
    assert process.render("{{ x }}", [{"x": "on"}])[0].text == "on"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ENDLESS_WRITER, "size"),
        ("{% set x = 'x' * 10 ** 10 %}", "memory"),
        ("{{ 'x' * n }}", "size"),
        ("{{ raise_exception('no') }}", "render"),
        ("{% if %}", "syntax"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "render"),
    ],
)
def test_what_a_template_may_not_do_is_told_apart(process: TemplateProcess, source: str, kind: str) -> None:
    refusal = process.render(source, [{"n": 10**6}])[0].refusal
    assert refusal is not None
    assert refusal.kind == kind


def test_one_process_serves_one_template_after_another(process: TemplateProcess) -> None:
    pids = set()
    for number in range(40):
        assert process.render(f"{number}{{{{ x }}}}", [{"x": "a"}, {"x": "é\n"}])[1].text == f"{number}é\n"
        pids.add(process.pid)
    assert len(pids) == 1


def test_a_process_that_was_killed_is_replaced(process: TemplateProcess) -> None:
    process.render("", [{}])
    assert process.pid is not None
    psutil.Process(process.pid).kill()
    # The end may be seen only when an answer does not come.
    with contextlib.suppress(TemplateRefused):
        process.render("", [{}])
    assert process.render("on", [{}])[0].text == "on"


def test_it_ends_with_its_parent_even_in_the_middle_of_a_template() -> None:
    program = (
        "import threading, time\n"
        "from inference.template_process import TemplateProcess\n"
        "process = TemplateProcess(render_timeout_s=60)\n"
        "process.render('', [{}])\n"
        f"threading.Thread(target=process.render, args=({ENDLESS!r}, [{{}}]), daemon=True).start()\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert psutil.wait_procs([child], timeout=20)[0] == [child]


def test_a_template_reaches_no_file_and_no_module(process: TemplateProcess) -> None:
    for source in ("{% include '/etc/passwd' %}", "{{ cycler.__init__.__globals__ }}", "{{ [].append(1) }}"):
        assert process.render(source, [{}])[0].refusal is not None
