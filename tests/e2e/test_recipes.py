# SPDX-License-Identifier: Apache-2.0
"""The recipes that come with Thresher: each runs as it is over real text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thresher.cli.main import main
from thresher.core.recipes.recipe import built_in_recipes

SAMPLE = Path(__file__).parents[2] / "examples" / "demo" / "data"
EXPECTED = {
    "c4",
    "code",
    "english-heuristics",
    "fineweb",
    "fineweb-english",
    "gopher",
    "multilingual-heuristics",
    "quick-text",
}
OTHERS = {"tokenize-megatron"}
"""Recipes that are no cleaning; they have tests of their own."""
OF_QUALITY = {"judge-and-rewrite", "score-ensemble", "translate-and-judge"}
"""These need a model or scores: see `test_quality_recipes.py`."""


def test_the_recipes_that_people_start_from_are_there() -> None:
    assert set(built_in_recipes()) == EXPECTED | OTHERS | OF_QUALITY


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recipe_runs_by_its_name(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert main(["run", name, f"input_path={SAMPLE}", f"output_path={output}", "--quiet"]) == 0
    report = json.loads((output / "_thresher" / "report.json").read_text())
    counts = report["counts"]
    assert counts["read"] == counts["written"] + counts["dropped"] + counts["quarantined"]
    assert 0 < counts["written"] < counts["read"], "the sample holds text that the recipe keeps, and text that it drops"
    assert report["drop_reasons"]


@pytest.mark.parametrize("name", sorted(EXPECTED - {"quick-text"}))
def test_the_text_may_lie_in_another_field(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps({"content": "too short"}) + "\n")
    run = ["run", name, f"input_path={folder}", f"output_path={tmp_path / 'out'}", "text_field=content", "--quiet"]
    assert main(run) == 0
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert (report["counts"]["dropped"], report["counts"]["quarantined"]) == (1, 0)
