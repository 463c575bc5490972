# SPDX-License-Identifier: Apache-2.0
"""The examples and the page on writing a stage run as they stand."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
RECORDS = [
    {"id": 1, "text": "A quiet sentence about the sea."},
    {"id": 2, "text": "WHY IS EVERYBODY SHOUTING HERE"},
    {"id": 3, "text": "> quoted\n> lines  "},
    {"id": 4, "text": "word"},
    {"id": 5, "text": "long " * 400},
    {"id": 6},
]


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_in(folder: Path) -> list[str]:
    return [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with `data/records.jsonl`."""
    (tmp_path / "data").mkdir()
    text = "".join(json.dumps(record) + "\n" for record in RECORDS)
    (tmp_path / "data" / "records.jsonl").write_text(text)
    return tmp_path


def python_blocks(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))


def test_the_page_on_writing_a_stage_does_what_it_says(data: Path) -> None:
    (data / "page.py").write_text(python_blocks(TOP / "docs" / "writing-a-stage.md"))
    printed = run(["page.py"], data)
    assert "'ScoreFilter/WordCountFilter': 1" in printed
    assert "'ScoreFilter/CapitalsFilter': 1" in printed
    assert "{'in pandas/filtered': 4}" in printed
    original = [json.dumps(record) for record in RECORDS]
    assert lines_in(data / "quiet") == [original[0], original[2], original[4]]
    assert json.loads(lines_in(data / "unquoted")[2])["text"] == "quoted\nlines"
    assert lines_in(data / "unquoted")[:2] == original[:2], "what does not change keeps its bytes"
    assert [json.loads(line)["length"] for line in lines_in(data / "lengths")] == [31, 30, 18, 4]
    assert json.loads(lines_in(data / "titles")[2])["title"] == "> quoted"
    assert [json.loads(line)["id"] for line in lines_in(data / "pandas")] == [1, 3]


@pytest.mark.parametrize("example", sorted(path.name for path in (TOP / "examples").glob("*.py")))
def test_an_example_runs_over_the_demo_data(example: str, tmp_path: Path) -> None:
    printed = run([str(TOP / "examples" / example), str(TOP / "examples" / "demo" / "data"), "output"], tmp_path)
    assert "'read': 1254" in printed
    report = json.loads((tmp_path / "output" / "_thresher" / "report.json").read_text())
    counts = report["counts"]
    assert counts["written"] > 500
    assert counts["dropped"] > 100
    assert counts["quarantined"] == 8


def test_the_demo_recipe_drops_by_every_rule_and_sets_broken_lines_aside(tmp_path: Path) -> None:
    arguments = [
        "-m",
        "thresher",
        "run",
        str(TOP / "examples" / "demo" / "recipe.yaml"),
        f"input_path={TOP / 'examples' / 'demo' / 'data'}",
        "output_path=kept",
        "--json",
    ]
    report = json.loads(run(arguments, tmp_path))
    rules = {reason.rpartition("/")[2] for reason in report["drop_reasons"]}
    assert rules == {
        "WordCountFilter",
        "MeanWordLengthFilter",
        "NonAlphaNumericFilter",
        "RepeatedLinesFilter",
        "UrlsFilter",
    }
    assert report["counts"]["quarantined"] == 8
