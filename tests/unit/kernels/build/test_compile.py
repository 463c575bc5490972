# SPDX-License-Identifier: Apache-2.0
"""Compiling once per machine, with a package of small modules in place of the kernels."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.kernels.compiled import SILENT
from thresher.kernels.build import background, cache, compile
from thresher.kernels.build.cache import (
    NATIVE_LOADING,
    QUICK_LOADING,
    has_kernels,
    is_ready,
    modules_with_kernels,
    with_needed,
)
from thresher.kernels.build.progress import SECONDS, Announcer, BuildProgress, estimate_s

NOTE = "import os\nwith open(os.environ['NOTE_IN'] + '/' + __name__.rpartition('.')[2], 'a') as file: file.write('x')\n"
KERNEL = "\n@njit(\n'signature')\ndef f(): ...\n"
MACHINERY = ("background", "progress", "builder", "cache", "compile")
"""Modules that the package of the tests takes over."""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the kernels `base`, `left` and `right`, of which two need the first. Imports are noted.

    The kernels are in its room `rules`.
    """
    package = tmp_path / "loops"
    (tmp_path / "notes").mkdir()
    folder = tmp_path / "cache" / "kernels-of-loops"
    folder.mkdir(parents=True)
    (package / "build").mkdir(parents=True)
    (package / "rules").mkdir()
    (package / "__init__.py").write_text("njit = lambda signature: lambda function: function\n")
    for name in MACHINERY:
        source = (Path(compile.__file__).parent / f"{name}.py").read_text()
        (package / "build" / f"{name}.py").write_text(source.replace("thresher.kernels", "loops"))
    with (package / "build" / "cache.py").open("a") as file:
        file.write(f"\n\ndef use_own_folder():\n    os.environ[VARIABLE] = {str(folder)!r}\n")
    (package / "build" / "decorators.py").write_text("def prepare_to_compile(): ...\n")
    (package / "build" / "loading_check.py").write_text("def check(modules): print(modules)\n")
    given = "from loops import njit\n" + NOTE
    (package / "rules" / "plain.py").write_text(NOTE)
    (package / "rules" / "base.py").write_text(given + KERNEL)
    (package / "rules" / "left.py").write_text("from loops.rules.base import f as g\n" + given + KERNEL)
    needs = "from loops.rules.base import f as g\nfrom loops.rules.plain import os\n"
    (package / "rules" / "right.py").write_text(needs + given + KERNEL)
    monkeypatch.setattr(cache, "KERNELS", str(package))
    monkeypatch.setattr(cache, "_IMPORT", re.compile(r"^from loops\.(\w+\.\w+) import", re.MULTILINE))
    monkeypatch.setattr(cache, "PACKAGE", "loops")
    monkeypatch.setattr(cache, "is_temporary", lambda: False)
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    monkeypatch.setenv("NOTE_IN", str(tmp_path / "notes"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def noted(modules: Path) -> dict[str, int]:
    """How often each module was imported."""
    return {file.name: len(file.read_text()) for file in (modules / "notes").iterdir()}


def test_what_is_needed_is_compiled_first_and_the_user_is_told(
    modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile.compile_missing(["rules.left", "rules.right"], Announcer())
    assert with_needed(["rules.left", "rules.right"]) == ["rules.base", "rules.left", "rules.plain", "rules.right"]
    assert noted(modules).keys() == {"base", "left", "right", "plain"}
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("thresher: compiling the text rules of this recipe for this machine, once (about ")
    assert told[-1].startswith("thresher: compiled in ")
    assert NATIVE_LOADING.works()


def test_a_second_start_compiles_nothing_and_says_nothing(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile.compile_missing(["rules.left"], SILENT)
    before = noted(modules)
    assert not compile.compile_missing(["rules.left"], Announcer())
    assert noted(modules) == before
    assert capsys.readouterr().err == ""


def test_two_starts_at_the_same_time_compile_once(modules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    starts = [threading.Thread(target=compile.compile_missing, args=(["rules.base"], Announcer())) for _ in range(4)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert noted(modules) == {"base": 1}
    told = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("thresher: compiling ") for line in told) == 1


def test_a_temporary_folder_is_told(
    modules: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "is_temporary", lambda: True)
    compile.compile_missing(["rules.base"], Announcer())
    assert "cannot be written to" in capsys.readouterr().err.splitlines()[0]


def test_a_module_that_cannot_be_compiled_is_named_with_its_error(modules: Path) -> None:
    (modules / "loops" / "rules" / "broken.py").write_text("raise ValueError('no such processor')" + KERNEL)
    with pytest.raises(compile.CannotCompile, match=r"not compiled: rules.broken(.|\n)*no such processor"):
        compile.compile_missing(["rules.broken"], SILENT)
    assert not is_ready("rules.broken")


def test_what_a_killed_start_has_not_tried_does_not_count_as_compiled(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(compiled: list[str]) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(compile, "try_loading", killed)
        with pytest.raises(KeyboardInterrupt):
            compile.compile_missing(["rules.left"], SILENT)
    assert not compile.are_ready(["rules.left"])
    compile.compile_missing(["rules.left"], SILENT)
    assert compile.are_ready(["rules.base", "rules.left"])


def test_a_trial_that_was_killed_says_nothing_about_a_way(modules: Path) -> None:
    compile.compile_missing(["rules.left"], SILENT)
    (modules / "loops" / "build" / "loading_check.py").write_text(
        "import os\ndef check(modules): os.kill(os.getpid(), 9)\n"
    )
    assert not compile.try_loading(["rules.left"])
    assert QUICK_LOADING.works()
    assert NATIVE_LOADING.works()


def test_a_way_that_crashes_is_not_used(modules: Path) -> None:
    compile.compile_missing(["rules.left"], SILENT)
    (modules / "loops" / "build" / "loading_check.py").write_text(
        "import os\ndef check(modules): os.kill(os.getpid(), 11)\n"
    )
    assert compile.try_loading(["rules.left"])
    assert not QUICK_LOADING.works()
    assert not NATIVE_LOADING.works()


def test_a_start_that_needs_nothing_more_does_not_wait_for_one_that_compiles(modules: Path) -> None:
    compile.compile_missing(["rules.base"], SILENT)
    with compile._build_lock(SILENT):
        assert not compile.compile_missing(["rules.base"], SILENT)


# -- in the background ------------------------------------------------------------------------------------------------


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests as a whole compile nothing in the background."""
    monkeypatch.delenv(background.CHOICE, raising=False)


@pytest.mark.usefixtures("wanted")
def test_what_nobody_asked_for_is_compiled_by_a_process_that_is_detached(modules: Path) -> None:
    (modules / "loops" / "rules" / "right.py").write_text(
        f"import os\nfrom loops import njit\nopen({str(modules / 'session')!r}, 'w').write(str(os.getsid(0)))\n"
        + KERNEL
    )
    with (modules / "loops" / "build" / "background.py").open("a") as file:
        file.write("\n\ndef _give_way(): ...\n")  # beside busy tests it would hardly get to run
    compile.compile_missing(["rules.left"], SILENT)
    assert background.start_in_background()
    wait_for(lambda: is_ready("rules.right"))
    assert int((modules / "session").read_text()) != os.getsid(0), "Ctrl-C and the end of a terminal do not reach it"
    assert not background.start_in_background(), "there is nothing left"


@pytest.mark.usefixtures("wanted")
def test_a_run_does_not_wait_for_what_is_compiled_in_the_background(modules: Path) -> None:
    gate = modules / "gate"
    os.mkfifo(gate)
    waits = f"from loops import njit\nopen({str(gate)!r}).read()\n"
    (modules / "loops" / "rules" / "slow.py").write_text(waits + KERNEL)
    code = "import sys; sys.path[:] = {!r}; from loops.build.background import _compile_rest; _compile_rest()"
    process = subprocess.Popen([sys.executable, "-c", code.format(sys.path)])
    with gate.open("w"):  # it is in the middle of a module
        compile.compile_missing(["rules.left"], SILENT)
        assert compile.are_ready(["rules.left"])
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not is_ready("rules.slow")


def test_what_is_compiled_in_the_background_yields_to_everything_else() -> None:
    code = (
        "import os; from thresher.kernels.build.background import _give_way; _give_way();"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE, open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "1000"]


def test_nothing_is_compiled_in_the_background_where_it_is_not_wanted(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(background.CHOICE, "0")
    assert not background.start_in_background()


def wait_for(condition: object) -> None:
    """Wait for something that another process does."""
    assert callable(condition)
    while not condition():
        time.sleep(0.02)


# -- what the user is told --------------------------------------------------------------------------------------------


def test_every_module_with_kernels_has_its_time_in_the_table_of_the_estimate() -> None:
    assert sorted(SECONDS) == sorted(filter(has_kernels, modules_with_kernels()))


def test_the_estimate_grows_with_the_work_and_shrinks_with_the_processes() -> None:
    few, many = ["counts.positions"], ["counts.positions", "counts.ngrams", "json.text", "counts.lines"]
    assert estimate_s(few, 2) < estimate_s(many, 2) < estimate_s(many, 1)
    assert estimate_s(many, 8) >= SECONDS["counts.ngrams"], "the longest one is not divided"


def test_a_bar_is_drawn_in_place_and_its_end_takes_it_away(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BuildProgress(["counts.positions", "counts.lines"], 1, Announcer("bar"))
    progress.begin("all")
    progress.tick()
    progress.done("counts.lines")
    progress.tick()
    progress.end()
    first, second, third, end = capsys.readouterr().err.split("\r\033[K")[1:]
    assert first.endswith(" s)\n")
    assert second.startswith("thresher: ░")
    assert "left" in second
    assert "%" in third
    assert "\n" not in second + third
    assert end == "thresher: compiled in 0 s\n"


def test_nothing_is_told_where_silence_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    progress = BuildProgress(["counts.positions"], 1, SILENT)
    progress.begin("all")
    progress.tick()
    progress.end()
    assert capsys.readouterr().err == ""
