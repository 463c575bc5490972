# SPDX-License-Identifier: Apache-2.0
"""A machine that is short of memory or disk, stops processes, or has a clock that jumps."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Disturb
from tests.faults.disturbed import SOURCES


@pytest.mark.parametrize("shape", ["one-call", "own-workers"])
@pytest.mark.parametrize("how", ["memory-error", "memory-limit"])
def test_a_stage_that_fails_once_is_tried_again_and_nothing_is_lost(disturb: Disturb, how: str, shape: str) -> None:
    run = disturb(shape, MISBEHAVIOUR=how)
    run.options = ["--memory", "600MB"]
    ((code, said),) = run.finish()
    assert code == 0, said
    assert (run.folder / "markers" / how).exists(), "it went wrong"
    assert run.differences().is_clean(), run.tally


def test_a_result_that_cannot_travel_is_made_again(disturb: Disturb) -> None:
    run = disturb("own-workers", MISBEHAVIOUR="unpicklable")
    ((code, said),) = run.finish()
    assert code == 0, said
    assert (run.folder / "markers" / "unpicklable").exists(), "it went wrong"
    assert run.differences().is_clean(), run.tally


@pytest.mark.parametrize("shape", ["one-call", "own-workers"])
def test_a_stage_that_leaks_has_its_worker_replaced_and_nothing_is_lost(disturb: Disturb, shape: str) -> None:
    """The calls leave half a gigabyte behind, and the run may take 600 MB with all that it needs itself."""
    run = disturb(shape, MISBEHAVIOUR="leak", SLOW_S="0.05")
    run.options = ["--memory", "600MB"]
    ((code, said),) = run.finish()
    assert code == 0, said
    assert run.differences().is_clean(), run.tally


def test_a_worker_that_stands_still_for_a_while_goes_on(disturb: Disturb) -> None:
    run = disturb(SLOW_S="0.05")
    attempt = run.start()
    attempt.wait_for_files(2)
    stopped = attempt.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    attempt.wait_for_files(8)  # the other worker goes on
    os.kill(stopped, signal.SIGCONT)
    code, said = attempt.finish()
    assert code == 0, said
    assert run.differences().is_clean(), run.tally


def test_a_worker_that_stands_still_for_ever_is_replaced_where_the_stage_has_a_limit(disturb: Disturb) -> None:
    run = disturb("timed", MISBEHAVIOUR="stand-still")
    ((code, said),) = run.finish()
    assert code == 0, said
    assert (run.folder / "markers" / "stand-still").exists(), "one of them stood still"
    assert run.differences().is_clean(), run.tally


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_workers_that_stand_still_for_ever_do_not_outlive_their_driver(disturb: Disturb, end: signal.Signals) -> None:
    run = disturb(SLOW_S="0.05")
    attempt = run.start()
    attempt.wait_for_files(2)
    for worker in attempt.workers():
        os.kill(worker, signal.SIGSTOP)
    attempt.process.send_signal(end)
    attempt.finish()
    assert run.tally.processes == 0
    run.finish()
    assert run.differences().is_clean(), run.tally


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_request_to_stop_at_any_moment_ends_cleanly_and_the_command_goes_on(
    disturb: Disturb, number: signal.Signals
) -> None:
    run = disturb("own-workers", SLOW_S="0.05")
    chance = random.Random(int(number))
    for _ in range(3):
        attempt = run.start()
        if files := chance.randint(0, 3):
            attempt.wait_for_more_files(files)
        else:
            attempt.wait_for(attempt.zygote, "the first process")
        attempt.process.send_signal(number)
        code, said = attempt.finish()
        assert code in (0, 128 + number, -number), said
        assert "Traceback" not in said
        if (run.run_dir / "run.json").exists():  # before that there was no run that could be ended
            assert not (run.run_dir / "tmp").exists(), "a clean end leaves no temporary files"
    run.finish()
    assert run.differences().is_clean(), run.tally


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB, too small for the output."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or not shutil.which("mount") or not mount(folder, "-t", "tmpfs", "-o", "size=300k", "tmpfs"):
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def mount(folder: Path, *options: str) -> bool:
    return subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False).returncode == 0


def test_a_disk_that_is_full_ends_the_run_by_name_and_with_room_again_it_goes_on(disturb: Disturb, disk: Path) -> None:
    run = disturb(SLOW_S="0.02")
    run.output = disk / "out"
    code, said = run.start().finish()
    assert code == 1, said
    assert "No space left" in said or "full" in said
    assert str(disk) in said
    assert "Traceback" not in said
    assert mount(disk, "-o", "remount,size=20m")
    run.finish()
    assert run.differences().is_clean(), run.tally


def test_a_disk_that_gets_room_while_the_run_waits_between_attempts_ends_with_the_same_files(
    disturb: Disturb, disk: Path
) -> None:
    """The disk fills three times, each time at another file."""
    run = disturb("own-workers", SLOW_S="0.02")
    run.output = disk / "out"
    for size in ("350k", "400k", "450k"):
        run.start().finish()
        assert mount(disk, "-o", f"remount,size={size}")
    assert mount(disk, "-o", "remount,size=20m")
    run.finish()
    assert run.differences().is_clean(), run.tally


def test_an_output_that_becomes_read_only_ends_the_run_and_it_goes_on_when_it_can(disturb: Disturb) -> None:
    run = disturb(SLOW_S="0.05")
    attempt = run.start()
    attempt.wait_for_files(2)
    if os.geteuid() or not immutable(run.output, "+i"):
        pytest.skip("only root may make a folder immutable, and not on every file system")
    try:
        code, said = attempt.finish()
    finally:
        assert immutable(run.output, "-i")
    assert code == 1, said
    assert "permission denied" in said
    assert str(run.output) in said
    assert "Traceback" not in said
    run.finish()
    assert run.differences().is_clean(), run.tally


def immutable(folder: Path, how: str) -> bool:
    """Whether nobody, root included, may make names in a folder any more (`+i`), or may again (`-i`)."""
    return shutil.which("chattr") is not None and not subprocess.run(["chattr", how, folder], check=False).returncode


def test_an_output_that_was_never_writable_is_refused_by_name(disturb: Disturb, disk: Path) -> None:
    assert mount(disk, "-o", "remount,ro")
    run = disturb()
    run.output = disk / "out"
    code, said = run.start().finish()
    assert code in (1, 2, 4), said
    assert str(disk) in said
    assert "Traceback" not in said


def test_dropped_records_on_another_disk_are_whole_too_and_no_copy_is_left(disturb: Disturb) -> None:
    """Between two file systems nothing can be renamed: the file is copied beside its name first."""
    run = disturb(DIE_AT="before-copy-gets-its-name", DIE_AT_NTH="2", SLOW_S="0.02")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="disturbed-") as folder:
        run.dropped = Path(folder) / "dropped"
        run.finish()
        assert (run.folder / "markers" / "before-copy-gets-its-name-2").exists()
        assert not [path.name for path in run.dropped.iterdir() if path.name.startswith(".")]
        assert run.differences().is_clean(), run.tally


def test_a_clock_that_jumps_by_weeks_changes_nothing(disturb: Disturb) -> None:
    run = disturb("own-workers", CLOCK_JUMPS="1", SLOW_S="0.05")
    attempt = run.start()
    attempt.wait_for_files(3)
    attempt.kill()
    attempt.finish()
    *_, (_, said) = run.finish()
    assert "resuming: " in said
    assert run.differences().is_clean(), run.tally


def test_no_thread_of_arrow_reads_from_a_python_object_when_a_command_ends() -> None:
    """`pq.read_table` of such an object does that by default, and aborts about one process in thirty at its end."""
    assert [path.name for path in (SOURCES / "thresher").rglob("*.py") if "read_table(" in path.read_text()] == []


def test_only_leases_and_dates_for_people_look_at_the_wall_clock() -> None:
    """Everything that is decided by time uses the clock that never jumps; log lines and ages of files show dates."""
    users = {
        str(path.relative_to(SOURCES / "thresher"))
        for path in (SOURCES / "thresher").rglob("*.py")
        if any(word in path.read_text() for word in ("time.time", "datetime.now", "localtime", "utcnow"))
    }
    folder = {f"ledger/folder/{name}.py" for name in ("open_run", "opening", "request", "lock")}
    shown = {"dashboard/run_view.py", "observe/json_lines.py", "cli/printing.py"}
    told = {f"models/endpoint/{name}.py" for name in ("exchange", "store")}  # dates of servers, leases between machines
    assert users <= folder | shown | told, users


LIMITED = """
import resource, sys
from thresher.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("options", "limit", "code", "said"),
    [
        (["--executor", "serial"], 400_000, 1, "ulimit -f"),
        (["--workers", "1"], 400_000, 2, "ulimit -f"),
        (["--workers", "1"], 2**30, 0, ""),
    ],
)
def test_a_limit_of_file_sizes_is_told_by_name_and_without_it_the_run_goes_on(
    tmp_path: Path, options: list[str], limit: int, code: int, said: str
) -> None:
    lines = "".join(f'{{"text": "record {n} {"word " * 40}"}}\n' for n in range(4_000))
    (tmp_path / "in.jsonl").write_text(lines)
    (tmp_path / "recipe.yaml").write_text(
        "name: limited\nstages:\n  - JsonlReader: {file_paths: in.jsonl}\n  - JsonlWriter: {path: out}\n"
    )
    command = ["run", "recipe.yaml", *options]
    for largest, expected in ((limit, code), (-1, 0)):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(largest), *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (expected, False), done.stderr
        assert said in done.stderr or not expected
    assert "".join(path.read_text() for path in sorted((tmp_path / "out").glob("*.jsonl"))) == lines
