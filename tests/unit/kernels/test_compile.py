# SPDX-License-Identifier: Apache-2.0
"""Compiling once per machine, with a package of small modules in place of the kernels."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from thresher.kernels import cache, compile
from thresher.kernels.proven import QUICKLY, is_untried, note_tried, note_untried

NOTE = "import os\nwith open(os.environ['NOTE_IN'] + '/' + __name__.rpartition('.')[2], 'a') as file: file.write('x')\n"
KERNEL = "\n@njit(\n'signature')\ndef f(): ...\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the kernels `base`, `left` and `right`, of which two need the first. Imports are noted."""
    package = tmp_path / "loops"
    (tmp_path / "notes").mkdir()
    (tmp_path / "cache").mkdir()
    package.mkdir()
    (package / "__init__.py").write_text("njit = lambda signature: lambda function: function\n")
    (package / "compile.py").write_text(
        Path(compile.__file__).read_text().replace("thresher.kernels import", "loops import")
    )
    (package / "cache.py").write_text("")
    (package / "quick_load.py").write_text("")
    given = "from loops import njit\n" + NOTE
    (package / "plain.py").write_text(NOTE)
    (package / "base.py").write_text(given + KERNEL)
    (package / "left.py").write_text("from loops.base import f as g\n" + given + KERNEL)
    (package / "right.py").write_text("from loops.base import f as g\nfrom loops.plain import os\n" + given + KERNEL)
    (package / "broken.py").write_text("raise ValueError('no such processor')" + KERNEL)
    monkeypatch.setattr(compile, "_HERE", str(package))
    monkeypatch.setattr(compile, "_PACKAGE", "loops")
    monkeypatch.setattr(compile, "_IMPORT", compile.re.compile(r"^from loops\.(\w+) import", compile.re.MULTILINE))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("NOTE_IN", str(tmp_path / "notes"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def noted(modules: Path) -> dict[str, int]:
    """How often each module was imported."""
    return {file.name: len(file.read_text()) for file in (modules / "notes").iterdir()}


def test_what_is_needed_is_compiled_first_and_the_user_is_told(modules: Path) -> None:
    told: list[str] = []
    compile.compile_missing(["left", "right"], told.append)
    assert compile._with_needed(["left", "right"]) == ["base", "left", "plain", "right"]
    assert noted(modules).keys() == {"base", "left", "right", "plain"}
    assert told[0].startswith("compiling the text kernels for this machine, once (about ")
    assert told[1].startswith("the text kernels are compiled (")


def test_a_second_start_compiles_nothing_and_says_nothing(modules: Path) -> None:
    compile.compile_missing(["left"], lambda line: None)
    before, told = noted(modules), list[str]()
    compile.compile_missing(["left"], told.append)
    assert noted(modules) == before
    assert not told


def test_two_starts_at_the_same_time_compile_once(modules: Path) -> None:
    told: list[str] = []
    starts = [threading.Thread(target=compile.compile_missing, args=(["base"], told.append)) for _ in range(4)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert noted(modules) == {"base": 1}
    assert sum(line.startswith("compiling") for line in told) == 1


def test_a_temporary_folder_is_told(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(cache, "is_temporary", lambda: True)
    compile.compile_missing(["base"], told.append)
    assert "cannot be written to" in told[0]


def test_a_module_that_cannot_be_compiled_is_named_with_its_error(modules: Path) -> None:
    with pytest.raises(compile.CannotCompile, match=r"loops\.broken could not be compiled:(.|\n)*no such processor"):
        compile.compile_missing(["broken"], lambda line: None)


def test_what_a_killed_start_has_compiled_is_tried_by_the_next_one(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(compiled: list[str]) -> None:
        raise KeyboardInterrupt

    tried: list[list[str]] = []
    with monkeypatch.context() as patched:
        patched.setattr(compile, "_prove_loading", killed)
        with pytest.raises(KeyboardInterrupt):
            compile.compile_missing(["left"], lambda line: None)
    assert compile.are_ready(["left"])
    assert is_untried()
    monkeypatch.setattr(compile, "_prove_loading", tried.append)
    compile.compile_missing(["left"], lambda line: None)
    compile.compile_missing(["left"], lambda line: None)
    assert tried == [["base", "left"]], "once, and all that is there"
    assert not is_untried()


def test_while_something_is_compiled_nothing_counts_as_proven(modules: Path) -> None:
    QUICKLY.note(went_well=True)
    note_untried()
    assert not QUICKLY.is_proven()
    note_tried()
    assert QUICKLY.is_proven()


def test_a_start_that_needs_nothing_more_does_not_wait_for_one_that_compiles(modules: Path) -> None:
    compile.compile_missing(["base"], lambda line: None)
    note_untried()
    with compile._alone(lambda line: None):
        compile.compile_missing(["base"], lambda line: None)
        assert is_untried(), "whoever compiles tries it"
