# SPDX-License-Identifier: Apache-2.0
"""A classifier as a pipeline against a plain transformers loop with the same batch size, on the same documents.

Both run the same DeBERTa (6 layers, 384 wide, random weights) on all cores and write the documents with label and
score. The labels must be the same, and the scores within 0.0001. The rate is that of the whole process, start
included, and without what the same command takes for a few documents.
"""

from __future__ import annotations

import collections
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from corpus import DATA, corpus_folder
from harness import ROOT, Command, Measurement, compile_sources, interleave, options, scratch
from tables import Spread, print_table, print_target, ratios, write_results

RUN = Path(__file__).resolve().parent / "classifier_run.py"
PIPELINE, LOOP = "pipeline", "loop"
FEW = 8
"""Documents of the run whose time counts as the start."""
FILES = 2
BATCH = 64
LEAST = 1.5
FARTHEST = 1e-4


def main() -> None:
    """Measure both sides and compare what they wrote."""
    chosen = options(__doc__, repeats=3)
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise SystemExit("the loop is one of transformers: pip install 'thresher[transformers]'")
    compile_sources()
    documents = 64 if chosen.quick else 384
    source, few = _input(documents, chosen.quick), _input(FEW, chosen.quick)
    model = _model(source)
    commands = [
        _command(side, model, folder, size)
        for size, folder in (("", source), (" start", few))
        for side in (PIPELINE, LOOP)
    ]
    measured = interleave(commands, chosen.repeats)
    outputs = {command.label: command.output for command in commands}
    labels, scores = _compare(outputs[PIPELINE], outputs[LOOP], documents)
    _report(measured, documents)
    print_target("documents with the same label", "all", labels, labels == documents)
    print_target(
        f"largest difference of scores, times {1 / FARTHEST:.0f}", "at most 1", scores / FARTHEST, scores <= FARTHEST
    )


def _command(side: str, model: Path, source: Path, size: str) -> Command:
    output = scratch(f"classifier-{side}{size.strip()}-{os.getpid()}")
    env = {"PYTHONPATH": str(ROOT / "src")}
    return Command(f"{side}{size}", [sys.executable, RUN, side, model, source, output, str(BATCH)], output, env)


def _input(documents: int, quick: bool) -> Path:
    """So many documents of the corpus, in files of about the same number; made when they are first asked for."""
    folder = DATA / f"classifier-{documents}"
    if not folder.is_dir():
        lines = itertools.chain.from_iterable(
            path.read_bytes().splitlines(keepends=True) for path in sorted(corpus_folder(quick).glob("*.jsonl"))
        )
        unfinished = folder.with_name(f"{folder.name}.unfinished-{os.getpid()}")
        unfinished.mkdir(parents=True)
        for number in range(min(FILES, documents)):
            part = itertools.islice(lines, documents // min(FILES, documents))
            (unfinished / f"{number}.jsonl").write_bytes(b"".join(part))
        unfinished.rename(folder)
    return folder


def _model(source: Path) -> Path:
    folder = DATA / f"classifier-model-{source.name}"
    if not folder.is_dir():
        subprocess.run([sys.executable, RUN, "model", folder, source], check=True)
    return folder


def _compare(ours: Path | None, theirs: Path | None, documents: int) -> tuple[int, float]:
    """Return how many documents have the same label on both sides, and the largest difference of scores."""
    assert ours is not None, "the pipeline writes"
    assert theirs is not None, "the loop writes"
    found, wanted = ({record["id"]: record for record in _records(folder)} for folder in (ours, theirs))
    if len(found) != documents or found.keys() != wanted.keys():
        raise SystemExit(f"{len(found)} documents were written by the pipeline, {len(wanted)} by the loop")
    same = sum(found[key]["quality_pred"] == wanted[key]["quality_pred"] for key in wanted)
    counts = collections.Counter(str(record["quality_pred"]) for record in wanted.values())
    print(f"  labels: {dict(counts)}")
    return same, max(abs(found[key]["score"] - wanted[key]["score"]) for key in wanted)


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]


def _report(measured: dict[str, list[Measurement]], documents: int) -> None:
    whole = {side: [documents / run.wall_s for run in measured[side]] for side in (PIPELINE, LOOP)}
    net = {side: [documents / (run.wall_s - start.wall_s) for run, start in _pairs(measured, side)] for side in whole}
    rows = [[side, Spread.of(whole[side]).show(1), Spread.of(net[side]).show(1)] for side in (PIPELINE, LOOP)]
    title = f"Documents a second, {documents} documents, batches of {BATCH}, median (min..max)"
    print_table(title, ["", "start included", "start taken off"], rows)
    faster = ratios(whole[PIPELINE], whole[LOOP])
    print_target("pipeline against loop, start included", f"at least {LEAST}", faster.median, faster.median >= LEAST)
    without = ratios(net[PIPELINE], net[LOOP])
    print(f"  start taken off: {without.show(2)} times as many documents a second")
    write_results(
        "classifier",
        {"documents": documents, "batch": BATCH, "ratio": faster, "ratio_without_start": without}
        | {side: {"whole": whole[side], "net": net[side]} for side in whole},
    )


def _pairs(measured: dict[str, list[Measurement]], side: str) -> list[tuple[Measurement, Measurement]]:
    return list(zip(measured[side], measured[f"{side} start"], strict=True))


if __name__ == "__main__":
    main()
