# SPDX-License-Identifier: Apache-2.0
"""The sidecar of scores: what is read is what was found, in input order, in the same bytes however batches were cut."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.core.documents.records import RecordIds
from thresher.core.scores import ScoreColumn, ScoreSource
from thresher.core.unit import Piece, Unit, file12, unit_id
from thresher.ledger.scores import KnownScores, ScoreRows, ScoreSidecar, pack, pack_rows

FILES = ("a.jsonl", "b.jsonl")
UNIT = Unit(unit_id("a.jsonl", 0), (0, 0), tuple(Piece(name, name, 9) for name in FILES), "a")
COLUMNS = (ScoreColumn("S/one", 1, "text", "x"), ScoreColumn("S/two", 1, "text", "y"))
SCORES = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(st.characters(), max_size=5),
    st.lists(st.integers(0, 3) | st.floats(0, 1), max_size=3),
)


def ids(file: str, positions: list[int]) -> RecordIds:
    return RecordIds(((f"{file12(file)}:", file),), np.array(positions, dtype=np.int64))


def rows(file: str, positions: list[int], **columns: list[Any]) -> ScoreRows:
    packed = pack_rows(ids(file, positions), {f"S/{name}": scores for name, scores in columns.items()})
    assert packed is not None
    return packed


def written(folder: Path, *parts: ScoreRows, columns: tuple[ScoreColumn, ...] = COLUMNS) -> bytes:
    path = folder / "scores" / f"{UNIT.id}.parquet"
    path.parent.mkdir(exist_ok=True)
    sidecar = ScoreSidecar(columns, UNIT, str(path))
    sidecar.add(parts)
    assert sidecar.write() is not None
    return path.read_bytes()


def known(folder: Path, columns: tuple[ScoreColumn, ...] = COLUMNS) -> Any:
    return KnownScores(ScoreSource(str(folder)), columns).of_unit(UNIT.id)


def same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return type(one) is type(other) and (one == other or both_nan)


@settings(max_examples=60, deadline=None)
@given(found=st.lists(SCORES, min_size=1, max_size=12), cut=st.integers(0, 12))
def test_a_score_that_is_known_is_the_very_one_that_was_found(
    found: list[Any], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("scores")
    parts = [(list(range(len(found)))[:cut], found[:cut]), (list(range(len(found)))[cut:], found[cut:])]
    written(folder, *(rows("a.jsonl", at, one=scores) for at, scores in parts if at))
    unit = known(folder)
    read = [unit.columns["S/one"][unit.rows[f"{file12('a.jsonl')}:{at}"]] for at in range(len(found))]
    for score, again in zip(found, read, strict=True):
        lost = isinstance(score, str) and any("\ud800" <= letter <= "\udfff" for letter in score)
        assert again is None if lost else same(score, again)


def test_the_bytes_do_not_depend_on_how_records_were_put_together(tmp_path: Path) -> None:
    whole = written(tmp_path, rows("a.jsonl", [0, 5, 9], one=[1, 2, None], two=[0.5, None, 1.5]))
    parts = [
        rows("a.jsonl", [9], two=[1.5]),
        rows("a.jsonl", [5, 0], one=[2, 1]),
        rows("a.jsonl", [0], two=[0.5]),
        rows("a.jsonl", [9, 5], one=[None, None]),
    ]
    assert written(tmp_path, *parts) == whole


def test_people_read_it_with_pandas_in_input_order(tmp_path: Path) -> None:
    written(tmp_path, rows("b.jsonl", [3], one=[7]), rows("a.jsonl", [20, 100, 3], one=[2, 3, 1]))
    frame = pd.read_parquet(tmp_path / "scores" / f"{UNIT.id}.parquet")
    assert list(frame.columns) == ["id", "S/one", "S/two"]
    a, b = (file12(name) for name in FILES)
    assert list(frame["id"]) == [f"{a}:3", f"{a}:20", f"{a}:100", f"{b}:3"]
    assert list(frame["S/one"]) == [1, 2, 3, 7]
    assert frame["S/two"].isna().all()


@pytest.mark.parametrize("power", range(1, 19))
def test_ids_of_several_files_have_positions_of_any_length(power: int, tmp_path: Path) -> None:
    at = [0, 9, 10**power - 1, 10**power, 10**power + 1]
    one, two = (sorted(set(at)), [7]) if power % 2 else ([7], sorted(set(at)))
    written(tmp_path, rows("b.jsonl", two, one=[2] * len(two)), rows("a.jsonl", one, one=[1] * len(one)))
    unit = known(tmp_path)
    names = [f"{file12('a.jsonl')}:{n}" for n in one] + [f"{file12('b.jsonl')}:{n}" for n in two]
    assert list(unit.rows) == names
    assert unit.columns["S/one"] == [1] * len(one) + [2] * len(two)


def test_records_that_a_stage_made_are_left_out() -> None:
    made = ids("a.jsonl", [4]).children(0, 2)
    assert pack_rows(made, {"S/one": [1, 2]}) is None
    both = RecordIds.concat([ids("a.jsonl", [3]), made])
    found = pack_rows(both, {"S/one": [1, 2, 3]})
    assert found is not None
    assert found.columns["S/one"].values.tolist() == [1]


def test_scores_hold_only_where_they_depend_on_the_same(tmp_path: Path) -> None:
    written(tmp_path, rows("a.jsonl", [0], one=[1], two=[2]))
    other = (ScoreColumn("S/one", 1, "text", "x"), ScoreColumn("S/two", 1, "text", "changed"))
    assert known(tmp_path, other).columns == {"S/one": [1]}
    unknown = (ScoreColumn("S/one", 1, "text", None),)
    written(tmp_path, rows("a.jsonl", [0], one=[1]), columns=unknown)
    assert known(tmp_path, unknown).columns == {}


@pytest.mark.parametrize("content", [b"", b"PAR1", b"no parquet at all" * 9])
def test_a_damaged_sidecar_is_as_good_as_none(content: bytes, tmp_path: Path) -> None:
    written(tmp_path, rows("a.jsonl", [0], one=[1]))
    path = tmp_path / "scores" / f"{UNIT.id}.parquet"
    whole = path.read_bytes()
    path.write_bytes(content)
    assert known(tmp_path).rows == {}
    path.write_bytes(whole[:-40] + b"\xff" * 30 + whole[-10:])
    assert known(tmp_path).rows == {}


def test_what_has_no_exact_form_is_not_known() -> None:
    found = pack([np.float32(0.1), (1, 2), {1: 2}, 3, np.float64(0.5), object()])
    assert found.known.tolist() == [False, False, False, True, True, False]
    assert found.values.tolist()[3:5] == ["3", "0.5"]
