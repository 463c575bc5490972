# SPDX-License-Identifier: Apache-2.0
"""The rule sets of datatrove and ours on the same documents: which decisions, reasons and trimmed texts differ.

datatrove is asked twice: with words between white space, as ours, where nothing may differ; and with its own, which
come from spaCy. Every set is asked alone.
"""

from __future__ import annotations

import json
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import peers
from corpus import corpus_folder
from harness import options, scratch
from tables import print_table, print_target, write_results

from thresher import (
    C4ParagraphFilter,
    C4QualityFilter,
    DocumentBatch,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
    ScoreFilter,
)

EVERY = 50
STAGES: dict[str, Any] = {
    "GopherRepetitionFilter": GopherRepetitionFilter(),
    "GopherQualityFilter": GopherQualityFilter(),
    "C4QualityFilter": C4QualityFilter(),
    "C4ParagraphFilter": ScoreFilter(C4ParagraphFilter()),
    "FineWebQualityFilter": FineWebQualityFilter(),
}


def main() -> None:
    chosen = options(__doc__, repeats=1)
    if not peers.available(peers.DATATROVE_RULES):
        return
    sample = scratch("rule-set-sample.jsonl")
    lines = [line for file in sorted(corpus_folder(chosen.quick).glob("*.jsonl")) for line in _every(file, EVERY)]
    sample.write_bytes(b"".join(lines))
    texts = [json.loads(line)["text"] for line in lines]
    ours = {name: _ours(stage, texts) for name, stage in STAGES.items()}
    rows, different = [], 0
    for kind in ("white-space", "spacy"):
        theirs = _theirs(sample, kind)
        for name in STAGES:
            row = _compared(ours[name], [said[name] for said in theirs])
            rows.append([kind, name, *map(str, row)])
            different += sum(row[2:]) if kind == "white-space" else 0
    header = [
        "datatrove's words",
        "set",
        "ours keeps",
        "it keeps",
        "kept by one alone",
        "other reason or text",
        "it raises",
    ]
    print_table(f"{len(texts)} documents", header, rows)
    print_target("differences with the same words", "0", different, different == 0)
    write_results("rule_set_parity", {"documents": len(texts), "rows": rows})


def _every(file: Path, step: int) -> list[bytes]:
    with file.open("rb") as lines:
        return list(islice(lines, 0, None, step))


def _ours(stage: Any, texts: list[str]) -> list[dict[str, str]]:
    """Return the decision of one of our stages on each text, in the form that the script of datatrove writes."""
    left = stage.process(DocumentBatch([{"place": place, "text": text} for place, text in enumerate(texts)]))
    said: list[dict[str, str]] = [{} for _ in texts]
    for place, text in zip(left.values("place"), left.values("text"), strict=True):
        said[place] = {"text": text}
    for dropped in left._dropped:
        for place in dropped.batch.values("place"):
            said[place] = {"reason": dropped.rule}
    return said


def _theirs(sample: Path, kind: str) -> list[dict[str, Any]]:
    output = scratch(f"rule-set-decisions-{kind}.jsonl")
    script = peers.SCRIPTS / "datatrove_decisions.py"
    subprocess.run([peers.DATATROVE_RULES.python, script, sample, output, kind], check=True)
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


def _compared(ours: list[dict[str, str]], theirs: list[dict[str, str]]) -> tuple[int, int, int, int, int]:
    """Kept by ours, kept by theirs, kept by one alone, kept or dropped by both in another way, raised there."""
    raised = sum("raised" in their for their in theirs)
    pairs = [(our, their) for our, their in zip(ours, theirs, strict=True) if "raised" not in their]
    alone = sum(("text" in our) != ("text" in their) for our, their in pairs)
    same_fate = [(our, their) for our, their in pairs if ("text" in our) == ("text" in their)]
    # A rule that is no set has one reason, under its own name.
    otherwise = sum(our != their and our.get("reason") != "C4ParagraphFilter" for our, their in same_fate)
    kept = (sum("text" in our for our, _ in pairs), sum("text" in their for _, their in pairs))
    return *kept, alone, otherwise, raised


if __name__ == "__main__":
    main()
