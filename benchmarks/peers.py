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
DATATROVE_DEDUP = Peer(
    "datatrove-dedup",
    "datatrove 0.10.1",
    (
        (
            "datatrove[io]==0.10.1",
            "orjson",
            "zstandard",
            "regex",
            "spacy==3.8.18",
            "nltk",
            "tokenizers",
            "xxhash==3.5.0",
        ),
    ),
)
# torch comes first: as a mere dependency its build for GPUs would come along.
NEMO = Peer("nemo", "NeMo Curator 1.4.0 on Xenna", (("torch==2.13.0",), ("nemo-curator[text_cpu]==1.4.0",)))
# Its rules alone, without torch: one by one they are plain Python.
NEMO_RULES = Peer(
    "nemo-rules",
    "NeMo Curator 1.4.0",
    (
        (
            *("pandas", "pyarrow", "fsspec", "loguru", "attrs", "regex", "jieba", "sentencepiece", "beautifulsoup4"),
            *("comment_parser", "transformers", "fasttext-community", "cosmos-xenna==0.2.0"),
        ),
        ("--no-deps", "nemo-curator==1.4.0"),
    ),
)
DATA_JUICER = Peer("data_juicer", "Data-Juicer 1.6.1", (("torch==2.13.0",), ("py-data-juicer==1.6.1", "aiohttp")))
TABLES = Peer("tables", "DuckDB and Polars", (("duckdb==2.0.0", "polars==2.1.0"),))
RENSA = Peer("rensa", "a loop over rensa 0.5.0", (("rensa==0.5.0", "orjson"),))
TEXT_DEDUP = Peer("text_dedup", "text-dedup 0.4.0", (("torch==2.13.0",), ("text-dedup==0.4.0",)))
ALL = (DATATROVE, DATATROVE_RULES, DATATROVE_DEDUP, NEMO, NEMO_RULES, DATA_JUICER, TABLES, RENSA, TEXT_DEDUP)


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


def data_juicer_operators(
    source: Path, output: Path, suffix: str = "", config_name: str = "data_juicer_operators"
) -> Command:
    """Data-Juicer with the operators of a file in peer_scripts, in two processes."""
    program, config = DATA_JUICER.python.with_name("dj-process"), SCRIPTS / f"{config_name}.yaml"
    argv: list[str | Path] = [DATA_JUICER.python, program, "--config", config, "--dataset_path", source]
    return Command(DATA_JUICER.title + suffix, [*argv, "--export_path", output / "kept.jsonl"], output)


def deduplications(method: str, source: Path, outputs: Callable[[str], Path]) -> list[tuple[Peer, Command]]:
    """The commands of all tools that can do exact or fuzzy deduplication on CPUs."""
    juicer = "data_juicer_exact" if method == "exact" else "data_juicer_minhash"
    script = "datatrove_exact.py" if method == "exact" else "datatrove_minhash.py"
    found = [
        (DATA_JUICER, data_juicer_operators(source, outputs("data-juicer"), config_name=juicer)),
        (DATATROVE_DEDUP, _script(DATATROVE_DEDUP, script, source, outputs("datatrove"), "2")),
    ]
    if method == "fuzzy":
        output = outputs("text-dedup")
        options = (
            f"--path json --split train --cache_dir {output}/cache --output {output}/kept --column text --num_proc 2"
        )
        bands = "--ngram 5 --num_perm 260 --b 20 --r 13 --min_length 0"
        files: list[str | Path] = ["--data_files", f"{source}/*.jsonl"]
        argv: list[str | Path] = [
            TEXT_DEDUP.python,
            "-m",
            "text_dedup.minhash",
            *options.split(),
            *bands.split(),
            *files,
        ]
        found.append((TEXT_DEDUP, Command(TEXT_DEDUP.title, argv, output)))
        found.append((RENSA, _script(RENSA, "rensa_loop.py", source, outputs("rensa"))))
    return found


def _script(peer: Peer, script: str, source: Path, output: Path, *more: str) -> Command:
    return Command(peer.title, [peer.python, SCRIPTS / script, source, output, *more], output)


def nemo_copy(source: Path, output: Path, first_result: Callable[[], bool] | None = None) -> Command:
    """NeMo Curator copying JSON lines on two CPUs."""
    argv: list[str | Path] = [NEMO.python, SCRIPTS / "nemo_copy.py", source, output]
    return Command(NEMO.title, argv, output, _nemo_environment(), first_result=first_result, hides_cpu=True)


def nemo_megatron(source: Path, output: Path, tokenizer: Path) -> Command:
    """NeMo Curator encoding JSON lines for Megatron-Core on two CPUs; nothing is downloaded."""
    argv: list[str | Path] = [NEMO.python, SCRIPTS / "nemo_megatron.py", source, output, tokenizer]
    return Command(NEMO.title, argv, output, _nemo_environment() | {"HF_HUB_OFFLINE": "1"}, hides_cpu=True)


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
