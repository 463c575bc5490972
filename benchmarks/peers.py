# SPDX-License-Identifier: Apache-2.0
"""The tools that Thresher is measured against, each in a virtual environment of its own below benchmarks/.peers.

Usage: peers.py install     install what is missing (NeMo Curator with Ray and torch needs 2 GB and some minutes)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Command

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".peers"
SCRIPTS = HERE / "peer_scripts"


@dataclass(frozen=True, slots=True)
class Peer:
    """One tool to compare with."""

    name: str  # its folder below .peers
    title: str  # how tables call it
    installs: tuple[tuple[str, ...], ...]  # requirements, one pip call each, in this order

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return PEERS / self.name / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Exists once everything is installed."""
        return PEERS / self.name / ".installed"


DATATROVE = Peer("datatrove", "datatrove 0.10.1", (("datatrove[io]==0.10.1", "orjson", "zstandard"),))
# The rules of datatrove need spaCy for words; an environment of its own leaves that of the copy as it was measured.
DATATROVE_RULES = Peer(
    "datatrove-rules",
    "datatrove 0.10.1",
    (("datatrove[io]==0.10.1", "orjson", "zstandard", "regex", "spacy==3.8.18", "nltk", "tldextract"),),
)
# torch comes first: as a mere dependency its build for GPUs would come along.
NEMO = Peer("nemo", "NeMo Curator 1.4.0 on Xenna", (("torch==2.13.0",), ("nemo-curator[text_cpu]==1.4.0",)))
DATA_JUICER = Peer("data_juicer", "Data-Juicer 1.6.1", (("torch==2.13.0",), ("py-data-juicer==1.6.1", "aiohttp")))
TABLES = Peer("tables", "DuckDB and Polars", (("duckdb==2.0.0", "polars==2.1.0"),))
ALL = (DATATROVE, DATATROVE_RULES, NEMO, DATA_JUICER, TABLES)


def available(peer: Peer) -> bool:
    """Return True if a peer can be measured here; if not, print one line that says why."""
    if os.environ.get("THRESHER_BENCH_PEERS", "1") == "0":
        print(f"  {peer.title} is left out: THRESHER_BENCH_PEERS is 0", file=sys.stderr)
        return False
    if not peer.stamp.exists():
        print(f"  {peer.title} is left out: not installed (make peers installs it)", file=sys.stderr)
        return False
    return True


def datatrove_copy(source: Path, output: Path, workers: int = 2) -> Command:
    """datatrove copying JSON lines."""
    argv: list[str | Path] = [DATATROVE.python, SCRIPTS / "datatrove_copy.py", source, output, str(workers)]
    return Command(DATATROVE.title, argv, output)


def datatrove_rule_sets(source: Path, output: Path, suffix: str = "", workers: int = 2) -> Command:
    """datatrove filtering JSON lines by its Gopher, C4 and FineWeb sets."""
    argv: list[str | Path] = [DATATROVE_RULES.python, SCRIPTS / "datatrove_rule_sets.py", source, output, str(workers)]
    return Command(DATATROVE_RULES.title + suffix, argv, output)


def data_juicer_operators(source: Path, output: Path, suffix: str = "") -> Command:
    """Data-Juicer with the operators of peer_scripts/data_juicer_operators.yaml in two processes."""
    program, config = DATA_JUICER.python.with_name("dj-process"), SCRIPTS / "data_juicer_operators.yaml"
    argv: list[str | Path] = [DATA_JUICER.python, program, "--config", config, "--dataset_path", source]
    return Command(DATA_JUICER.title + suffix, [*argv, "--export_path", output / "kept.jsonl"], output)


def nemo_copy(source: Path, output: Path, first_result: Callable[[], bool] | None = None) -> Command:
    """NeMo Curator copying JSON lines on two CPUs."""
    argv: list[str | Path] = [NEMO.python, SCRIPTS / "nemo_copy.py", source, output]
    return Command(NEMO.title, argv, output, _nemo_environment(), first_result=first_result, hides_cpu=True)


def nemo_heuristics(source: Path, output: Path, suffix: str = "") -> Command:
    """NeMo Curator filtering JSON lines by the 22 English rules on two CPUs."""
    argv: list[str | Path] = [NEMO.python, SCRIPTS / "nemo_heuristics.py", source, output]
    return Command(NEMO.title + suffix, argv, output, _nemo_environment(), hides_cpu=True)


def nemo_noop(tasks: int) -> Command:
    """NeMo Curator passing tasks through three stages that do nothing."""
    return Command(
        NEMO.title, [NEMO.python, SCRIPTS / "nemo_noop.py", str(tasks)], env=_nemo_environment(), hides_cpu=True
    )


def _nemo_environment() -> dict[str, str]:
    # It calls `ray` by name.
    return {"PATH": f"{NEMO.python.parent}{os.pathsep}{os.environ['PATH']}"}


def install(peer: Peer) -> bool:
    """Make a peer's environment, unless it is complete; whether it is complete then."""
    if peer.stamp.exists():
        return True
    interpreter = _interpreter()
    if interpreter is None:
        print(f"{peer.title}: needs Python 3.11, and there is no python3.11 on the PATH", file=sys.stderr)
        return False
    print(f"installing {peer.title} into {PEERS / peer.name}", flush=True)
    calls: list[Sequence[str | Path]] = [[interpreter, "-m", "venv", PEERS / peer.name]]
    calls += [[peer.python, "-m", "pip", "install", "--quiet", *requirements] for requirements in peer.installs]
    for call in calls:
        if subprocess.run(call, check=False).returncode != 0:
            print(f"{peer.title}: this failed: {' '.join(str(part) for part in call)}", file=sys.stderr)
            return False
    peer.stamp.touch()
    return True


def _interpreter() -> str | None:
    """A Python 3.11, which every peer supports."""
    return sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")


def main() -> int:
    if sys.argv[1:] != ["install"]:
        print(__doc__)
        return 2
    PEERS.mkdir(exist_ok=True)
    complete = [install(peer) for peer in ALL]
    return 0 if all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())
