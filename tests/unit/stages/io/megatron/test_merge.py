# SPDX-License-Identifier: Apache-2.0
"""Merged files hold the sequences of all files, in order, and wrong input is refused before anything is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.stages.io.megatron.reading import IndexedDataset
from thresher import DocumentBatch, merge_file_prefixes
from thresher.cli.main import main
from thresher.errors import InputError, OutputRefusedError
from thresher.stages.io.megatron import merge as module
from thresher.stages.io.megatron.indexed_file import TokenFiles


def pair(prefix: Path, sequences: list[list[int]], kind: Any = None) -> str:
    """Write a pair of files."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    files = TokenFiles(str(prefix), "ids")
    column = pa.array(sequences, pa.list_(kind or pa.uint16()))
    files.write(DocumentBatch(pa.table({"ids": column})))
    files.close()
    return str(prefix)


@pytest.mark.parametrize("read_bytes", [8, 4 * 2**20])
def test_the_sequences_of_all_files_follow_each_other(
    tmp_path: Path, read_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READ_BYTES", read_bytes)
    pair(tmp_path / "in/b", [[9], [8, 7]])
    pair(tmp_path / "in/a", [[n, n + 1, n + 2] for n in range(20)])
    pair(tmp_path / "in/below/c", [[5]])
    pair(tmp_path / "in/_skipped", [[1]])
    merged = merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "out/all"))
    found = IndexedDataset(tmp_path / "out/all")
    assert found.to_lists() == [*([n, n + 1, n + 2] for n in range(20)), [9], [8, 7], [5]]
    assert found.document_indices.tolist() == list(range(24))
    assert merged == (str(tmp_path / "out/all"), 3, 23, 64, "uint16", 128)
    assert sorted(os.listdir(tmp_path / "out")) == ["all.bin", "all.idx"]


def test_the_merged_pair_is_the_one_that_a_single_unit_would_have_made(tmp_path: Path) -> None:
    sequences = [[n] * (n + 1) for n in range(9)]
    pair(tmp_path / "in/0", sequences[:4], pa.int32())
    pair(tmp_path / "in/1", sequences[4:], pa.int32())
    pair(tmp_path / "whole", sequences, pa.int32())
    merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "merged"))
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"merged{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


def test_documents_of_several_sequences_stay_documents(tmp_path: Path) -> None:
    pair(tmp_path / "in/0", [[1], [2], [3]])
    index = (tmp_path / "in/0.idx").read_bytes()
    borders = np.array([0, 2, 3], dtype="<i8").tobytes()  # two documents, of two sequences and of one
    (tmp_path / "in/0.idx").write_bytes(index[:26] + (3).to_bytes(8, "little") + index[34 : 34 + 36] + borders)
    pair(tmp_path / "in/1", [[4], [5]])
    merged = merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "all"))
    found = IndexedDataset(tmp_path / "all")
    assert found.document_indices.tolist() == [0, 2, 3, 4, 5]
    assert merged.documents == 4


def test_a_list_of_prefixes_is_merged_in_its_order(tmp_path: Path) -> None:
    prefixes = [pair(tmp_path / name, [[number]]) for number, name in enumerate("abc")]
    merge_file_prefixes(prefixes[::-1], str(tmp_path / "all"))
    assert IndexedDataset(tmp_path / "all").to_lists() == [[2], [1], [0]]


def test_an_output_is_replaced_only_where_that_is_asked_for_and_never_merged_into_itself(tmp_path: Path) -> None:
    pair(tmp_path / "a", [[1]])
    output = str(tmp_path / "z")
    merge_file_prefixes(str(tmp_path), output)
    with pytest.raises(OutputRefusedError, match=r"z\.bin exists; choose another prefix, or use --overwrite"):
        merge_file_prefixes(str(tmp_path), output)
    assert merge_file_prefixes(str(tmp_path), output, overwrite=True).documents == 1
    with pytest.raises(OutputRefusedError, match="is one of the pairs to merge"):
        merge_file_prefixes([str(tmp_path / "a"), output], output, overwrite=True)


def test_nothing_is_left_of_a_merge_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair(tmp_path / "in/a", [[1]])

    def failing(*_: Any) -> Any:
        yield b"half"
        raise OSError("no space left on device")

    monkeypatch.setattr(module, "_all_ids", failing)
    with pytest.raises(OSError, match="no space"):
        merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "out/all"))
    assert os.listdir(tmp_path / "out") == []


def damaged(tmp_path: Path, how: str) -> None:
    pair(tmp_path / "in/a", [[1, 2], [3]])
    pair(tmp_path / "in/b", [[4]])
    index, ids = tmp_path / "in/b.idx", tmp_path / "in/b.bin"
    if how == "no bin":
        ids.unlink()
    elif how == "no idx":
        index.unlink()
    elif how == "short bin":
        ids.write_bytes(b"")
    elif how == "short idx":
        index.write_bytes(index.read_bytes()[:-1])
    elif how == "no index":
        index.write_bytes(b"\x00" * 60)
    elif how == "version":
        index.write_bytes(index.read_bytes().replace(b"\x00\x00\x01", b"\x00\x00\x02", 1))
    elif how == "types":
        pair(tmp_path / "in/b", [[70_000]], pa.int32())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("no bin", r"b\.bin is missing beside its other half"),
        ("no idx", r"b\.idx is missing beside its other half"),
        ("short bin", r"b\.bin has 0 bytes, and its index is about 2"),
        ("short idx", r"b\.idx has 61 bytes, and an index of 1 sequences has 62"),
        ("no index", r"b\.idx is not an index of token ids"),
        ("version", r"b\.idx: version 2"),
        ("types", r"b has ids of int32 and .*a of uint16; merge files that were made with the same vocabulary"),
    ],
)
def test_damaged_files_are_named_before_anything_is_written(tmp_path: Path, how: str, said: str) -> None:
    damaged(tmp_path, how)
    with pytest.raises(InputError, match=said):
        merge_file_prefixes(str(tmp_path / "in"), str(tmp_path / "out/all"))
    assert not (tmp_path / "out").exists()


def test_a_folder_without_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no pair of \.bin and \.idx files"):
        merge_file_prefixes(str(tmp_path), str(tmp_path / "all"))
    with pytest.raises(InputError, match="none is not there"):
        merge_file_prefixes(str(tmp_path / "none"), str(tmp_path / "all"))


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair(tmp_path / "in/a", [[1, 2], [3]])
    assert main(["merge-tokens", str(tmp_path / "in"), str(tmp_path / "all")]) == 0
    assert capsys.readouterr().out.endswith(
        "all.bin and .idx: 2 documents, 3 tokens of uint16 (6 B), from 1 pair of files\n"
    )
    assert main(["merge-tokens", str(tmp_path / "in"), str(tmp_path / "all"), "--json"]) == 4
    capsys.readouterr()
    assert main(["merge-tokens", str(tmp_path / "in"), str(tmp_path / "all"), "--json", "--overwrite"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["documents"], facts["tokens"], facts["token_type"]) == (2, 3, "uint16")
