# SPDX-License-Identifier: Apache-2.0
"""JSON lines to Arrow and back: nothing is lost, and what did not change keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.core.documents import json_records as js
from thresher.core.documents.frames import same_value

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)
STYLES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])


def column_of(*texts: str) -> pa.Array:
    return js.column_array([js.Raw(text.encode()) for text in texts])


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (("1", "null", "-7"), pa.int64()),
        ((str(2**63 - 1), str(-(2**63))), pa.int64()),
        (("1", "2.5"), pa.float64()),
        (("true", "null"), pa.bool_()),
        (('"00123"', '"x"'), pa.large_string()),
        (("null", "null"), pa.null()),
    ],
)
def test_a_column_gets_the_plain_type_that_holds_all_its_values(texts: tuple[str, ...], kind: pa.DataType) -> None:
    assert column_of(*texts).type == kind


@pytest.mark.parametrize(
    "texts",
    [
        ("1", '"1"'),
        ("true", "1"),
        (str(2**63), "1"),
        ("123456789012345678901234567890",),
        ("-0", "1"),
        (str(2**53 + 1), "0.5"),
        ("1e400",),
        ("[1, 2]", '{"a": null}'),
    ],
)
def test_values_that_fit_no_single_type_are_carried_as_json(texts: tuple[str, ...]) -> None:
    column = column_of(*texts)
    assert js.is_json(column.type)
    assert js.encoded_column(column) == [text.encode() for text in texts]


@settings(max_examples=80)
@given(st.lists(RECORDS, max_size=5))
def test_a_table_of_lines_says_what_the_lines_say(records: list[dict[str, Any]]) -> None:
    table = js.decode_table([json.dumps(record).encode() for record in records])
    assert table.num_rows == len(records)
    assert table.column_names == list(dict.fromkeys(key for record in records for key in record))
    again = [json.loads(line) for line in js.encode_rows(table)]
    for record, row in zip(records, again, strict=True):
        assert same_value(row, {name: record.get(name) for name in table.column_names})


@settings(max_examples=80)
@given(st.lists(RECORDS, max_size=4), st.text(max_size=3))
def test_one_field_is_found_without_decoding_the_others(records: list[dict[str, Any]], name: str) -> None:
    records = [*records, {name: [1, "x"]}, {"other": 1}]
    lines = [json.dumps(record).encode() for record in records]
    assert all(
        same_value(value, record.get(name)) for value, record in zip(js.field_values(lines, name), records, strict=True)
    )


def test_of_duplicate_keys_the_last_counts_and_escaped_keys_are_known() -> None:
    lines = [b'{"text": "a", "text": "b"}', b'{"\\u0074ext": "c"}', b'{"in": {"text": "no"}}']
    assert js.field_values(lines, "text") == ["b", "c", None]
    assert js.decode_table(lines).column("text").to_pylist() == ["b", "c", None]


@settings(max_examples=120)
@given(RECORDS, STYLES, st.booleans(), st.dictionaries(st.text(max_size=4), SCALARS, max_size=3), st.data())
def test_a_patched_line_has_the_changes_and_nothing_else(
    record: dict[str, Any], style: tuple[str, str], ascii_only: bool, changes: dict[str, Any], data: st.DataObject
) -> None:
    line = json.dumps(record, separators=style, ensure_ascii=ascii_only).encode()
    removed = frozenset(data.draw(st.sets(st.sampled_from(sorted(record))))) if record else frozenset()
    changes = {key: value for key, value in changes.items() if key not in removed}
    patched = js.patch_line(line, {key: js.encode_value(value) for key, value in changes.items()}, removed)
    wanted = {key: value for key, value in record.items() if key not in removed} | changes
    assert same_value(json.loads(patched), wanted)
    assert list(json.loads(patched)) == list(wanted), "keys keep their order, new ones come last"
    if not changes and not removed:
        assert patched == line


@pytest.mark.parametrize(
    ("line", "changes", "removed", "wanted"),
    [
        (b' {"a" : 1e0, "b":"\\u0041"}', {"b": b"2"}, set(), b'{"a" : 1e0, "b":2}'),
        (b'{"a":1,"b":2,"c":3}', {}, {"b"}, b'{"a":1,"c":3}'),
        (b'{"a":1, "b":2}', {}, {"a"}, b'{"b":2}'),
        (b'{"a": 1}', {"b": b"2"}, {"a"}, b'{"b": 2}'),
        (b'{"a":1}', {"b": b"2"}, set(), b'{"a":1,"b":2}'),
        (b"{ }", {"b": b"2"}, set(), b'{"b":2}'),
        (b'{"a":1,"a":2}', {"b": b"3"}, set(), b'{"a": 2, "b": 3}'),
        (b' {"a":1} ', {}, {"z"}, b' {"a":1} '),
        (b'{"a":"}\\"{","b":[{"a":1}]}', {"a": b"0"}, set(), b'{"a":0,"b":[{"a":1}]}'),
    ],
)
def test_patching_keeps_the_bytes_around(
    line: bytes, changes: dict[str, bytes], removed: set[str], wanted: bytes
) -> None:
    assert js.patch_line(line, changes, frozenset(removed)) == wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), b"null"),
        ([float("inf"), 2**70], b"[null,1180591620717411303424]"),
        (["\ud800", float("nan"), 2**70], b'["\\ud800", null, 1180591620717411303424]'),
        ("\ud800", b'"\\ud800"'),
        (np.int64(3), b"3"),
        (np.float32(1.5), b"1.5"),
        ({"a": np.arange(2)}, b'{"a":[0,1]}'),
        ((1, "x"), b'[1,"x"]'),
        (1 + 2j, b'"(1+2j)"'),
        ("é\n", '"é\\n"'.encode()),
    ],
)
def test_any_python_value_becomes_valid_json(value: Any, text: bytes) -> None:
    assert js.encode_value(value) == text
    json.loads(text)


def test_rows_without_columns_are_empty_objects() -> None:
    assert js.encode_rows(js.decode_table([b"{}", b"{}"])) == [b"{}", b"{}"]
