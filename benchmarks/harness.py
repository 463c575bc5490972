# SPDX-License-Identifier: Apache-2.0
"""Runs commands side by side and measures them: wall time, CPU time of the whole tree, memory over time.

A benchmark names its `Command`s and calls `interleave`: one round runs every command once, so that a slow minute of the
machine hits all of them alike, and ratios are taken round by round.
"""

from __future__ import annotations

import argparse
import compileall
import ctypes
import functools
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from machine_load import busy_cpu_s, wait_for_quiet
from memory_probe import MemorySample, descendants, sample_tree

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = Path(__file__).resolve().parent / ".data" / "scratch"
RECIPES = Path(__file__).resolve().parent / "recipes"
THRESHER = ROOT / ".venv" / "bin" / "thresher"

_MEMORY_INTERVAL_S = 0.1
_LEFTOVER_GRACE_S = 5.0
_DISTURBED_CORES = 0.3
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Command:
    """One thing to measure."""

    label: str  # how it is called in tables
    argv: Sequence[str | Path]  # program and arguments
    output: Path | None = None  # folder or file that is removed before every run
    env: Mapping[str, str] = field(default_factory=dict)  # added to this process's environment
    cwd: Path = ROOT  # where it runs
    first_result: Callable[[], bool] | None = None  # says whether its first result is there; polled while it runs
    hides_cpu: bool = False  # processes of it end without telling their CPU time, as Ray's do: it passes for others'


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost of one run of a command."""

    wall_s: float  # start of the process to its end
    cpu_s: float  # user and system time of the whole tree
    others_cores: float  # cores that other processes of the machine kept busy meanwhile; much of it spoils the figure
    first_result_s: float | None  # start of the process to its first result, where the command can tell
    memory: tuple[MemorySample, ...]  # ten a second where asked for, else empty
    stdout: str  # what it printed

    @property
    def machine_cpu_s(self) -> float:
        """CPU time of the whole machine meanwhile: the only way to see that of servers which outlive their command."""
        return self.cpu_s + self.others_cores * self.wall_s

    @property
    def peak_pss_bytes(self) -> int:
        """The largest sum of PSS over the tree; 0 where memory was not sampled."""
        return max((sample.pss_bytes for sample in self.memory), default=0)

    @property
    def peak_total_bytes(self) -> int:
        """The same with memfd pages that nobody maps."""
        return max((sample.total_bytes for sample in self.memory), default=0)


def options(description: str | None, repeats: int) -> argparse.Namespace:
    """The command line that every benchmark has: `--quick` and `--repeats`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little data, two rounds: does it work at all")
    parser.add_argument("--repeats", type=int, default=None, help=f"rounds (default {repeats}, with --quick 2)")
    chosen = parser.parse_args()
    chosen.repeats = chosen.repeats or (2 if chosen.quick else repeats)
    if chosen.quick:
        print("  quick: little data, so the targets, which are meant for the full size, are for orientation only")
    return chosen


def thresher_run(label: str, recipe: str, source: Path, output: Path, *flags: str) -> Command:
    """A run of one of our recipes, as a user types it, with two workers unless the flags say otherwise."""
    compile_sources()
    workers = () if "--workers" in flags else ("--workers", "2")
    argv: list[str | Path] = [
        THRESHER,
        "run",
        RECIPES / f"{recipe}.yaml",
        f"input_path={source}",
        f"output_path={output}",
        "--quiet",
    ]
    return Command(label, [*argv, *workers, *flags], output)


@functools.cache
def compile_sources() -> None:
    """Byte-compile the package, as an installation does; an editable one leaves it to the first run."""
    compileall.compile_dir(ROOT / "src", quiet=1)


def scratch(name: str) -> Path:
    """A path below the scratch folder; its parent exists, it does not."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    path = SCRATCH / name
    remove(path)
    return path


def warm_cache(folder: Path) -> None:
    """Read every file of a folder once, so that the first round does not pay for the disk."""
    for path in folder.iterdir():
        with path.open("rb") as reader:
            while reader.read(8_000_000):
                pass


def remove(path: Path) -> None:
    """Delete a file or folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def interleave(commands: Sequence[Command], repeats: int, memory: bool = False) -> dict[str, list[Measurement]]:
    """Run every command once a round, `repeats` rounds, and give the measurements by label."""
    measured: dict[str, list[Measurement]] = {command.label: [] for command in commands}
    for number in range(repeats):
        for command in commands:
            result = run_once(command, memory)
            measured[command.label].append(result)
            line = f"  round {number + 1}/{repeats}  {command.label}: {result.wall_s:.2f} s"
            print(f"{line}, others kept {result.others_cores:.1f} cores busy", file=sys.stderr, flush=True)
    _warn_of_disturbance([one for command in commands if not command.hides_cpu for one in measured[command.label]])
    return measured


def _warn_of_disturbance(runs: Sequence[Measurement]) -> None:
    """Say how many runs shared the machine. None is left out: choosing rounds afterwards would choose the result."""
    disturbed = sum(one.others_cores > _DISTURBED_CORES for one in runs)
    if disturbed:
        print(f"  CAUTION: {disturbed} of {len(runs)} runs shared the machine with other work (more than")
        print(
            f"  {_DISTURBED_CORES} cores): these figures settle nothing, measure again on a quiet machine", flush=True
        )


def run_once(command: Command, memory: bool = False) -> Measurement:
    """Run a command to its end, with all it left behind, and measure it. A failing command ends the benchmark."""
    if command.output is not None:
        remove(command.output)
    os.sync()  # what the last command left to the disk must not be paid by this one
    _adopt_orphans()
    signal.signal(signal.SIGTERM, _exit_on_signal)
    wait_for_quiet()
    cpu_before = _children_cpu_s()
    busy_before = busy_cpu_s()
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command.argv],
            stdout=stdout,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            cwd=command.cwd,
            env=_environment(command),
        )
        try:
            first_result_s, samples = _watch(process, command, started, memory)
            wall_s = time.perf_counter() - started
            busy_s = busy_cpu_s() - busy_before
        finally:
            _end_leftovers()  # also when the benchmark itself is interrupted: a cluster must not outlive it
        if process.returncode != 0:
            stderr.seek(0)
            tail = "".join(stderr.readlines()[-30:])
            raise SystemExit(f"{command.label}: exit code {process.returncode} of {command.argv}\n{tail}")
        stdout.seek(0)
        printed = stdout.read()
    cpu_s = _children_cpu_s() - cpu_before
    return Measurement(wall_s, cpu_s, max(0.0, busy_s - cpu_s) / wall_s, first_result_s, tuple(samples), printed)


def _environment(command: Command) -> dict[str, str]:
    """Return the environment of the command, without what would distort the measurement: a setting against byte code
    would make every start compile again, and compiling in the background would disturb the others."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "THRESHER_BACKGROUND_COMPILE": "0", **command.env}


def _watch(
    process: subprocess.Popen[bytes], command: Command, started: float, memory: bool
) -> tuple[float | None, list[MemorySample]]:
    """Wait for the end of a process; meanwhile note when its first result came, and its memory."""
    first_result_s: float | None = None
    samples: list[MemorySample] = []
    next_sample = started
    while True:
        waiting_for_result = command.first_result is not None and first_result_s is None
        if waiting_for_result and command.first_result is not None and command.first_result():
            first_result_s = time.perf_counter() - started
        if memory and time.perf_counter() >= next_sample:
            next_sample += _MEMORY_INTERVAL_S
            samples.append(sample_tree(descendants(os.getpid()), time.perf_counter() - started))
        try:
            # Without anything to poll the wait is a blocking one, which costs the measured command no CPU.
            process.wait(0.002 if waiting_for_result else _MEMORY_INTERVAL_S / 2 if memory else None)
        except subprocess.TimeoutExpired:
            continue
        if (
            waiting_for_result
            and first_result_s is None
            and command.first_result is not None
            and command.first_result()
        ):
            first_result_s = time.perf_counter() - started
        return first_result_s, samples


def _adopt_orphans() -> None:
    """Become the parent of daemons that a command leaves behind, so that they are counted, and ended by their id."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed; the benchmarks need Linux")


def _exit_on_signal(number: int, _frame: object) -> None:
    # `timeout` sends its signal twice; the second must not cut the cleaning short.
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end_leftovers() -> None:
    """Give what a command left behind some seconds to end, then end it; reap all of it, so that its CPU time counts."""
    deadline = time.monotonic() + _LEFTOVER_GRACE_S
    while left := [pid for pid in descendants(os.getpid()) if not _reap(pid)]:
        if time.monotonic() > deadline:
            for pid in left:
                _kill(pid)
        time.sleep(0.02)


def _reap(pid: int) -> bool:
    """Return True if the process has ended; a grandchild is reaped by its own parent and counts as still there."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
