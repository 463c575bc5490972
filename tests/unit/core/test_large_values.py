# SPDX-License-Identifier: Apache-2.0
"""Large texts and lines take other roads, by stretches and in place. They lead to the same bytes and numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thresher.core.documents import json_records
from thresher.core.documents.json_records import encode_value, encoded_column, patch_line
from thresher.stages.io.jsonl import lines
from thresher.stages.io.jsonl.lines import first_line_end, last_line_end, line_spans

texts = st.text(st.characters(codec="utf-8"), max_size=80)
records = st.dictionaries(st.sampled_from(["text", "a", "b c", 'q"']), st.one_of(texts, st.integers(), st.none()))
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if seven bytes were a megabyte."""
    monkeypatch.setattr(json_records, "_LARGE", 7)
    monkeypatch.setattr(lines, "_WINDOW", 4)
    monkeypatch.setattr(lines, "_MOST_WINDOW", 8)


@pytest.mark.usefixtures("_all_is_large")
@unhurried
@given(st.lists(st.one_of(st.none(), texts), min_size=1, max_size=5))
def test_texts_are_encoded_as_by_the_encoder_for_small_ones(values: list[str | None]) -> None:
    column = pa.chunked_array([pa.array(values, type=pa.large_string())])
    assert encoded_column(column) == [encode_value(value) for value in values]


@unhurried
@given(records, records, st.booleans(), st.sampled_from(["", " ", "\t", "\r"]))
def test_a_long_line_is_patched_like_a_short_one(
    monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], changes: dict[str, Any], compact: bool, white: str
) -> None:
    line = (white + json.dumps(record, separators=(",", ":") if compact else None) + white).encode()
    encoded = {key: encode_value(value) for key, value in changes.items()}
    removed = frozenset({"a"}) - frozenset(changes)
    monkeypatch.setattr(json_records, "_LARGE", 2**20)
    expected = patch_line(line, encoded, removed)
    monkeypatch.setattr(json_records, "_LARGE", 7)
    assert patch_line(memoryview(line), encoded, removed) == expected
    kept = {key: value for key, value in record.items() if key not in removed}
    assert json.loads(expected) == {**kept, **changes}


@pytest.mark.usefixtures("_all_is_large")
@unhurried
@given(st.lists(st.sampled_from([b"a", b"\n"]), max_size=60).map(b"".join), st.integers(min_value=0, max_value=70))
def test_line_feeds_are_found_in_stretches(data: bytes, start: int) -> None:
    view = memoryview(data)
    assert first_line_end(view, start) == data.find(b"\n", start) + 1
    assert last_line_end(view) == data.rfind(b"\n") + 1
    starts, ends = line_spans(view)
    pieces = data.split(b"\n")
    assert [data[s:e] for s, e in zip(starts.tolist(), ends.tolist(), strict=True)] == (
        pieces if pieces[-1] else pieces[:-1]
    )
    assert starts.dtype == ends.dtype == np.int64
