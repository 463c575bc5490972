# SPDX-License-Identifier: Apache-2.0
"""The recipes for quality, over real text and with a server on loopback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import Server, serving
from thresher.cli.main import main

WORDS = [1, 15, 45, 70, 110, 200]
"""Numbers of words; the server gives a point for each twenty."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    records = ({"n": n, "text": " ".join(["word"] * n), "edu": n / 200, "style": -n} for n in WORDS)
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return tmp_path


def run(folder: Path, name: str, **params: Any) -> None:
    given = {"input_path": folder / "in", "output_path": folder / "out", **params}
    assert main(["run", name, *(f"{key}={value}" for key, value in given.items()), "--quiet"]) == 0


def records_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def with_model(server: Server) -> dict[str, Any]:
    return {"base_url": server.url, "model": "stand-in"}


def test_high_quality_is_repeated_and_low_quality_is_rewritten_and_judged_again(data: Path) -> None:
    with serving(data) as server:
        run(data, "judge-and-rewrite", low_below=1, high_from=4, **with_model(server))
    kept = records_in(data / "out" / "kept")
    assert [(record["n"], record["quality"]) for record in kept] == [
        *((n, "medium") for n in (45, 70)),
        *((n, "high") for n in (110, 200)),
        *((n, "high") for n in (110, 200)),
    ]
    assert records_in(data / "out" / "rewritten") == []  # the stand-in rewrites to the same words
    report = json.loads((data / "out" / "rewritten" / "_thresher" / "report.json").read_text())
    assert report["counts"] == {**report["counts"], "read": 2, "dropped": 2}


def test_a_rewritten_text_that_is_good_enough_is_written_with_the_old_one(data: Path) -> None:
    with serving(data) as server:
        # What is rewritten has the same words here, so the second bar is lower than the first.
        run(data, "judge-and-rewrite", low_below=3, **with_model(server), **{"rewritten.QualityBuckets.edges": "[1]"})
    rewritten = records_in(data / "out" / "rewritten")
    assert [record["n"] for record in rewritten] == [45]
    assert rewritten[0]["original_text"] == rewritten[0]["text"]


def test_a_text_is_judged_by_its_translation_and_stays_as_it_is(data: Path) -> None:
    with serving(data) as server:
        run(data, "translate-and-judge", target_language="German", min_score=2, **with_model(server))
        assert "into German" in server.answered()[0]["prompt"]
    assert [record["n"] for record in records_in(data / "out")] == [45, 70, 110, 200]


def test_scores_of_other_scales_are_compared_by_their_percentiles(data: Path) -> None:
    params = {"medium_from": 60, "high_from": 80, "medium_weight": 1}
    run(data, "score-ensemble", first_score="edu", second_score="style", **params)
    found = sorted((record["n"], record["quality"]) for record in records_in(data / "out"))
    assert found == [(1, "high"), (1, "high"), (15, "medium"), (110, "medium"), (200, "high"), (200, "high")]
