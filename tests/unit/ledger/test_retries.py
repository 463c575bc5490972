# SPDX-License-Identifier: Apache-2.0
"""Names and rounds of retries, and which quarantine file counts."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from thresher.ledger.manifest import in_input_order
from thresher.ledger.records import CommitRecord
from thresher.ledger.retries import (
    latest_retries,
    open_files,
    put_away_retried,
    retries_due,
    retry_id,
    split_retry,
)
from thresher.ledger.store import open_store


@given(st.from_regex(r"[0-9a-f]{12}-\d{6}", fullmatch=True), st.integers(0, 10**6))
def test_the_id_of_a_retry_tells_its_unit_and_number(unit: str, number: int) -> None:
    assert split_retry(retry_id(unit, number)) == (unit, number)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 3)), st.data())
def test_a_round_that_was_ended_anywhere_is_finished_first(waits: dict[str, int], data: st.DataObject) -> None:
    """`waits`: how many more rounds a unit has something to try again."""

    def rounds(ended_after: int | None) -> dict[str, list[int]]:
        committed, left = set(waits), dict(waits)
        tried: dict[str, list[int]] = {unit: [] for unit in waits}
        while any(left.values()):
            due = retries_due(latest_retries(committed), [unit for unit, n in left.items() if n])
            for unit, number in list(due.items())[:ended_after]:
                tried[unit].append(number)
                committed.add(retry_id(unit, number))
                left[unit] -= 1
            ended_after = None
        return tried

    undisturbed = rounds(None)
    assert rounds(data.draw(st.integers(0, max(1, len(waits))))) == undisturbed
    assert all(
        numbers == list(range(1, n + 1)) for n, numbers in zip(waits.values(), undisturbed.values(), strict=True)
    )


def test_a_committed_retry_replaces_the_file_of_its_unit_and_one_that_is_not_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    folder.mkdir()
    for name in ("a", "a-retry-1", "b", "b-retry-1", "c"):
        (folder / f"{name}.jsonl").write_text("{}\n")
    store, latest = open_store(str(tmp_path)), latest_retries(["a", "a-retry-1", "b"])
    assert open_files(store, latest) == {"a": "a-retry-1", "b": "b"}
    put_away_retried(store, latest)
    assert sorted(path.name for path in folder.iterdir()) == [
        "a-retry-1.jsonl",
        "b-retry-1.jsonl",
        "b.jsonl",
        "c.jsonl",
        "retried",
    ]
    assert [path.name for path in (folder / "retried").iterdir()] == ["a.jsonl"]


def test_a_retry_stands_behind_its_unit_in_input_order() -> None:
    file = "0123456789ab"
    units = [f"{file}-000000", f"{file}-000000-retry-1", f"{file}-000001"]
    records = [CommitRecord(unit, 1, order=(0, int(unit[13:19]))) for unit in reversed(units)]
    assert [record.unit for record in in_input_order(records, {file: 7})] == units
