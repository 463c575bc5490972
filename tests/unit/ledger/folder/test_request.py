# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ledger.runs import units
from thresher.errors import OutputRefusedError, PlanError
from thresher.ledger.folder.output_files import data_files
from thresher.ledger.folder.request import changed_inputs, check_nesting, check_own_folders, refuse_changed_inputs


@pytest.mark.parametrize(
    ("source", "output", "said"),
    [
        ("in", "in", "is the input itself"),
        ("in", "in/out", "lies inside the input"),
        ("in", "in/deep/er", "lies inside the input"),
        ("out/in", "out", "lies inside the output"),
        ("in/../in", "in/", "is the input itself"),
        ("s3://bucket/in", "s3://bucket/in/out", "lies inside the input"),
        ("s3://bucket/in/", "s3://bucket/in", "is the input itself"),
    ],
)
def test_input_and_output_inside_each_other_are_refused(tmp_path: Path, source, output, said):
    def place(path: str) -> str:
        return path if "://" in path else str(tmp_path / path)

    with pytest.raises(PlanError) as refused:
        check_nesting([place(source)], place(output))

    assert said in str(refused.value)
    assert place(output) in str(refused.value)
    assert "choose" in str(refused.value)


def test_a_link_does_not_hide_that_the_output_lies_in_the_input(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")

    with pytest.raises(PlanError, match="inside the input"):
        check_nesting([str(tmp_path / "in")], str(tmp_path / "link" / "out"))


@pytest.mark.parametrize(("source", "output"), [("in", "in-out"), ("a/in", "a/out"), ("in/file.jsonl", "in/out")])
def test_neighbours_are_fine(tmp_path: Path, source, output):
    check_nesting([str(tmp_path / source)], str(tmp_path / output))


@pytest.mark.parametrize(
    ("output", "dropped_to", "run_dir"),
    [
        ("out", "out", None),
        ("out", "out/dropped", None),
        ("out", "out/_dropped", None),
        ("all/out", "all", None),
        ("out", None, "out"),
        ("out", None, "out/run"),
        ("all/out", None, "all"),
        ("out", "run/dropped", "run"),
        ("out", "dropped", "dropped/run"),
    ],
)
def test_folders_of_one_run_inside_each_other_are_refused(tmp_path: Path, output, dropped_to, run_dir):
    places = [None if name is None else str(tmp_path / name) for name in (output, dropped_to, run_dir)]

    with pytest.raises(PlanError, match="choose a path outside it"):
        check_own_folders(*places)


@pytest.mark.parametrize(
    ("output", "dropped_to", "run_dir"), [("out", "dropped", "run"), ("out", "out2", "out/_run"), (None, "d", None)]
)
def test_folders_beside_each_other_and_a_hidden_run_folder_in_the_output_are_fine(output, dropped_to, run_dir):
    check_own_folders(output, dropped_to, run_dir)


def test_the_same_input_is_no_change():
    assert changed_inputs(units(3), units(3)) is None


def test_changed_gone_and_new_files_are_named():
    before = [*units(2, "a.jsonl"), *units(2, "b.jsonl"), *units(1, "c.jsonl")]
    after = [*units(2, "a.jsonl"), *units(2, "b.jsonl", version="2"), *units(1, "d.jsonl")]

    change = changed_inputs(before, after)

    assert change == "changed: b.jsonl; gone: c.jsonl; new: d.jsonl"
    with pytest.raises(OutputRefusedError) as refused:
        refuse_changed_inputs("out/_thresher", change)
    for text in ("out/_thresher", "b.jsonl", "--accept-changes", "--fresh"):
        assert text in str(refused.value)


def test_only_files_that_look_like_records_may_be_deleted():
    names = ["a.jsonl", "b.jsonl.gz", "c.parquet", "d.txt", "sub/", "e.json.zst", "f.csv", "jsonl"]

    assert data_files(names) == ["a.jsonl", "b.jsonl.gz", "c.parquet", "e.json.zst"]
