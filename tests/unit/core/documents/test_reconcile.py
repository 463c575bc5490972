# SPDX-License-Identifier: Apache-2.0
"""Identity through users' code: whatever it does to a table, the right lines come out under the right ids."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.frames import same_value
from thresher.core.documents.reconcile import DocumentReconciler
from thresher.core.documents.records import RecordIds
from thresher.core.records.reconcile import Reconciled, reconcile
from thresher.core.records.record_task import FILTERED

RECORDS = [{"key": f"k{n}", "text": f"text {n}", "n": n} for n in range(6)]


def rows_gone(found: Reconciled) -> int:
    return sum(len(rows.batch) for rows in found.dropped) + sum(len(rows.batch or ()) for rows in found.failed)


def assert_counts_add_up(given_batch: DocumentBatch, found: Reconciled) -> None:
    assert len(given_batch) + found.created == len(found.batch) + rows_gone(found) + found.merged


# -- which records they are -------------------------------------------------------------------------------------------


def test_the_batch_itself_comes_back_as_it_is() -> None:
    batch = batch_of(RECORDS)
    found = reconcile(batch, batch, "Stage")
    assert found.batch is batch
    assert (found.created, found.merged, found.dropped, found.failed) == (0, 0, [], [])


def test_as_many_rows_keep_ids_and_lines_by_position() -> None:
    batch = batch_of(RECORDS)
    made = DocumentBatch([{**record, "text": record["text"].upper()} for record in RECORDS])
    found = reconcile(batch, made, "Stage")
    assert found.batch.ids is not None
    assert batch.ids is not None
    assert found.batch.ids.strings() == batch.ids.strings()
    assert written(found.batch) == [{**record, "text": record["text"].upper()} for record in RECORDS]
    assert found.created == found.merged == rows_gone(found) == 0


def test_rows_missing_from_a_data_frame_are_dropped_under_filtered() -> None:
    batch = batch_of(RECORDS)
    frame = batch.to_pandas()
    found = reconcile(batch, frame[frame["n"].isin([1, 4])], "Stage")
    ids = batch.ids.strings() if batch.ids is not None else []
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == [ids[1], ids[4]]
    assert [rows.rule for rows in found.dropped] == [FILTERED]
    assert found.dropped[0].batch.ids is not None
    assert found.dropped[0].batch.ids.strings() == [ids[0], ids[2], ids[3], ids[5]]


def test_a_reordered_data_frame_keeps_the_identity_of_its_rows() -> None:
    batch = batch_of(RECORDS)
    found = reconcile(batch, batch.to_pandas().sort_values("n", ascending=False), "Stage")
    assert [bytes(line) for line in found.batch.json_lines()] == [bytes(line) for line in reversed(batch.json_lines())]
    assert found.batch.ids is not None
    assert batch.ids is not None
    assert found.batch.ids.strings() == batch.ids.strings()[::-1]


def test_rows_that_were_numbered_anew_are_found_by_a_column_with_distinct_values() -> None:
    batch = batch_of(RECORDS)
    frame = batch.to_pandas()
    shorter = frame[frame["n"] >= 3].reset_index(drop=True).assign(text="new")
    found = reconcile(batch, shorter, "Stage")
    ids = batch.ids.strings() if batch.ids is not None else []
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == ids[3:]
    assert [record["key"] for record in written(found.batch)] == ["k3", "k4", "k5"]


def test_an_index_of_group_keys_names_no_rows() -> None:
    batch = batch_of([{"group": n % 2, "n": n} for n in range(6)])
    grouped = batch.to_pandas().groupby("group").sum()
    found = reconcile(batch, grouped, "Stage")
    assert (found.created, found.merged) == (2, 6)
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == ["0123456789ab:0/0", "0123456789ab:0/1"]
    assert written(found.batch) == [{"n": 6}, {"n": 9}]


def test_another_number_of_rows_makes_children_of_the_first_record() -> None:
    batch = batch_of(RECORDS)
    found = reconcile(batch, batch.to_pyarrow().slice(2), "Stage")
    assert (found.created, found.merged) == (4, 6)
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == [f"0123456789ab:0/{k}" for k in range(4)]
    assert written(found.batch) == RECORDS[2:]


def test_records_that_were_taken_twice_are_new_ones() -> None:
    batch = batch_of(RECORDS)
    found = reconcile(batch, batch.take([0, 0, 1]), "Stage")
    assert (found.created, found.merged) == (3, 6)
    assert written(found.batch) == [RECORDS[0], RECORDS[0], RECORDS[1]]


def test_rows_that_were_taken_keep_their_ids_and_the_others_are_filtered() -> None:
    batch = batch_of(RECORDS)
    found = reconcile(batch, batch.take([4, 2]), "Stage")
    assert written(found.batch) == [RECORDS[4], RECORDS[2]]
    assert found.created == 0
    assert [(rows.rule, len(rows.batch)) for rows in found.dropped] == [(FILTERED, 4)]


def test_drops_on_a_batch_made_of_a_data_frame_keep_their_identity() -> None:
    batch = batch_of(RECORDS)
    frame = batch.to_pandas()
    made = DocumentBatch(frame[frame["n"] > 0].assign(text="x")).drop([1], rule="mine", scores=[7])
    found = reconcile(batch, made, "Stage")
    ids = batch.ids.strings() if batch.ids is not None else []
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == [ids[1], ids[3], ids[4], ids[5]]
    mine, filtered = found.dropped
    assert mine.batch.ids is not None
    assert filtered.batch.ids is not None
    assert (mine.rule, mine.batch.ids.strings()) == ("mine", [ids[2]])
    assert (filtered.rule, filtered.batch.ids.strings()) == (FILTERED, [ids[0]])
    assert written(mine.batch) == [{**RECORDS[2], "text": "x"}]


def test_setting_data_on_the_given_batch_changes_its_records() -> None:
    batch = batch_of(RECORDS)
    ids = batch.ids.strings() if batch.ids is not None else []
    frame = batch.to_pandas()
    batch.data = frame[frame["n"] != 2].assign(n=1)
    found = reconcile(batch, batch, "Stage")
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == [ids[0], ids[1], *ids[3:]]
    assert [record["n"] for record in written(found.batch)] == [1] * 5
    assert [rows.rule for rows in found.dropped] == [FILTERED]


def test_setting_data_on_a_derived_batch_keeps_what_was_dropped_before() -> None:
    batch = batch_of(RECORDS)
    ids = batch.ids.strings() if batch.ids is not None else []
    made = batch.drop([0], rule="early")
    made.data = made.to_pandas().assign(text="new")
    found = reconcile(batch, made.drop([0], rule="late"), "Stage")
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == ids[2:]
    assert [(rows.rule, rows.batch.ids.strings()) for rows in found.dropped if rows.batch.ids is not None] == [
        ("early", [ids[0]]),
        ("late", [ids[1]]),
    ]


def test_a_batch_that_a_stage_returns_again_and_again_is_not_marked() -> None:
    constant = DocumentBatch([{"text": "always"}])
    first = reconcile(batch_of(RECORDS), constant, "Stage")
    assert constant.ids is None
    second = reconcile(batch_of(RECORDS[:3]), constant, "Stage")
    assert first.created == second.created == 1


def test_results_that_come_one_by_one_never_share_a_record() -> None:
    batch = batch_of(RECORDS)
    reconciler = DocumentReconciler(batch, "Stage")
    first = reconciler.add(batch.take([0, 1]))
    second = reconciler.add(batch.take([1, 2]))
    third = reconciler.add(DocumentBatch([{"text": "new"}]))
    rest = reconciler.finish()
    assert (first.created, second.created, third.created, rest.merged) == (0, 2, 1, 4)
    names = [
        name for found in (first, second, third) for name in (found.batch.ids or RecordIds((), np.zeros(0))).strings()
    ]
    assert len(set(names)) == 5
    assert names[2:] == ["0123456789ab:0/0", "0123456789ab:0/1", "0123456789ab:0/2"]


def names_of(batch: DocumentBatch) -> list[str]:
    return [] if batch.ids is None else batch.ids.strings()


def test_one_of_several_results_with_as_many_rows_is_new_unless_a_column_tells() -> None:
    batch = batch_of(RECORDS)
    reconciler = DocumentReconciler(batch, "Stage", several=True)
    clips = reconciler.add(DocumentBatch([{"clip": n} for n in range(6)]))
    swapped = reconciler.add(DocumentBatch([{"key": "k0", "text": "text 0", "n": 0} for n in range(6)]))
    same = reconciler.add(DocumentBatch([{"key": f"k{n}", "length": 1} for n in range(6)]))
    again = reconciler.add(DocumentBatch([{"key": f"k{n}", "length": 2} for n in range(6)]))
    assert (clips.created, swapped.created, same.created, again.created) == (6, 6, 0, 6)
    assert names_of(clips.batch) == [f"0123456789ab:0/{k}" for k in range(6)]
    assert names_of(same.batch) == names_of(batch)
    assert reconciler.finish().merged == 0


def test_a_new_data_frame_among_several_results_is_not_taken_for_the_first_rows() -> None:
    batch = batch_of(RECORDS)
    reconciler = DocumentReconciler(batch, "Stage", several=True)
    frame = batch.to_pandas()
    clips = reconciler.add(pd.DataFrame({"clip": [1, 2]}))
    head, tail = reconciler.add(frame.iloc[:2].assign(text="x")), reconciler.add(frame.iloc[2:].assign(key="x"))
    assert (clips.created, head.created, tail.created) == (2, 0, 0)
    assert [*names_of(head.batch), *names_of(tail.batch)] == names_of(batch)


def test_the_given_batch_with_other_data_is_the_same_among_several_results() -> None:
    batch = batch_of(RECORDS)
    names = names_of(batch)
    batch.data = pd.DataFrame({"other": list("abcdef")})
    found = DocumentReconciler(batch, "Stage", several=True).add(batch)
    assert (found.created, names_of(found.batch)) == (0, names)


# -- written in place -------------------------------------------------------------------------------------------------


def test_what_is_written_to_the_data_frame_of_a_batch_that_is_returned_counts() -> None:
    batch = batch_of(RECORDS)
    names = names_of(batch)
    frame = batch.to_pandas()
    frame["length"] = frame["text"].str.len()
    frame.loc[2, "text"] = "changed"
    del frame["n"]
    found = reconcile(batch, batch, "Stage")
    assert names_of(found.batch) == names
    texts = ["text 0", "text 1", "changed", "text 3", "text 4", "text 5"]
    assert written(found.batch) == [{"key": f"k{n}", "text": text, "length": 6} for n, text in enumerate(texts)]
    assert_counts_add_up(batch_of(RECORDS), found)


def test_nested_values_changed_in_place_count_too() -> None:
    batch = batch_of([{"tags": ["a"]}, {"tags": ["b"]}])
    batch.to_pandas()["tags"][1].append("c")
    assert written(reconcile(batch, batch, "Stage").batch) == [{"tags": ["a"]}, {"tags": ["b", "c"]}]


def test_a_data_frame_that_was_only_read_changes_nothing() -> None:
    lines = [b'{"a":1.50,"b" : [1, {"c":null}],  "c":null}', b' {"b":"\\u0079", "a":2e0}', b'{"a":3}']
    batch = batch_of_lines(lines)
    assert len(batch.to_pandas()) == 3
    found = reconcile(batch, batch, "Stage")
    assert found.batch is batch
    assert [bytes(line) for line in found.batch.json_lines()] == lines


def test_a_data_frame_used_as_scratch_beside_a_derived_batch_changes_nothing() -> None:
    batch = batch_of(RECORDS)
    frame = batch.to_pandas()
    frame["length"] = 1
    found = reconcile(batch, batch.take([1]), "Stage")
    assert written(found.batch) == [RECORDS[1]]


def test_a_frame_that_a_batch_was_made_of_may_be_changed_in_place() -> None:
    batch = DocumentBatch(pd.DataFrame({"n": range(4)}, index=[7, 3, 0, 1]))
    batch.name_records()
    names = names_of(batch)
    batch.data["m"] = 1
    batch.data = batch.data[batch.data["n"] != 1]
    batch.data.loc[0, "n"] = 9
    found = reconcile(batch, batch, "Stage")
    assert names_of(found.batch) == [names[0], names[2], names[3]]
    assert written(found.batch) == [{"n": 0, "m": 1}, {"n": 9, "m": 1}, {"n": 3, "m": 1}]
    assert [(rows.rule, len(rows.batch)) for rows in found.dropped] == [(FILTERED, 1)]


def test_nothing_given_and_something_made_gets_ids_of_the_task() -> None:
    found = reconcile(batch_of([]), DocumentBatch([{"text": "a"}, {"text": "b"}]), "Stage")
    assert (found.created, found.merged) == (2, 0)
    assert found.batch.ids is not None
    assert len(set(found.batch.ids.strings())) == 2


def test_what_is_no_table_is_refused_with_the_name_of_the_stage() -> None:
    with pytest.raises(TypeError, match="Shorten returned an int"):
        reconcile(batch_of(RECORDS), 3, "Shorten")


def test_two_columns_of_one_name_are_refused() -> None:
    batch = batch_of(RECORDS)
    frame = batch.to_pandas().rename(columns={"key": "text"})
    with pytest.raises(ValueError, match="'text' come twice"):
        reconcile(batch, frame, "Stage")


# -- what changed in them ---------------------------------------------------------------------------------------------


def test_only_changed_cells_are_rewritten() -> None:
    lines = [b'{"a":1.50,"b" : "x",  "c":null}', b' {"b":"\\u0079", "a":2e0}', b'{"a":3}']
    batch = batch_of_lines(lines)
    frame = batch.to_pandas()
    frame.loc[1, "b"] = "z"
    found = reconcile(batch, frame, "Stage")
    assert [bytes(line) for line in found.batch.json_lines()] == [lines[0], b'{"b":"z", "a":2e0}', lines[2]]


def test_a_removed_column_is_cut_out_and_lines_without_it_stay() -> None:
    lines = [b'{"a":1, "b" : "x","c":0}', b'{"a" : 2}', b'{"b":1}']
    found = reconcile(batch_of_lines(lines), batch_of_lines(lines).to_pandas().drop(columns="b"), "Stage")
    assert [bytes(line) for line in found.batch.json_lines()] == [b'{"a":1,"c":0}', b'{"a" : 2}', b"{}"]


def test_integers_that_pandas_made_floats_stay_integers() -> None:
    batch = batch_of([{"n": n} for n in range(4)])
    frame = batch.to_pandas()
    frame["n"] = frame["n"].astype(float)
    frame.loc[2, "n"] = math.nan
    found = reconcile(batch, frame, "Stage")
    assert [bytes(line) for line in found.batch.json_lines()] == [b'{"n": 0}', b'{"n": 1}', b'{"n": null}', b'{"n": 3}']


def test_a_truth_value_is_not_a_number() -> None:
    batch = batch_of([{"n": 1}, {"n": [0, 1]}])
    found = reconcile(batch, DocumentBatch([{"n": True}, {"n": [False, 1]}]), "Stage")
    assert [bytes(line) for line in found.batch.json_lines()] == [b'{"n": true}', b'{"n": [false,1]}']


def test_parquet_columns_come_back_from_pandas_in_their_own_types() -> None:
    table = pa.table(
        {
            "small": pa.array([1, None, 3], pa.int16()),
            "text": pa.array(["a", None, "c"], pa.string()),
            "list": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
            "struct": pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "c"}]),
            "money": pa.array([Decimal("1.50"), None, Decimal("2.25")], pa.decimal128(12, 2)),
            "empty": pa.array([None, None, None], pa.float32()),
        }
    )
    batch = DocumentBatch.from_table(table, RecordIds((("0123456789ab:r", "f.parquet"),), np.arange(3)))
    found = reconcile(batch, batch.to_pandas(), "Stage")
    assert found.batch.to_pyarrow().equals(table)


# -- for any table and anything that is done to it --------------------------------------------------------------------

SCALARS = st.one_of(st.text(max_size=8), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
NESTED = st.recursive(
    st.one_of(SCALARS, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=12),
    "n": st.one_of(st.none(), st.integers(-5, 5)),
    "big": st.integers(-(2**63), 2**63 - 1),
    "f": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32)),
    "flag": st.one_of(st.none(), st.booleans()),
    "mix": NESTED,
    "tags": st.lists(st.text(max_size=3), max_size=3),
}


@st.composite
def json_lines(draw: st.DrawFn) -> list[bytes]:
    """Lines in any order of keys, with gaps, in several styles of writing."""
    records = draw(st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=7))
    lines = []
    for number, record in enumerate(records):
        keys = draw(st.permutations([*record, "key"]))
        ordered = {key: f"k{number}" if key == "key" else record[key] for key in keys}
        separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,  ", " :\t")]))
        text = json.dumps(ordered, ensure_ascii=draw(st.booleans()), separators=separators)
        lines.append(draw(st.sampled_from(["", " "])).encode() + text.encode("utf-8", "surrogatepass"))
    return lines


def has(frame: pd.DataFrame, name: str) -> bool:
    return name in frame.columns


FRAME_OPERATIONS: dict[str, Callable[[pd.DataFrame, Any], pd.DataFrame]] = {
    "add": lambda f, r: f.assign(new=range(len(f))),
    "add with gaps": lambda f, r: f.assign(part=[n if r.random() < 0.5 else None for n in range(len(f))]),
    "upper": lambda f, r: f.assign(text=[str(t).upper() for t in f["text"]]) if has(f, "text") else f,
    "set one": lambda f, r: f.assign(n=[9 if r.random() < 0.3 else v for v in f["n"]]) if has(f, "n") else f,
    "drop column": lambda f, r: f.drop(columns=r.choice(list(f.columns))) if len(f.columns) > 1 else f,
    "rename": lambda f, r: f.rename(columns={"text": "body"}),
    "swap names": lambda f, r: f.rename(columns={"text": "key", "key": "text"}) if has(f, "key") else f,
    "filter": lambda f, r: f[[r.random() < 0.6 for _ in range(len(f))]],
    "sort": lambda f, r: f.sort_values("key", ascending=False) if has(f, "key") and f["key"].is_unique else f,
    "sample": lambda f, r: f.sample(frac=1.0, random_state=r.randrange(2**30)),
    "filter and renumber": lambda f, r: f[[r.random() < 0.6 for _ in range(len(f))]].reset_index(drop=True),
    "renumber": lambda f, r: f.reset_index(drop=True),
    "head": lambda f, r: f.head(r.randrange(4)),
    "twice": lambda f, r: pd.concat([f, f]),
    "twice, renumbered": lambda f, r: pd.concat([f, f], ignore_index=True),
    "explode": lambda f, r: f.explode("tags") if has(f, "tags") else f,
    "group": lambda f, r: f.groupby("n", dropna=False).first() if has(f, "n") and len(f.columns) > 1 else f,
    "as float": lambda f, r: f.assign(big=f["big"].astype(float)) if has(f, "big") else f,
    "reorder columns": lambda f, r: f[list(f.columns)[::-1]],
}


def plain(value: Any) -> Any:
    """A cell of a data frame as JSON would say it."""
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns = {str(name): [plain(value) for value in frame[name]] for name in frame.columns}
    return [{name: cells[row] for name, cells in columns.items()} for row in range(len(frame))]


def same_record(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are equal; a field that is null is as good as none."""
    return same_value(
        {key: value for key, value in one.items() if value is not None},
        {key: value for key, value in other.items() if value is not None},
    )


def assert_true_to(batch: DocumentBatch, lines: list[bytes], found: Reconciled, expected: list[dict[str, Any]]) -> None:
    """The records say what they should, and those that did not change are the lines they were."""
    assert_counts_add_up(batch, found)
    texts = [bytes(line) for line in found.batch.json_lines()]
    records = [json.loads(text) for text in texts]
    assert len(records) == len(expected)
    ids = batch.ids.strings() if batch.ids is not None else []
    known = dict(zip(ids, lines, strict=True))
    assert found.batch.ids is not None
    names = found.batch.ids.strings()
    assert len(set(names)) == len(names)
    for name, text, record, wanted in zip(names, texts, records, expected, strict=True):
        assert same_record(record, wanted), (record, wanted)
        line = known.get(name)
        if line is not None:
            before = json.loads(line)
            if same_record(before, wanted) and set(before) <= set(wanted):
                assert text == line


@settings(max_examples=100, deadline=None)
@given(json_lines(), st.lists(st.sampled_from(sorted(FRAME_OPERATIONS)), max_size=3), st.randoms(use_true_random=False))
def test_any_data_frame_says_what_pandas_says(lines: list[bytes], operations: list[str], random: Any) -> None:
    batch = batch_of_lines(lines)
    frame = batch.to_pandas()
    assert all(same_record(row, json.loads(line)) for row, line in zip(rows_of(frame), lines, strict=True)), (
        "to_pandas must say what the lines say"
    )
    for operation in operations:
        frame = FRAME_OPERATIONS[operation](frame, random)
    expected = rows_of(frame)
    assert_true_to(batch, lines, reconcile(batch, DocumentBatch(frame), "Stage"), expected)


ARROW_OPERATIONS: dict[str, Callable[[pa.Table, Any], pa.Table]] = {
    "add": lambda t, r: t.append_column("".join(t.column_names) + "+", pa.array(range(t.num_rows), pa.int64())),
    "replace": lambda t, r: t.set_column(0, t.column_names[0], pa.array(["x"] * t.num_rows)) if t.num_columns else t,
    "drop": lambda t, r: t.drop_columns([r.choice(t.column_names)]) if t.num_columns > 1 else t,
    "rename": lambda t, r: t.rename_columns([f"{name}_2" for name in t.column_names]),
    "filter": lambda t, r: t.filter(pa.array([r.random() < 0.6 for _ in range(t.num_rows)], pa.bool_())),
    "slice": lambda t, r: t.slice(r.randrange(3)),
    "twice": lambda t, r: pa.concat_tables([t, t]),
    "sort": lambda t, r: t.take(pc.sort_indices(t["key"])) if "key" in t.column_names else t,
    "reverse columns": lambda t, r: t.select(t.column_names[::-1]),
}


@settings(max_examples=50, deadline=None)
@given(json_lines(), st.lists(st.sampled_from(sorted(ARROW_OPERATIONS)), max_size=3), st.randoms(use_true_random=False))
def test_any_arrow_table_says_what_arrow_says(lines: list[bytes], operations: list[str], random: Any) -> None:
    batch = batch_of_lines(lines)
    table = batch.to_pyarrow()
    for operation in operations:
        table = ARROW_OPERATIONS[operation](table, random)
    probe = DocumentBatch(table)
    expected = [dict.fromkeys(table.column_names) for _ in range(table.num_rows)]
    for name in table.column_names:
        for row, value in zip(expected, probe.values(name), strict=True):
            row[name] = value
    assert_true_to(batch, lines, reconcile(batch, table, "Stage"), expected)


@settings(max_examples=50, deadline=None)
@given(json_lines(), st.randoms(use_true_random=False))
def test_filtered_and_sorted_rows_carry_their_own_ids(lines: list[bytes], random: Any) -> None:
    batch = batch_of_lines(lines)
    frame = batch.to_pandas()
    for operation in ("filter", "sample", "upper", "add"):
        frame = FRAME_OPERATIONS[operation](frame, random)
    found = reconcile(batch, frame, "Stage")
    ids = batch.ids.strings() if batch.ids is not None else []
    assert found.created == found.merged == 0
    assert found.batch.ids is not None
    assert found.batch.ids.strings() == [ids[row] for row in frame.index]


@settings(max_examples=50, deadline=None)
@given(json_lines(), st.randoms(use_true_random=False))
def test_several_stages_in_a_row_never_leave_a_stale_line(lines: list[bytes], random: Any) -> None:
    batch = batch_of_lines(lines)
    expected = [json.loads(line) for line in lines]
    for operation in ("upper", "drop column", "filter", "add", "set one", "swap names", "sample"):
        frame = FRAME_OPERATIONS[operation](batch.to_pandas(), random)
        expected = rows_of(frame)
        batch = reconcile(batch, frame, "Stage").batch
        if random.random() < 0.5 and len(batch):
            batch = batch.take(list(range(len(batch))))
    records = [json.loads(bytes(line)) for line in batch.json_lines()]
    assert all(same_record(record, wanted) for record, wanted in zip(records, expected, strict=True))
