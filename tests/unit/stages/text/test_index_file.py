# SPDX-License-Identifier: Apache-2.0
"""Indexes in files: whole or not there, shared, and made again when what they were made of changes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from thresher.errors import RunFailedError
from thresher.stages.text import index_file
from thresher.stages.text.index_file import ArrayIndex, cached_index, map_index, write_index

INDEX = ArrayIndex(
    {"name": "é", "n": 3},
    {"a": np.arange(5, dtype=np.uint64), "none": np.zeros(0, dtype=np.uint16), "b": np.array([7], dtype=np.uint16)},
)


def test_what_is_written_is_mapped(tmp_path: Path) -> None:
    write_index(str(tmp_path / "x"), INDEX)
    found = map_index(str(tmp_path / "x"))
    assert found.facts == INDEX.facts
    assert {name: (array.dtype, array.tolist()) for name, array in found.arrays.items()} == {
        name: (array.dtype, array.tolist()) for name, array in INDEX.arrays.items()
    }
    assert not found.arrays["a"].flags.writeable
    assert found.arrays["a"].ctypes.data % 64 == 0


def test_a_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    class Unwritable:
        dtype, nbytes = "uint8", 8

        def __len__(self) -> int:
            return 8

        def __array__(self, *_: object, **__: object) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        write_index(str(tmp_path / "x"), ArrayIndex({}, {"a": Unwritable()}))  # type: ignore[dict-item]  # it is no array
    assert os.listdir(tmp_path) == []


def test_an_index_is_built_once_for_what_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "cache_folder", lambda: str(tmp_path))
    built = []

    def build() -> ArrayIndex:
        built.append(1)
        return INDEX

    for made_of in ({"x": 1}, {"x": 1}, {"x": 2}):
        assert cached_index("kind", made_of, build).facts == INDEX.facts
    assert len(built) == 2


def test_a_file_that_is_no_index_is_told(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}\n")
    with pytest.raises(RunFailedError, match="delete it, and it will be rebuilt"):
        map_index(str(tmp_path / "x"))


def test_the_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert index_file.cache_folder() == str(tmp_path / "thresher" / "indexes")


def test_without_a_home_there_is_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(index_file.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = index_file.cache_folder()
    assert folder == str(tmp_path / f"thresher-{os.getuid()}")
    os.chmod(folder, 0o777)
    with pytest.raises(RunFailedError, match="does not belong to this user alone"):
        index_file.cache_folder()
