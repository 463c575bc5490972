# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import SOURCE, batch_of_lines
from thresher.core.documents.batch import DocumentBatch, DroppedRows, FailedRows
from thresher.core.documents.records import RecordIds
from thresher.ledger.quarantine import archive_replaced, current_files, dropped_lines, quarantine_lines, retries_due
from thresher.ledger.records import CommitRecord, in_input_order, latest_retries, retry_id, split_retry
from thresher.ledger.stores.store import open_store


def test_a_failed_record_is_told_with_all_that_is_known():
    batch = batch_of_lines([b'{"a": 1}', b'{"a":  2}'])
    failed = FailedRows(batch, "ValueError", ["bad one", "bad two"], traceback="Traceback…", attempts=3)

    lines = [json.loads(line) for line in quarantine_lines(failed, "Words")]

    assert lines[1] == {
        "id": "0123456789ab:9",
        "source": "folder/file.jsonl",
        "position": 9,
        "stage": "Words",
        "error": "ValueError",
        "message": "bad two",
        "traceback": "Traceback…",
        "attempts": 3,
        "record": '{"a":  2}',
    }
    assert lines[0]["record"] == '{"a": 1}'


@given(st.binary())
def test_the_bytes_of_a_line_that_could_not_be_read_survive(line: bytes):
    ids = RecordIds((SOURCE,), np.array([7]))
    failed = FailedRows(None, "not-json", ["?"], lines=[line], ids=ids)

    (made,) = quarantine_lines(failed, "JsonlReader")

    told = json.loads(made)
    assert b"\n" not in made
    kept = told["record"].encode() if "record" in told else base64.b64decode(told["record_base64"])
    assert kept == line


def test_a_failure_without_record_or_id_is_told_too():
    (line,) = quarantine_lines(FailedRows(None, "truncated", ["the file ends at byte 17"]), "JsonlReader")

    told = json.loads(line)
    assert (told["id"], told["record"], told["message"]) == (None, None, "the file ends at byte 17")


def test_more_facts_are_kept():
    failed = FailedRows(batch_of_lines([b"{}"]), "x", ["y"], extra={"rows": [1, 2]})

    assert json.loads(quarantine_lines(failed, "S")[0])["rows"] == [1, 2]


def test_a_file_name_that_is_no_text_does_no_harm():
    ids = RecordIds((("0:", "in/\udcff.jsonl"),), np.array([0]))
    (line,) = quarantine_lines(FailedRows(None, "x", ["y"], lines=[b"z"], ids=ids), "S")

    assert json.loads(line)["source"] == "in/\udcff.jsonl"


def test_a_dropped_record_says_last_which_rule_dropped_it():
    dropped = DroppedRows(batch_of_lines([b'{"a": 1,"b":"x"}']), "WordCountFilter", [np.int64(3)], {"min": 50})

    (line,) = dropped_lines(dropped, "ScoreFilter")

    assert line == (
        b'{"a": 1,"b":"x", "_dropped": '
        b'{"stage":"ScoreFilter","rule":"WordCountFilter","score":3,"threshold":{"min":50},"id":"0123456789ab:0"}}'
    )


def test_a_record_that_was_dropped_before_has_the_new_reason_alone():
    dropped = DroppedRows(batch_of_lines([b'{"_dropped": {"rule": "old"}, "a": 1}']), "new")

    told = json.loads(dropped_lines(dropped, "S")[0])

    assert list(told) == ["a", "_dropped"]
    assert told["_dropped"] == {"stage": "S", "rule": "new", "score": None, "threshold": None, "id": "0123456789ab:0"}


def test_dropped_records_without_lines_are_encoded():
    told = json.loads(dropped_lines(DroppedRows(DocumentBatch([{"a": 1}]), "r", [0.5], 1), "S")[0])

    assert told == {"a": 1, "_dropped": {"stage": "S", "rule": "r", "score": 0.5, "threshold": 1, "id": None}}


@given(st.from_regex(r"[0-9a-f]{12}-\d{6}", fullmatch=True), st.integers(0, 10**6))
def test_the_id_of_a_retry_tells_its_unit_and_number(unit: str, number: int) -> None:
    assert split_retry(retry_id(unit, number)) == (unit, number)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 3)), st.data())
def test_a_round_that_was_ended_anywhere_is_finished_first(backoff_waits: dict[str, int], data: st.DataObject) -> None:
    """`backoff_waits`: how many more rounds a unit has something to try again."""

    def rounds(ended_after: int | None) -> dict[str, list[int]]:
        committed, left = set(backoff_waits), dict(backoff_waits)
        tried: dict[str, list[int]] = {unit: [] for unit in backoff_waits}
        while any(left.values()):
            due = retries_due(latest_retries(committed), [unit for unit, n in left.items() if n])
            for unit, number in list(due.items())[:ended_after]:
                tried[unit].append(number)
                committed.add(retry_id(unit, number))
                left[unit] -= 1
            ended_after = None
        return tried

    undisturbed = rounds(None)
    assert rounds(data.draw(st.integers(0, max(1, len(backoff_waits))))) == undisturbed
    assert all(
        numbers == list(range(1, n + 1))
        for n, numbers in zip(backoff_waits.values(), undisturbed.values(), strict=True)
    )


def test_a_committed_retry_replaces_the_file_of_its_unit_and_one_that_is_not_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    folder.mkdir()
    for name in ("a", "a-retry-1", "b", "b-retry-1", "c"):
        (folder / f"{name}.jsonl").write_text("{}\n")
    store, latest = open_store(str(tmp_path)), latest_retries(["a", "a-retry-1", "b"])
    assert current_files(store, latest) == {"a": "a-retry-1", "b": "b"}
    archive_replaced(store, latest)
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
