# SPDX-License-Identifier: Apache-2.0
"""The same faults for Thresher, datatrove and NeMo Curator: what is lost, repeated or torn when the dust has settled.

Each tool copies the same JSON lines. A broken line is in the input; or a worker is killed; or the process that the user
started is killed with all it started. A command that did not end with 0 is given once more, as a user would. Then the
records of the output are compared with those of the input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import peers
import psutil
from harness import Command, options, remove, scratch, thresher_run
from tables import print_table, write_results

FILES = 8
PATIENCE_S = 60.0
BROKEN = b'{"id": "broken", "text": "no end\n'
MARK = "THRESHER_BENCH_RUN"
FAULTS = ("a broken line", "a worker is killed", "the driver is killed")
"""All are tried one after the other; the environment variable THRESHER_BENCH_FAULT chooses one."""
WORKER_WORDS = {"thresher": "thresher-w", peers.DATATROVE.title: "multiprocess", peers.NEMO.title: "ray::"}
"""By tool: what the name or command line of a process that works on data holds."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one fault."""

    exits: tuple[str, ...]  # how the command ended, first and again
    lost: int  # good records that are not in the output
    repeated: int  # records that are there more than once
    torn: int  # lines of the output that are no JSON

    def row(self) -> list[str]:
        return [", then ".join(self.exits), f"{self.lost:,}", f"{self.repeated:,}", f"{self.torn:,}"]


def main() -> None:
    chosen = options(__doc__, repeats=1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is ended
    records = 5_000 if chosen.quick else 20_000
    rows, results = [], {}
    for fault in FAULTS:
        if os.environ.get("THRESHER_BENCH_FAULT", fault) != fault:
            continue
        source = _make_input(scratch("faults-in"), records, with_broken=fault == "a broken line")
        for command in _commands(source):
            outcome = _disturb(command, fault, _ids(source))
            rows.append([fault, command.label, *outcome.row()])
            results[f"{fault}: {command.label}"] = outcome.row()
            print("  " + " | ".join(rows[-1]), flush=True)
    header = ["fault", "tool", "exit code", "records lost", "repeated", "torn lines"]
    print_table(f"{FILES} files of {records:,} records", header, rows)
    write_results("faults_of_peers", results)


def _commands(source: Path) -> list[Command]:
    commands = [thresher_run("thresher", "copy", source, scratch("faults-thresher"), "JsonlReader.blocksize=1MB")]
    if peers.available(peers.DATATROVE):
        commands.append(peers.datatrove_copy(source, scratch("faults-datatrove")))
    if peers.available(peers.NEMO):
        commands.append(peers.nemo_copy(source, scratch("faults-nemo")))
    return commands


def _make_input(folder: Path, records: int, with_broken: bool) -> Path:
    folder.mkdir()
    for file in range(FILES):
        lines = [json.dumps({"id": f"{file}-{n}", "text": "grain and chaff " * 60}).encode() for n in range(records)]
        if with_broken and file == FILES // 2:
            lines[records // 2] = BROKEN.rstrip(b"\n")
        (folder / f"{file}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    return folder


def _disturb(command: Command, fault: str, expected: Counter[str]) -> Outcome:
    assert command.output is not None
    remove(command.output)
    exits = [_run(command, fault)]
    if exits[0] != "0":
        exits.append(_run(command, "none"))
    found = _ids(command.output)
    torn = found.pop("torn", 0)
    lost, more = expected - found, found - expected
    return Outcome(tuple(exits), lost.total() - lost["torn"], more.total(), torn)


def _run(command: Command, fault: str) -> str:
    """One start; how it ended."""
    mark = uuid.uuid4().hex
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [str(part) for part in command.argv],
        cwd=command.cwd,
        env={**environment, **command.env, MARK: mark},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if fault.endswith("killed"):
            _wait_for_output(command, process)
            killed = _kill(command.label if "worker" in fault else "", mark)
            print(f"  {command.label}: killed {killed or 'NOBODY'}", flush=True)
            if not killed:
                return "over before anybody could be killed"
        return str(process.wait(timeout=PATIENCE_S))
    except subprocess.TimeoutExpired:
        return f"hangs ({PATIENCE_S:.0f} s)"
    finally:
        while left := _tree(mark):  # a cluster may start others while it ends
            _end(left)
            process.poll()
            time.sleep(0.05)


def _wait_for_output(command: Command, process: subprocess.Popen[bytes]) -> None:
    """Until the first bytes of output are there."""
    assert command.output is not None
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        if any(path.stat().st_size for path in command.output.glob("*.jsonl")):
            return
        time.sleep(0.005)


def _kill(tool: str, mark: str) -> list[str]:
    """SIGKILL of the worker that has worked most, or of the driver and all below it; the names of who was there."""
    tree = _tree(mark)
    if tool:
        word = WORKER_WORDS[tool]
        tree = [one for one in tree if word in one.name() or word in " ".join(one.cmdline())]
        tree = sorted(tree, key=lambda one: one.cpu_times().user)[-1:]
    names = [" ".join(one.cmdline())[:60] or one.name() for one in tree]
    _end(tree)
    return names


def _tree(mark: str) -> list[psutil.Process]:
    """All processes of a run, by a mark in their environment: a cluster leaves its parent and its session."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _end(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue


def _ids(folder: Path) -> Counter[str]:
    """How often each record is in a folder; lines that are no JSON are counted as `torn`."""
    found: Counter[str] = Counter()
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            try:
                found[json.loads(line)["id"]] += 1
            except ValueError:
                found["torn"] += 1
    return found


if __name__ == "__main__":
    main()
