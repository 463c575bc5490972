# SPDX-License-Identifier: Apache-2.0
"""Runs that are disturbed, and what must be true of them in the end.

A `Scene` makes the input and runs it once undisturbed. A `Disturbed` run has its own output; after whatever happened to
it the same command is given again until it ends with 0, and `differences` compares what it left with what the
undisturbed run left: records, files, counts, temporary files, processes, shared memory.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil

import thresher

PATIENCE_S = 100.0
"""How long something may take that must happen; a limit for a hang, not a measure of speed."""
INJECTED = Path(__file__).parent / "injected"
SOURCES = Path(thresher.__file__).parents[1]
RECIPE = """
name: disturbed
params: {{input_path: ???, output_path: ???}}
stages:
  - JsonlReader: {{file_paths: "${{input_path}}", blocksize: 20kB}}
  - WordCountFilter: {{min_words: 6}}
  - {{_target_: fragile.Touched{stage}}}
  - JsonlWriter: {{path: "${{output_path}}"{writer}}}
"""
SHAPES = {
    "one-call": RECIPE.format(stage="", writer=""),
    "own-workers": RECIPE.format(stage=", num_workers: 1", writer=", target_file_size: 50kB, compression: gz"),
    "timed": RECIPE.format(stage=", timeout_s: 1", writer=""),
    "two-files": RECIPE.format(stage="", writer="").replace(
        'JsonlWriter: {path: "${output_path}"}', '{_target_: several_files.Pairs, path: "${output_path}"}'
    ),
    "tokens": RECIPE.format(stage="", writer="").replace(
        'JsonlWriter: {path: "${output_path}"}',
        'MegatronTokenizerWriter: {path: "${output_path}", model_identifier: "${input_path}/_tokenizer.json"}',
    ),
    "phases": RECIPE.format(stage="", writer="").replace(
        "  - JsonlWriter",
        "  - GlobalShuffle: {seed: 1, blocksize: 20kB}\n  - {_target_: fragile.Touched}\n"
        "  - GlobalSort: {by: n, blocksize: 20kB}\n  - JsonlWriter",
    ),
    "deduplication": RECIPE.format(stage="", writer="").replace(
        "  - JsonlWriter",
        "  - FuzzyDeduplication: {word_ngrams: 2, threshold: 0.7, verify: true}\n  - {_target_: fragile.Touched}\n"
        "  - ExactDeduplication: {keep: longest}\n  - JsonlWriter",
    ),
    "outlets": RECIPE.format(stage="", writer="")
    .replace("  - WordCountFilter", "  - Split: {outlet: half, share: 0.5}\n  - WordCountFilter")
    .replace("min_words: 6}", "min_words: 6, drops_to: short}")
    + """
outlets:
  half:
    - {_target_: fragile.Touched}
    - GlobalShuffle: {blocksize: 20kB}
    - {_target_: fragile.Touched}
    - JsonlWriter: {path: "${output_path}-half"}
  short:
    - {_target_: fragile.Touched}
    - JsonlWriter: {path: "${output_path}-short"}
""",
}
"""Recipes: reader to writer in one call of a shared worker; or a stage with a worker of its own, whose batches cross
shared memory, and output files that are joined from parts; or a stage whose calls have a limit; or a writer of two
files per unit, or the one of token ids; or three phases; or nine, of two deduplications; or two outlets, one of them
with two phases."""


@dataclass
class Tally:
    """What went wrong in disturbed runs; nothing may."""

    lost: int = 0
    """Records that are missing."""
    repeated: int = 0
    """Records that are there more often than they should be."""
    torn: int = 0
    """Files under their final name that are not whole, or that should not be there; looked at after every death."""
    stray: int = 0
    """Temporary files that are left at the end."""
    processes: int = 0
    """Processes that outlived their driver."""
    memory: int = 0
    """Named pieces of shared memory that are left."""
    other: int = 0
    """Everything else that differs: counts, quarantine, manifest, ledger."""

    def add(self, other: Tally) -> None:
        """Sum up."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def is_clean(self) -> bool:
        """Whether nothing went wrong."""
        return self == Tally()

    def __str__(self) -> str:
        return (
            f"lost {self.lost}, repeated {self.repeated}, torn files {self.torn}, stray files {self.stray}, "
            f"leaked processes {self.processes}, leaked memory {self.memory}, other differences {self.other}"
        )


class Scene:
    """An input, and the undisturbed run of each shape over it."""

    def __init__(self, folder: Path, records: int = 1500) -> None:
        self.folder = folder
        self.input = folder / "in"
        make_input(self.input, records)
        self._calm: dict[str, Disturbed] = {}

    def calm(self, shape: str) -> Disturbed:
        """The undisturbed run; made once."""
        if shape not in self._calm:
            run = Disturbed(self, shape, self.folder / f"calm-{shape}")
            code, errors = run.start().finish()
            assert code == 0, errors
            self._calm[shape] = run
        return self._calm[shape]

    def disturbed(self, folder: Path, shape: str, **environment: str) -> Disturbed:
        """A run that something will happen to."""
        self.calm(shape)
        return Disturbed(self, shape, folder, environment)

    def copy_input(self, folder: Path) -> Path:
        """The same input in another place, to be damaged; its files keep their times."""
        return Path(shutil.copytree(self.input, folder))


class Attempt:
    """A driver that runs."""

    def __init__(self, run: Disturbed, environment: Mapping[str, str]) -> None:
        self.run = run
        command = [sys.executable, "-m", "thresher", "run", str(run.recipe), f"input_path={run.input}"]
        command += [f"output_path={run.output}", "--dropped-to", str(run.dropped), "--workers", "2"]
        command += ["--trust", "fragile", "--trust", "several_files", *run.options]
        self._log = run.folder / f"log-{len(list(run.folder.glob('log-*')))}"
        with self._log.open("wb") as log:  # a file, not a pipe: what is left behind would keep a pipe open
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=dict(environment), start_new_session=True, cwd=run.folder
            )

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened, the driver does not stay."""
        self.kill()

    def alive(self) -> bool:
        """Whether the driver has not ended."""
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """Process ids of the workers that are there at this moment."""
        return [pid for pid, name in self._below() if name.startswith("thresher-w")]

    def zygote(self) -> list[int]:
        """Process id of the zygote, once it has its name."""
        return [pid for pid, name in self._below() if name == "thresher-zygote"]

    def _below(self) -> list[tuple[int, str]]:
        try:
            return [(child.pid, child.name()) for child in psutil.Process(self.process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:  # one of them ended while we looked
            return []

    def wait_for(self, happened: Callable[[], Any], what: str) -> bool:
        """Until something has happened; whether it did before the driver ended."""
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            if not self.alive():
                return False
            assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}"
            time.sleep(0.01)
        return True

    def wait_for_files(self, at_least: int) -> None:
        """Until so many units have been put under their names."""
        assert self.wait_for(lambda: self.run.count_files() >= at_least, f"{at_least} files"), self.finish()

    def wait_for_more_files(self, more: int) -> None:
        """Until so many more than now, or until the end."""
        before = self.run.count_files()
        self.wait_for(lambda: self.run.count_files() >= before + more, f"{more} more files")

    def finish(self) -> tuple[int, str]:
        """Exit code and what was printed."""
        try:
            code = self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver did not end: {self._log.read_text()}") from None
        self.run.look_at_files()
        return code, self._log.read_text(errors="replace")

    def kill(self) -> None:
        """End the driver at once."""
        self.process.kill()
        self.process.wait()


class Disturbed:
    """A run with an output of its own."""

    def __init__(self, scene: Scene, shape: str, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True)
        for name in ("tmp", "markers"):
            (folder / name).mkdir()
        self.scene, self.shape, self.folder = scene, shape, folder
        self.input, self.output, self.dropped = scene.input, folder / "out", folder / "dropped"
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(SHAPES[shape])
        self.options: list[str] = []
        self.tally = Tally()
        self._disturbing = dict(environment or {})
        self._mark = uuid.uuid4().hex
        self._shared_memory = shared_memory()

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return self.output / "_thresher"

    def outputs(self) -> list[Path]:
        """Folders with files of units: the output, dropped records, outlets."""
        return [self.output, self.dropped, *(self.folder / f"out-{outlet}" for outlet in ("half", "short"))]

    def start(self, **environment: str) -> Attempt:
        """Give the command; the processes of this run are known by a mark in their environment."""
        own = {
            "PYTHONPATH": f"{INJECTED}{os.pathsep}{SOURCES}",
            "TMPDIR": str(self.folder / "tmp"),
            "MARKERS": str(self.folder / "markers"),
            "DISTURBED_RUN": self._mark,
        }
        return Attempt(self, {**os.environ, **own, **self._disturbing, **environment})

    def count_files(self) -> int:
        """Files that units have been put into by now: output files, parts that will be joined, files between phases
        and for outlets."""
        between = ("_thresher/parts/*", "_thresher/phases/*/*.phase", "_thresher/outlets/*/*-*")
        written = sum(len(visible(folder)) for folder in self.outputs() if folder != self.dropped)
        return written + sum(1 for folder in self.outputs() for files in between for _ in folder.glob(files))

    def calm_down(self) -> None:
        """From now on nothing is injected."""
        self._disturbing = {}

    def finish(self, attempts: int = 5) -> list[tuple[int, str]]:
        """Give the command until it ends with 0; exit codes and messages."""
        ends: list[tuple[int, str]] = []
        while not ends or ends[-1][0] != 0:
            assert len(ends) < attempts, f"{attempts} attempts did not finish the run: {ends}"
            ends.append(self.start().finish())
        return ends

    def look_at_files(self) -> None:
        """After the end of a driver, however it ended: every visible file is whole."""
        calm = self.scene._calm.get(self.shape)
        if calm is None or calm is self:
            return
        for mine, whole in zip(self.outputs(), calm.outputs(), strict=True):
            expected = digests(whole)
            self.tally.torn += sum(expected.get(name) != digest for name, digest in digests(mine).items())
        self.tally.processes += len(self.wait_until_gone())

    def wait_until_gone(self) -> list[int]:
        """Processes of this run that do not end although their driver has."""
        deadline = time.monotonic() + PATIENCE_S
        while left := self.left_processes():
            if time.monotonic() > deadline:
                return left
            time.sleep(0.01)
        return []

    def left_processes(self) -> list[int]:
        """All processes with the mark of this run."""
        mark = f"DISTURBED_RUN={self._mark}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    if mark in Path(entry.path, "environ").read_bytes() and not is_zombie(entry.path):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def differences(self) -> Tally:
        """What differs from the undisturbed run, after the end."""
        calm, tally = self.scene.calm(self.shape), self.tally
        for mine, whole in zip(self.outputs(), calm.outputs(), strict=True):
            expected, found = records_in(whole), records_in(mine)
            tally.lost += (expected - found).total()
            tally.repeated += (found - expected).total()
            tally.torn += digests(mine) != digests(whole)
        tally.stray += len(self.stray_files())
        tally.memory += len(shared_memory() - self._shared_memory)
        tally.other += sum(mine != whole for mine, whole in zip(self.accounts(), calm.accounts(), strict=True))
        return tally

    def stray_files(self) -> list[Path]:
        """Temporary files of ours, wherever they may lie."""
        left = list((self.folder / "tmp").iterdir())
        for folder in self.outputs():
            left += [path for path in folder.rglob("*") if "thresher-tmp" in path.name or path.name.startswith(".")]
            for inside in ("tmp", "parts", "phases", "ledger/inbox"):
                left += (folder / "_thresher" / inside).rglob("*")
            left += folder.glob("_thresher/outlets/*/*-*")
        return left

    def accounts(self) -> tuple[Any, ...]:
        """What the run folder says of the finished run: manifest, counts, quarantine, units and their records, and
        the clusters of a deduplication."""
        units = sorted(unit_in(line) for path in self._files("ledger") for line in path.read_bytes().splitlines())
        counts = json.loads((self.run_dir / "report.json").read_text())
        set_aside = [json.loads(line) for path in self._files("quarantine") for line in path.read_text().splitlines()]
        return (
            (self.run_dir / "manifest.jsonl").read_bytes(),
            counts["counts"],
            counts["drop_reasons"],
            sorted((entry["id"], entry["stage"], entry["error"]) for entry in set_aside),
            units,
            [path.read_bytes() for folder in self.outputs()[2:] for path in folder.glob("_thresher/manifest.jsonl")],
            [path.read_bytes() for path in self.run_dir.glob("clusters.parquet")],
        )

    def _files(self, folder: str) -> list[Path]:
        return sorted((self.run_dir / folder).glob("*.jsonl"))


def make_input(folder: Path, records: int) -> None:
    """Plain and compressed JSON lines, some of them broken, some too short for the rule."""
    folder.mkdir(parents=True)
    chance = random.Random(7)
    words = ("?", "grain", "chaff", "straw", "mill", "Mühle")
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "?"}
    tokenizer = {"version": "1.0", "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}
    (folder / "_tokenizer.json").write_text(json.dumps(tokenizer))  # readers skip this name
    for number in range(4):
        lines = []
        for record in range(records // 4):
            text = " ".join(chance.choice(words[1:]) for _ in range(chance.randint(1, 40)))
            lines.append(json.dumps({"n": f"{number}-{record}", "text": text}))
        lines[len(lines) // 2] = '{"n": "broken'
        content = ("\n".join(lines) + "\n").encode()
        if number < 3:
            (folder / f"part-{number}.jsonl").write_bytes(content)
        else:
            (folder / f"part-{number}.jsonl.gz").write_bytes(gzip.compress(content, mtime=0))


def visible(folder: Path) -> list[Path]:
    """Data files of an output folder; names with a dot or underscore in front are no data."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name[0] not in "._")


def digests(folder: Path) -> dict[str, str]:
    """Hashes of data files by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in visible(folder)}


def records_in(folder: Path) -> Counter[bytes]:
    """The records of an output folder, as often as they are there."""
    found: Counter[bytes] = Counter()
    for path in visible(folder):
        content = path.read_bytes()
        found.update((gzip.decompress(content) if path.suffix == ".gz" else content).splitlines())
    return found


def unit_in(line: bytes) -> str:
    """The unit that a line of the ledger is about; half a line is about none."""
    try:
        return str(json.loads(line)["unit"])
    except ValueError:
        return f"half a line: {line!r}"


def shared_memory() -> set[str]:
    """Named shared memory of ours; what has no name ends with its last process."""
    try:
        names = os.listdir("/dev/shm")
        own = [
            name for name in names if not name.startswith("thresher-node-")
        ]  # agents on Ray, of tests beside this one
        return {name for name in own if "thresher" in name or name.startswith("psm_")}
    except FileNotFoundError:
        return set()


def is_zombie(process: str) -> bool:
    """Whether a process of /proc has ended and waits for its parent to notice."""
    return Path(process, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
