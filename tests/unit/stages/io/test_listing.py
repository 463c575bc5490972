# SPDX-License-Identifier: Apache-2.0
"""From what a user writes to files in input order."""

from __future__ import annotations

import os
import string
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.errors import InputError, UsageError
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.listing import AcceptedFiles, find_files
from thresher.stages.io.parquet.reader import ParquetReader

WANTED = AcceptedFiles("TestReader", (".jsonl", ".json"), (".gz", ".zst"))


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")


def found(file_paths: str | list[str]) -> list[str]:
    return [info.relative for info in find_files(file_paths, WANTED)]


def test_a_folder_is_searched_with_everything_below(tmp_path: Path) -> None:
    touch(tmp_path, "b.jsonl", "a/x.json.gz", "a.jsonl", "a/deep/er/y.JSONL.ZST", "a-b/z.json", "note.txt", "x.gz")
    assert found(str(tmp_path)) == ["a-b/z.json", "a.jsonl", "a/deep/er/y.JSONL.ZST", "a/x.json.gz", "b.jsonl"]
    assert found(f"{tmp_path}/") == found(f"file://{tmp_path}") == found(str(tmp_path))


def test_names_that_begin_with_a_dot_or_underscore_are_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", ".b.jsonl", "_c.jsonl", "_thresher/d.jsonl", "x/.git/e.jsonl", "x/f_.jsonl")
    assert found(str(tmp_path)) == ["a.jsonl", "x/f_.jsonl"]
    assert found(f"{tmp_path}/*") == ["a.jsonl", "x/f_.jsonl"]
    assert found(f"{tmp_path}/**/*.jsonl") == ["a.jsonl", "x/f_.jsonl"]
    assert found(f"{tmp_path}/_*.jsonl") == ["_c.jsonl"]
    assert found(f"{tmp_path}/_c.jsonl") == ["_c.jsonl"]


names = st.text(string.ascii_lowercase + "-.0Zé", min_size=1, max_size=4).filter(lambda name: name.strip("."))
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + ".jsonl")


@settings(max_examples=40)
@given(st.sets(paths, min_size=1, max_size=12))
def test_the_order_is_the_byte_order_of_relative_paths(wanted: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            try:
                touch(Path(folder), name)
            except (NotADirectoryError, FileExistsError, IsADirectoryError):
                continue  # one name is a file and another wants it as a folder
        there = [str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()]
        visible = [name for name in there if not any(part.startswith((".", "_")) for part in name.split("/"))]
        if visible:
            assert found(folder) == sorted(visible, key=os.fsencode)


def test_globs(tmp_path: Path) -> None:
    touch(tmp_path, "2023/a.jsonl", "2024/b.jsonl", "2024/c.txt", "2024/deep/d.jsonl", "e.jsonl", "f1.txt", "f2.txt")
    assert found(f"{tmp_path}/*.jsonl") == ["e.jsonl"]
    assert found(f"{tmp_path}/f[13].txt") == ["f1.txt"]
    assert found(f"{tmp_path}/202?/*.jsonl") == ["2023/a.jsonl", "2024/b.jsonl"]
    assert found(f"{tmp_path}/2024/*.*") == ["b.jsonl", "c.txt"]
    assert found(f"{tmp_path}/**/d.jsonl") == ["2024/deep/d.jsonl"]
    assert found(f"{tmp_path}/**/*.txt") == ["2024/c.txt", "f1.txt", "f2.txt"]


def test_a_glob_that_fits_a_folder_takes_what_is_in_it(tmp_path: Path) -> None:
    touch(tmp_path, "2023/a.jsonl", "2024/b.jsonl", "2024/c.txt", "2024/deep/d.jsonl")
    assert found(f"{tmp_path}/202*") == ["2023/a.jsonl", "2024/b.jsonl", "2024/deep/d.jsonl"]


def test_a_name_with_glob_characters_that_exists_is_that_file(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].jsonl", "a1.jsonl")
    assert found(f"{tmp_path}/a[1].jsonl") == ["a[1].jsonl"]


def test_a_list_is_read_below_its_common_parent_and_each_file_once(tmp_path: Path) -> None:
    touch(tmp_path, "x/b/1.jsonl", "x/a/2.jsonl", "x/a/3.txt", "x/c.jsonl")
    files = [f"{tmp_path}/x/c.jsonl", f"{tmp_path}/x/b", f"{tmp_path}/x/a/*", f"{tmp_path}/x/b/1.jsonl"]
    assert found(files) == ["a/2.jsonl", "a/3.txt", "b/1.jsonl", "c.jsonl"]
    assert found([f"{tmp_path}/x/b/1.jsonl"]) == ["1.jsonl"]


def test_relative_paths_are_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "in/a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert found("in") == found("./in") == found("in/a.jsonl") == ["a.jsonl"]
    assert [info.path for info in find_files("in", WANTED)] == [f"{tmp_path}/in/a.jsonl"]


def test_links_are_followed_and_cannot_loop(tmp_path: Path) -> None:
    touch(tmp_path, "real/a.jsonl")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "loop").symlink_to(tmp_path / "in")
    assert found(str(tmp_path / "in")) == ["link/a.jsonl"]


def test_listing_is_lazy(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jsonl", "b/2.jsonl")
    files: Iterator[object] = find_files(str(tmp_path), WANTED)
    assert len(list(islice(files, 1))) == 1
    touch(tmp_path, "b/3.jsonl")
    assert len(list(files)) == 2


def refusal(file_paths: str | list[str]) -> str:
    with pytest.raises(InputError) as refused:
        found(file_paths)
    return str(refused.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert refusal(f"{tmp_path}/nothing") == f"{tmp_path}/nothing does not exist; check the path"
    assert "the folder" in refusal(f"{tmp_path}/nothing/*.jsonl")
    assert "no file matches this pattern" in refusal(f"{tmp_path}/*.jsonl")
    touch(tmp_path, "a.jsonl")
    assert "does not exist" in refusal(f"{tmp_path}/a.jsonl/b")
    assert "nothing does not exist" in refusal([f"{tmp_path}/a.jsonl", f"{tmp_path}/nothing"])


def test_an_empty_folder_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) == (
        f"{tmp_path}: the folder has no files (names that begin with . or _ are skipped); "
        "TestReader looks for .jsonl .json (also followed by .gz .zst)"
    )
    touch(tmp_path, "full/a.jsonl")
    (tmp_path / "empty").mkdir()
    assert "empty: the folder has no files" in refusal([f"{tmp_path}/full", f"{tmp_path}/empty"])


def test_a_folder_of_other_files_is_refused_with_what_is_in_it(tmp_path: Path) -> None:
    touch(tmp_path, "a.parquet", "b.parquet", "c.txt", "README")
    assert "found: .parquet (2), no extension (1), .txt (1)" in refusal(str(tmp_path))


def test_a_link_to_nothing_is_refused_only_when_it_would_be_read(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl")
    (tmp_path / "b.txt").symlink_to(tmp_path / "gone")
    assert found(str(tmp_path)) == ["a.jsonl"]
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "gone")
    assert "b.jsonl is a broken link" in refusal(str(tmp_path))


def test_a_name_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff.jsonl")).write_bytes(b"{}\n")
    assert r"\udcff.jsonl: the name is not valid UTF-8" in refusal(str(tmp_path))


def test_a_pipe_is_no_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is not a regular file" in refusal(str(tmp_path / "pipe.jsonl"))
    touch(tmp_path, "a.jsonl")
    assert found(str(tmp_path)) == ["a.jsonl"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "in/b.jsonl")
    (tmp_path / "a.jsonl").chmod(0)
    with pytest.raises(InputError, match=r"a\.jsonl may not be read"):
        list(JsonlReader(str(tmp_path)).list_units())
    (tmp_path / "in").chmod(0)
    assert "in may not be read (no permission)" in refusal(str(tmp_path / "in"))
    (tmp_path / "in").chmod(0o700)


def test_different_file_systems_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl")
    with pytest.raises(UsageError, match="different file systems"):
        found([f"{tmp_path}/a.jsonl", "memory://b/*.jsonl"])


def test_readers_take_their_own_endings(tmp_path: Path) -> None:
    names = ["1.jsonl", "2.json.gz", "3.ndjson.zst", "4.jsonl.bz2", "5.json.xz", "6.jsonl.gzip"]
    touch(tmp_path, *names, "x.parquet", "x.pq", "x.csv", "x.gz", "x.parquet.gz")
    assert [info.relative for info in JsonlReader(str(tmp_path)).files()] == names
    assert [info.relative for info in ParquetReader(str(tmp_path)).files()] == ["x.parquet", "x.pq"]
