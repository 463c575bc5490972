# SPDX-License-Identifier: Apache-2.0
"""What other thresholds would keep, and how scores are distributed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thresher.ledger.score_table import load_scores
from thresher.ledger.stores.store import open_store

WORDS, URLS = "WordCountFilter/WordCountFilter", "UrlsFilter/UrlsFilter"
PLAN: dict[str, Any] = {
    "rules": [
        {"column": WORDS, "bounds": [["low", 50, "min_words"]]},
        {"column": URLS, "bounds": [["high", 0.2, "max_url_to_text_ratio"]]},
    ]
}


def write_unit(folder: Path, name: str, words: list[int | None], urls: list[float | None]) -> None:
    """Write the scores of a unit."""
    (folder / "scores").mkdir(exist_ok=True)
    ids = [f"{name}:{n}" for n in range(len(words))]
    pq.write_table(pa.table({"id": ids, WORDS: words, URLS: urls}), folder / "scores" / f"{name}.parquet")


def test_the_first_rule_that_fails_counts_as_the_reason(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [10, 60, 70, 50], [0.9, 0.9, 0.1, 0.2])
    found = load_scores(open_store(str(tmp_path)), PLAN).outcome()
    assert found.kept == 2, "bounds belong to what is kept"
    assert found.dropped == {WORDS: 1, URLS: 1}
    assert found.amounts == {"words": (190, 120)}


def test_other_thresholds_change_what_is_kept(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [10, 60, 70], [0.0, 0.9, 0.1])
    table = load_scores(open_store(str(tmp_path)), PLAN)
    assert table.outcome({"WordCountFilter.min_words": 5}).kept == 2
    assert table.outcome({"UrlsFilter.max_url_to_text_ratio": 1.0}).kept == 2
    assert table.outcome({"WordCountFilter.min_words": 1000}).kept == 0


def test_a_document_without_a_score_is_neither_kept_nor_dropped(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [None, 60, 10], [0.1, None, None])
    found = load_scores(open_store(str(tmp_path)), PLAN).outcome()
    assert (found.kept, found.unknown, found.dropped[WORDS]) == (0, 2, 1)


def test_of_many_scores_a_part_stands_for_the_rest(tmp_path: Path) -> None:
    for number in range(20):
        write_unit(tmp_path, f"unit-{number:02d}", [60] * 30 + [10] * 10, [0.0] * 40)
    table = load_scores(open_store(str(tmp_path)), PLAN, most_cells=400)
    assert table.units_read < 20
    assert "Estimated from" in table.describe()
    assert table.outcome().kept == pytest.approx(600)
    assert table.documents == 800


def test_rules_that_decide_otherwise_are_named(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [60, 10], [0.9, 0.1])
    plan = {"rules": [PLAN["rules"][0], {"column": URLS, "bounds": None}]}
    table = load_scores(open_store(str(tmp_path)), plan)
    assert table.outcome().kept == 1
    assert table.describe().endswith(f"Not among what decides here: {URLS}.")


def test_a_histogram_counts_every_known_score(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [*range(100), None], [0.1] * 101)
    words, urls = load_scores(open_store(str(tmp_path)), PLAN).histograms()
    assert sum(words.counts) == 100
    assert words.unknown == 1
    assert sum(urls.counts) == 101


def test_files_that_hold_no_scores_are_left_out(tmp_path: Path) -> None:
    write_unit(tmp_path, "a", [60], [0.0])
    (tmp_path / "scores" / "b.parquet").write_bytes(b"not parquet")
    assert load_scores(open_store(str(tmp_path)), PLAN).outcome().kept == 1
    assert load_scores(open_store(str(tmp_path / "nothing")), PLAN).outcome().documents == 0
