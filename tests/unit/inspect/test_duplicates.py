# SPDX-License-Identifier: Apache-2.0
"""`thresher dedup show` and `curve`: clusters with their differences, and the share of similar documents found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.stages.dedup.runs import run_over
from thresher import ExactDeduplication, FuzzyDeduplication
from thresher.cli.main import main
from thresher.inspect.duplicates import differences

LONG = " ".join(f"word{n}" for n in range(300))


def test_differences_are_marked_and_the_rest_is_shortened() -> None:
    other = LONG.replace("word100 ", "other words ").replace(" word299", "")
    assert differences(LONG, other) == (
        "… word94 word95 word96 word97 word98 word99 [-word100-]{+other words+} word101 word102 word103 word104 "
        "word105 word106 … word293 word294 word295 word296 word297 word298 [-word299-]"
    )
    assert differences(LONG, LONG) == "the texts are the same"
    assert differences(LONG, LONG.replace(" ", "\n")) == "the words are the same"


def test_show_prints_sizes_files_and_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [LONG, "other", LONG.replace("word100", "changed"), LONG, "other"]
    run_over([{"text": text} for text in texts], tmp_path, FuzzyDeduplication())
    assert main(["dedup", "show", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "3,0" not in printed
    assert "[-word100-]{+changed+}" in printed
    assert "the texts are the same" in printed
    assert "0.jsonl" in printed
    assert main(["dedup", "show", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == {"2": 1, "3": 1}
    assert found["files"] == [{"file": "0.jsonl", "kept_in": "0.jsonl", "duplicates": 3}]
    cluster = max(found["largest"], key=found["largest"].get)
    assert main(["dedup", "show", str(tmp_path / "out"), cluster]) == 0
    assert capsys.readouterr().out.count("cluster ") == 1


def test_show_says_that_there_are_no_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_over([{"text": "a"}], tmp_path, ExactDeduplication())
    assert main(["dedup", "show", str(tmp_path / "out")]) == 2
    assert "no duplicates" in capsys.readouterr().err
    assert main(["dedup", "show", str(tmp_path / "out"), "x=1"]) == 2
    assert main(["dedup", "show"]) == 2


def test_curve_draws_what_a_banding_finds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dedup", "curve", "mode=datatrove"]) == 0
    assert "14 bands of 8 values" in capsys.readouterr().out
    assert main(["dedup", "curve", "threshold=0.8"]) == 0
    assert "0.80   98.2%" in capsys.readouterr().out
    assert main(["dedup", "curve", "thresholds=0.8"]) == 2
