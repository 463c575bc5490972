# SPDX-License-Identifier: Apache-2.0
"""How long a resumed run takes from the start of its process to its first task, when 99 % of its units are done.

The run is real: one file is cut into as many units as asked for, and all of them are run once. Before each measurement
the last hundredth is taken from the ledger, which is what a crash before they were recorded leaves.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT, SCRATCH, compile_sources, options, scratch
from machine_load import wait_for_quiet
from tables import Spread, print_table, print_target, write_results

UNITS = 100_000
LINE = b'{"n": "%09d", "text": "one short line"}\n'
TARGET_S = 3.0
RECIPE = """
name: resume
params: {input_path: ???, output_path: ???}
stages:
  - JsonlReader: {file_paths: "${input_path}", blocksize: %dB}
  - {_target_: resume_stage.Mark}
  - JsonlWriter: {path: "${output_path}"}
"""


def main() -> None:
    chosen = options(__doc__, repeats=5)
    units = UNITS // 10 if chosen.quick else UNITS
    folder = SCRATCH / f"resume-{units}"
    if not (folder / "recipe.yaml").exists():
        _make_input(scratch(folder.name), units)
    compile_sources()
    _, whole_s = _run(folder)  # goes on where an interrupted benchmark left it
    print(f"  a run of {units:,} units is there after {whole_s:.0f} s", flush=True)
    measured = []
    for number in range(chosen.repeats):
        left = _forget_the_last(folder / "out" / "_thresher", units // 100)
        wait_for_quiet()
        first_s, whole_s = _run(folder)
        measured.append(first_s)
        print(f"  round {number + 1}/{chosen.repeats}: {left:,} units left, first task after {first_s:.2f} s, all done "
              f"after {whole_s:.2f} s", file=sys.stderr, flush=True)  # fmt: skip
    spread = Spread.of(measured)
    row = [f"{units:,}", f"{units - units // 100:,}", spread.show()]
    print_table("Resume, median (min..max)", ["units", "done", "first task after s"], [row])
    print_target("process start to first task, s", f"at most {TARGET_S:g}", spread.median, spread.median <= TARGET_S)
    write_results("resume", {"units": units, "first_task_s": measured})
    shutil.rmtree(folder)


def _make_input(folder: Path, units: int) -> None:
    (folder / "in").mkdir(parents=True)
    with (folder / "in" / "a.jsonl").open("wb") as file:
        file.writelines(LINE % number for number in range(units))
    (folder / "recipe.yaml").write_text(RECIPE % len(LINE % 0))


def _run(folder: Path) -> tuple[float, float]:
    """Give the command; seconds to its first task and to its end."""
    mark = folder / "mark"
    mark.unlink(missing_ok=True)
    command = [sys.executable, "-m", "thresher", "run", folder / "recipe.yaml", f"input_path={folder / 'in'}"]
    command += [f"output_path={folder / 'out'}", "--trust", "resume_stage", "--workers", "2", "--quiet"]
    own = {"PYTHONPATH": f"{ROOT / 'benchmarks'}{os.pathsep}{ROOT / 'src'}", "FIRST_TASK_MARK": str(mark)}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.time_ns()
    subprocess.run([str(part) for part in command], env={**environment, **own}, check=True)
    first_ns = mark.stat().st_mtime_ns if mark.exists() else time.time_ns()
    return (first_ns - begun) / 1e9, (time.time_ns() - begun) / 1e9


def _forget_the_last(run_dir: Path, units: int) -> int:
    """Take the last units from the ledger, and what a finished run has."""
    for name in ("manifest.jsonl", "report.json", "report.html", "metrics.json"):
        (run_dir / name).unlink(missing_ok=True)
    files = sorted((run_dir / "ledger").glob("*.jsonl"))
    lines = b"".join(path.read_bytes() for path in files).splitlines(keepends=True)
    for path in files[1:]:
        path.unlink()
    files[0].write_bytes(b"".join(lines[:-units]))
    return units


if __name__ == "__main__":
    main()
