# SPDX-License-Identifier: Apache-2.0
"""Documents are cut and made visible, whatever they are, and what is read is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.cli.main import main
from thresher.dashboard.documents import MOST_CHARACTERS, MOST_KEPT, MOST_PER_RULE, Documents, shown, text_of
from thresher.dashboard.run_view import RunView, fewer
from thresher.dashboard.server import _is_finite, _plain

HIDDEN = "\u202e\u200b\u2066\ufeff\x00\x1b\x9b"


@given(st.text(), st.integers(0, 50))
def test_what_is_shown_is_cut_and_has_no_character_that_hides_or_reorders(text: str, most: int) -> None:
    found = shown(HIDDEN + text, most)
    assert not set(found) & set(HIDDEN)
    assert len(found) <= 6 * most + 1
    found.encode()


@given(st.binary())
def test_any_record_has_a_text(line: bytes) -> None:
    assert isinstance(text_of(line), str)


def test_the_text_of_a_record_is_its_text_field_or_its_longest_one() -> None:
    assert text_of(b'{"text": "a", "other": "longer"}') == "a"
    assert text_of(b'{"id": "the id is no text", "body": "b", "title": "title"}') == "title"
    assert text_of(b"[" * 100_000) != ""
    assert text_of(b"{}") == ""


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that dropped and kept many documents, some of them very large."""
    (tmp_path / "input").mkdir()
    texts = ["short"] * 40 + ["x " * 500_000] * 3 + ["kept " * 20] * 200
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "input" / "a.jsonl").write_text("\n".join([*lines, "no json"]) + "\n", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: many\nstages:\n  - JsonlReader: {{file_paths: {tmp_path}/input}}\n"
        "  - WordCountFilter: {min_words: 5, max_words: 1000}\n"
        f"  - JsonlWriter: {{path: {tmp_path}/output, compression: zstd}}\n",
        encoding="utf-8",
    )
    flags = ["--executor", "serial", "--quiet", "--dropped-to", str(tmp_path / "dropped"), "--keep-scores"]
    assert main(["run", str(recipe), *flags]) == 0
    return tmp_path / "output" / "_thresher"


def test_samples_are_few_and_short_and_come_from_packed_files_too(run_dir: Path) -> None:
    found = Documents(RunView(str(run_dir))).samples()
    assert len(found["dropped"]["WordCountFilter/WordCountFilter"]) == MOST_PER_RULE
    assert 0 < len(found["kept"]) <= MOST_KEPT
    assert found["kept"][0]["scores"] == {"WordCountFilter/WordCountFilter": 20}
    for sample in [*found["kept"], *found["dropped"]["WordCountFilter/WordCountFilter"]]:
        assert sum(len(part) for part, _ in sample["parts"]) <= MOST_CHARACTERS + 1
    assert len(json.dumps(found)) < 200_000


def test_errors_have_what_is_needed_to_find_them(run_dir: Path) -> None:
    (entry,) = Documents(RunView(str(run_dir))).errors()["entries"]
    assert (entry["stage"], entry["error"], entry["record"]) == ("JsonlReader", "not-json", "no json")


def test_a_run_folder_that_is_damaged_shows_a_problem_and_no_traceback(run_dir: Path) -> None:
    for name in ("plan.json", "report.json"):
        (run_dir / name).write_bytes(b"{")
    next((run_dir / "events").iterdir()).joinpath("timeline.jsonl").write_bytes(b"\xff\n{")
    view = RunView(str(run_dir))
    assert view.state()["status"] in ("finished", "stopped")
    assert view.timeline()["t"] == []
    assert Documents(view).scores()["rules"] == []
    for ledger in (run_dir / "ledger").glob("*.jsonl"):
        ledger.write_bytes(b"{\n")
    assert "problem" in Documents(view).samples() or Documents(view).samples()["dropped"] == {}


def test_few_places_keep_the_peaks_and_the_end() -> None:
    values = [0.0] * 10_000
    values[5_432] = 9.0
    places = fewer(len(values), lambda place: values[place], 100)
    assert len(places) <= 100
    assert 5_432 in places
    assert places[-1] == 9_999
    assert list(fewer(3, lambda place: 0.0, 100)) == [0, 1, 2]
    assert list(fewer(0, lambda place: 0.0)) == []


@pytest.mark.parametrize("value", [float("nan"), {"a": [1.0, float("inf")]}, (float("-inf"),)])
def test_numbers_that_json_does_not_have_become_null(value: Any) -> None:
    assert not _is_finite(value)
    assert "null" in json.dumps(_plain(value), allow_nan=False)
