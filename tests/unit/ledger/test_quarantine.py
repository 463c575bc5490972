# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import SOURCE, batch_of_lines
from thresher.core.batch import DocumentBatch, DroppedRows, FailedRows
from thresher.core.records import RecordIds
from thresher.ledger.quarantine import dropped_lines, quarantine_lines


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
        b'{"stage":"ScoreFilter","rule":"WordCountFilter","score":3,"threshold":{"min":50}}}'
    )


def test_a_record_that_was_dropped_before_has_the_new_reason_alone():
    dropped = DroppedRows(batch_of_lines([b'{"_dropped": {"rule": "old"}, "a": 1}']), "new")

    told = json.loads(dropped_lines(dropped, "S")[0])

    assert list(told) == ["a", "_dropped"]
    assert told["_dropped"] == {"stage": "S", "rule": "new", "score": None, "threshold": None}


def test_dropped_records_without_lines_are_encoded():
    told = json.loads(dropped_lines(DroppedRows(DocumentBatch([{"a": 1}]), "r", [0.5], 1), "S")[0])

    assert told == {"a": 1, "_dropped": {"stage": "S", "rule": "r", "score": 0.5, "threshold": 1}}
