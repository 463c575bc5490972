# SPDX-License-Identifier: Apache-2.0
"""Builds that nobody has used for months are removed, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thresher.kernels import cache
from thresher.kernels.old_builds import UNUSED_S, remove_old_builds

NOW = 2_000_000_000.0
OLD, RECENT = NOW - UNUSED_S - 60, NOW - UNUSED_S + 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where builds are; something was just added to the one in use."""
    in_use = tmp_path / ("kernels-" + "0" * 16)
    in_use.mkdir()
    os.utime(in_use, (NOW, NOW))
    monkeypatch.setattr(cache, "folder", lambda: str(in_use))
    return tmp_path


def build(folder: Path, name: str, *, read: float, written: float = OLD) -> Path:
    """A build, and when its file was last read and written."""
    inner = folder / name / "numba"
    inner.mkdir(parents=True)
    (inner / "code").touch()
    os.utime(inner / "code", (read, written))
    for path in (inner, folder / name):
        os.utime(path, (OLD, OLD))
    return folder / name


def test_what_was_neither_read_nor_written_for_months_is_removed(folder: Path) -> None:
    old = build(folder, "kernels-" + "a" * 16, read=OLD)
    read = build(folder, "kernels-" + "b" * 16, read=RECENT)
    written = build(folder, "kernels-" + "c" * 16, read=OLD, written=RECENT)
    remove_old_builds()
    assert [path.exists() for path in (old, read, written)] == [False, True, True]


def test_the_build_in_use_other_folders_and_links_stay(folder: Path) -> None:
    in_use = folder / ("kernels-" + "0" * 16)
    other = build(folder, "indexes", read=OLD)
    similar = build(folder, "kernels-of-mine", read=OLD)
    target = build(folder, "elsewhere", read=OLD)
    link = folder / ("kernels-" + "d" * 16)
    link.symlink_to(target)
    remove_old_builds()
    assert all(path.exists() for path in (in_use, other, similar, target, link))
