# SPDX-License-Identifier: Apache-2.0
"""Recipes, run folders and data are untrusted: none of it is run, obeyed by a terminal, or taken without bounds."""

from __future__ import annotations

import ast
import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disturbed import INJECTED, SOURCES
from thresher import Task
from thresher.errors import RunFailedError
from thresher.runtime.payloads.payload import encode, read_spilled, spill

HOSTILE = Path(__file__).parents[3] / "shared" / "data" / "hostile"
needs_hostile = pytest.mark.skipif(not HOSTILE.is_dir(), reason="the collection of hostile files is not here")

EXECUTING = {"pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads"}
EXECUTING |= {"marshal.loads", "marshal.load", "shelve.open", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
EXECUTING |= {"torch.load", "joblib.load", "pandas.read_pickle", "pd.read_pickle", "eval", "exec"}
READS_PICKLES = {"runtime/payloads/payload.py", "runtime/processes/setup_pickle.py", "backends/engines/unit_call.py"}
"""What living processes of one run send each other. Batch mode puts it into files that only its own processes read."""

RECIPE = """
name: hostile
params: {input_path: ???, output_path: ???}
stages:
  - %s: {file_paths: "${input_path}"}
  - JsonlWriter: {path: "${output_path}"}
"""


def calls(path: Path) -> set[str]:
    """Dotted names of everything that a module calls, without what reads tensors and nothing else."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {ast.unparse(node.func) for node in nodes if "weights_only=True" not in ast.unparse(node)}


def test_only_messages_between_living_processes_are_unpickled() -> None:
    package = SOURCES / "thresher"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if calls(path) & EXECUTING}
    assert found <= READS_PICKLES


def test_arrays_and_tables_are_never_read_with_pickles_in_them() -> None:
    """NumPy reads no pickles unless it is told to."""
    for path in (SOURCES / "thresher").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            told = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "allow_pickle"]
            assert told in ([], ["False"]) or not ast.unparse(call.func).endswith(".load"), (path.name, call.lineno)


def test_no_code_is_compiled_into_a_folder_that_others_may_write() -> None:
    """Kernels are cached in one folder, which one module chooses: the user's own, and nobody else may write to it."""
    package = SOURCES / "thresher"
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if "NUMBA_CACHE_DIR" in text] == ["kernels/build/cache.py"]
    assert [name for name, text in texts.items() if "py_compile" in text or "compileall" in text] == []
    code = "from thresher.kernels.build import cache; cache.use_own_folder(); print(cache.folder())"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts = os.lstat(shown.stdout.strip())
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (os.getuid(), 0o700)


def test_a_pickle_that_batch_mode_left_in_a_file_is_read_only_as_this_run_wrote_it(tmp_path: Path) -> None:
    encoded = encode(Task(data=list(range(100))))
    payload = spill(encoded, str(tmp_path / "payload-1"))
    assert read_spilled(payload).data == list(range(100))
    (tmp_path / "payload-1").write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    with pytest.raises(RunFailedError, match="changed since this run wrote it"):
        read_spilled(payload)
    assert not (tmp_path / "executed").exists()


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def thresher(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command, as a user gives it."""
    path = f"{INJECTED}{os.pathsep}{SOURCES}"
    return subprocess.run(
        [sys.executable, "-m", "thresher", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
        timeout=100,
        check=False,
    )


def run(folder: Path, source: Path, reader: str = "JsonlReader", *more: str) -> subprocess.CompletedProcess[bytes]:
    """A copy by the given reader."""
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text(RECIPE % reader)
    places = (f"input_path={source}", f"output_path={folder / 'out'}")
    return thresher("run", folder / "recipe.yaml", *places, "--workers", "2", "--max-errors", "100%", *more)


def test_a_pickle_as_input_or_in_the_run_folder_is_never_loaded(tmp_path: Path) -> None:
    bomb = pickle.dumps(Bomb(tmp_path / "executed"))
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl").write_text('{"text": "one"}\n')
    (source / "b.jsonl").write_bytes(bomb)
    (source / "c.jsonl").write_text(json.dumps({"text": bomb.decode("latin-1")}) + "\n")
    first = run(tmp_path, source)
    assert first.returncode == 0, first.stderr
    run_dir = tmp_path / "out" / "_thresher"
    targets = [path for path in run_dir.rglob("*") if path.is_file()]
    assert len(targets) > 5
    for target in targets:
        whole = target.read_bytes()
        target.write_bytes(bomb)
        for command in (("report",), ("run", tmp_path / "recipe.yaml")):
            places = (f"input_path={source}", f"output_path={tmp_path / 'out'}") if command[0] == "run" else ()
            told = thresher(*command, *places, *(() if places else (run_dir,)), "--json")
            assert b"Traceback" not in told.stderr, (target, told.stderr.decode())
        target.write_bytes(whole)
    assert not (tmp_path / "executed").exists()


@needs_hostile
@pytest.mark.parametrize("reader", ["JsonlReader", "ParquetReader"])
def test_every_hostile_file_through_every_reader_is_an_error_or_set_aside_in_bounded_memory(
    tmp_path: Path, reader: str
) -> None:
    """All at once, then those of which nothing could be read, one by one."""
    (tmp_path / "in").mkdir()
    suffix = ".jsonl" if reader == "JsonlReader" else ".parquet"
    for path in HOSTILE.iterdir():
        # Every file is offered to every reader, under a name that it takes.
        name = path.name if suffix in path.name else f"{path.name}{suffix}"
        (tmp_path / "in" / name).symlink_to(path)
    told = run(tmp_path, tmp_path / "in", reader, "--memory", "600MB", "--json")
    assert b"Traceback" not in told.stderr, told.stderr.decode()
    assert told.returncode == 0, told.stderr.decode()
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert report["peak_memory_bytes"] < 600_000_000
    assert report["counts"]["quarantined"] > 5
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"in", "out", "recipe.yaml"}, "nothing is written outside the output"


EVIL = "\x1b]0;owned\x07\x1b[31mred\x1b[0m [bold]markup[/bold] <script>alert(1)</script> \r\x9b2J"


def test_text_of_documents_cannot_command_a_terminal_or_a_page(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "evil\x1b[31m.jsonl").write_text(json.dumps({"text": EVIL}) + f"\n{EVIL}\n")
    (tmp_path / "recipe.yaml").write_text(
        "name: evil\nparams: {input_path: ???, output_path: ???}\nstages:\n"
        '  - JsonlReader: {file_paths: "${input_path}"}\n  - {_target_: raising.Raising}\n'
        '  - JsonlWriter: {path: "${output_path}"}\n'
    )
    (tmp_path / "raising.py").write_text(
        "from thresher import ProcessingStage\nclass Raising(ProcessingStage):\n"
        "    def process(self, batch):\n        raise ValueError(batch.values('text')[0])\n"
    )
    path = f"{tmp_path}{os.pathsep}{SOURCES}"
    places = (f"input_path={source}", f"output_path={tmp_path / 'out'}", "--trust", "raising")
    told = [thresher("run", tmp_path / "recipe.yaml", *places, PYTHONPATH=path)]
    told += [thresher(command, tmp_path / "out", PYTHONPATH=path) for command in ("report", "quarantine")]
    for one in told:
        said = one.stdout + one.stderr
        assert b"Traceback" not in said, said
        for command in (b"\x1b", b"\x07", b"\r", "\x9b".encode(), b"\x9b2J"):
            assert command not in said, said
    for page in (tmp_path / "out").rglob("*.html"):
        assert "<script>alert(1)" not in page.read_text()
