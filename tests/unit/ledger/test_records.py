# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct

from tests.unit.ledger.runs import commit, commit_all, lines_of, request, units, whole_run
from thresher.core.unit import unit_id
from thresher.ledger.folder.find import read_manifest
from thresher.ledger.folder.opening import open_run
from thresher.ledger.parts import TWICE_AT_MOST, join, phase_tree, plan_joins
from thresher.ledger.records import CommitRecord, OutputFile
from thresher.ledger.unit_output import CommitTarget
from thresher.stages.io.jsonl.writer import JsonlWriter

TARGET = CommitTarget("out", "out/_thresher", 1, "tmp", extension=".jsonl", parts="out/_thresher/parts")


def part(number: int, nbytes: int) -> CommitRecord:
    unit = unit_id("a.jsonl", number)
    files = (OutputFile(f"a-{unit}.jsonl", nbytes, 1, "0"),) if nbytes else ()
    return CommitRecord(unit, 1, outputs=files, order=(0, number), part=True)


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 100))
def test_every_part_is_joined_once_in_order_and_files_are_as_full_as_they_may_be(sizes, target):
    parts = [part(number, nbytes) for number, nbytes in enumerate(sizes)]

    joins = plan_joins(parts, target, TARGET)

    assert [piece.relative for unit in joins for piece in unit.pieces] == [p.unit for p in parts if p.outputs]
    for unit in joins:
        assert unit.nbytes <= target or len(unit.pieces) == 1
    for unit, following in itertools.pairwise(joins):
        assert unit.nbytes + following.pieces[0].size > target


@given(st.lists(st.integers(1, 50), min_size=1, max_size=600), st.integers(2, 40))
def test_files_between_phases_are_joined_to_few_and_little_of_them_is_on_disk_twice(sizes, most_files):
    target = replace(TARGET, phases="out/_thresher/phases", phase_extensions=(".phase",))
    records = (replace_struct(part(number, n), part=False, handed_on=True) for number, n in enumerate(sizes))
    committed = {record.unit: record for record in records}
    while True:
        joins, left = phase_tree(committed, 0, most_files, target)
        if not joins:
            break
        nbytes = [unit.nbytes for unit in joins]
        assert len(joins) == 1 or sum(nbytes) <= TWICE_AT_MOST * sum(sizes)
        for unit in joins:
            joined = (OutputFile(f"{unit.id}.phase", unit.nbytes, 1, "0"),)
            names = tuple(piece.relative for piece in unit.pieces)
            committed[unit.id] = CommitRecord(
                unit.id, 1, outputs=joined, order=unit.order, joined=names, handed_on=True
            )
    assert len(left) <= most_files
    assert sum(record.outputs[0].bytes for record in left) == sum(sizes)
    assert [record.order for record in left] == sorted(record.order for record in left)


def test_a_joined_file_is_named_after_its_first_unit():
    (unit,) = plan_joins([part(3, 10), part(4, 10)], 100, TARGET)

    assert TARGET.output_name(unit) == f"a-{unit_id('a.jsonl', 3)}.jsonl"
    assert [piece.path for piece in unit.pieces] == [
        f"out/_thresher/parts/a-{unit_id('a.jsonl', number)}.jsonl" for number in (3, 4)
    ]


def test_files_of_a_target_size_hold_consecutive_units(tmp_path: Path):
    out = tmp_path / "out"
    run = whole_run(request(out, target_file_size=150), 6)

    manifest = read_manifest(run.run_dir)
    with_records = [unit.id for unit in units(6) if lines_of(unit)]
    assert [unit for line in manifest for unit in line.units] == with_records
    assert len(manifest) < len(with_records)
    assert b"".join((out / line.path).read_bytes() for line in manifest) == b"".join(
        line + b"\n" for unit in units(6) for line in lines_of(unit)
    )
    assert not (out / "_thresher/parts").exists()
    assert sorted(os.listdir(out)) == sorted(["_thresher", *(line.path for line in manifest)])


def test_parts_are_not_visible_as_output(tmp_path: Path):
    run = open_run(request(tmp_path / "out", target_file_size=150))
    commit(run, units(1)[0])
    run.fold(units(1)[0].id)

    assert os.listdir(tmp_path / "out") == ["_thresher"]
    assert run.output_paths() == []
    run.abandon(1)


def test_joining_goes_on_where_it_was_interrupted(tmp_path: Path):
    asked = request(tmp_path / "out", target_file_size=150)
    run = open_run(asked)
    commit_all(run, units(6))
    first, *_ = [record for record in run.committed.values() if record.joined]
    run.abandon(1)
    again = open_run(asked)

    assert again.join_units() == []
    assert first.unit in again.committed
    again.finish("finished", 0)


def test_counts_of_parts_are_not_counted_again_when_they_are_joined(tmp_path: Path):
    run = whole_run(request(tmp_path / "out", target_file_size=150), 6)

    assert sum(record.written for record in run.committed.values()) == sum(len(lines_of(unit)) for unit in units(6))


def test_without_a_ledger_parts_are_joined_too_and_leave_nothing(tmp_path: Path):
    run = open_run(request(tmp_path / "out", target_file_size=10_000, ledger=False))
    for unit in units(3):
        run.fold(unit.id, commit(run, unit))
    (joined,) = run.join_units()
    run.fold(joined.id, join(run.target, JsonlWriter("unused"), joined))
    paths = run.output_paths()
    run.finish("finished", 0)

    assert [str(path) for path in (tmp_path / "out").iterdir()] == paths
    assert Path(paths[0]).read_bytes() == b"".join(line + b"\n" for unit in units(3) for line in lines_of(unit))
