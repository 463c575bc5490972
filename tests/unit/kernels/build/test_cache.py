# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept: a folder of the user's own, and what happens where there is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from thresher.kernels.build import cache


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a folder for temporary files of the test's own; Numba is told nothing."""
    monkeypatch.setenv(cache.VARIABLE, "restored behind the test")
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_temporary", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache, "_config_of_numba", lambda: None)
    (tmp_path / "tmp").mkdir()


def test_the_folder_is_in_the_users_cache_and_for_the_user_alone(tmp_path: Path) -> None:
    cache.use_own_folder()
    assert cache.folder() == str(tmp_path / "cache" / "thresher" / cache.name_of_build())
    assert stat.S_IMODE(os.stat(cache.folder()).st_mode) == 0o700
    assert not cache.is_temporary()


def test_a_numba_that_was_imported_before_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(CACHE_DIR="")
    monkeypatch.setattr(cache, "_config_of_numba", lambda: config)
    cache.use_own_folder()
    assert cache.folder() == config.CACHE_DIR


def test_the_users_own_setting_for_numba_is_where_ours_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "mine"))
    cache.use_own_folder()
    assert cache.folder() == str(tmp_path / "mine" / cache.name_of_build())
    cache.use_own_folder()
    assert cache.folder() == str(tmp_path / "mine" / cache.name_of_build()), "a second time changes nothing"


def test_the_folder_of_another_build_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kernels-of-yesterday"))
    cache.use_own_folder()
    assert cache.folder() == str(tmp_path / cache.name_of_build())


def test_a_home_that_cannot_be_written_to_gives_a_temporary_folder_that_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    cache.use_own_folder()
    first = cache.folder()
    assert first.startswith(str(tmp_path / "tmp" / "thresher-"))
    assert cache.is_temporary()
    monkeypatch.delenv(cache.VARIABLE)
    cache.use_own_folder()
    assert cache.folder() == first


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    theirs = tmp_path / "cache" / "thresher" / cache.name_of_build()
    theirs.mkdir(parents=True)
    theirs.chmod(0o777)
    (tmp_path / "tmp" / f"thresher-{os.getuid()}").mkdir()
    (tmp_path / "tmp" / f"thresher-{os.getuid()}").chmod(0o777)
    cache.use_own_folder()
    assert cache.folder().startswith(str(tmp_path / "tmp" / "thresher-kernels-"))


def test_a_link_to_a_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "cache" / "thresher").mkdir(parents=True)
    (tmp_path / "cache" / "thresher" / cache.name_of_build()).symlink_to(tmp_path / "elsewhere")
    cache.use_own_folder()
    assert cache.is_temporary()


@pytest.mark.parametrize("changed", ["source", "compiler", "processor", "setting"])
def test_the_name_changes_with_all_that_machine_code_depends_on(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "kernel.py").write_text("one")
    monkeypatch.setattr(cache, "KERNELS", str(tmp_path))
    before = cache.name_of_build.__wrapped__()
    assert cache.name_of_build.__wrapped__() == before
    if changed == "source":
        (tmp_path / "room" / "helper.py").write_text("two")
    elif changed == "compiler":
        monkeypatch.setattr(cache, "_version_file", lambda name: b"another")
    elif changed == "processor":
        monkeypatch.setattr(cache, "_processor", lambda: "another")
    else:
        monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert cache.name_of_build.__wrapped__() != before


def test_copies_of_the_same_sources_share_a_build_whatever_is_beside_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = set()
    for place in ("one", "two"):
        (tmp_path / place / "build").mkdir(parents=True)
        (tmp_path / place / "build" / "kernel.py").write_text("the same")
        (tmp_path / place / "build" / "compile.py").write_text(f"when and where to compile, of {place}")
        monkeypatch.setattr(cache, "KERNELS", str(tmp_path / place))
        names.add(cache.name_of_build.__wrapped__())
    assert len(names) == 1


def test_code_for_a_named_processor_is_the_same_on_every_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "KERNELS", str(tmp_path))
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3")
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "")
    names = set()
    for processor in ("one", "another"):
        monkeypatch.setattr(cache, "_processor", lambda said=processor: said)
        names.add(cache.name_of_build.__wrapped__())
    assert len(names) == 1
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    assert cache.name_of_build.__wrapped__() not in names, "Numba takes the features of the machine then"


# -- old builds -----------------------------------------------------------------------------------------------------

NOW = 2_000_000_000.0
OLD, RECENT = NOW - cache.UNUSED_S - 60, NOW - cache.UNUSED_S + 60


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
    cache.remove_old_builds()
    assert [path.exists() for path in (old, read, written)] == [False, True, True]


def test_the_build_in_use_other_folders_and_links_stay(folder: Path) -> None:
    in_use = folder / ("kernels-" + "0" * 16)
    other = build(folder, "indexes", read=OLD)
    similar = build(folder, "kernels-of-mine", read=OLD)
    target = build(folder, "elsewhere", read=OLD)
    link = folder / ("kernels-" + "d" * 16)
    link.symlink_to(target)
    cache.remove_old_builds()
    assert all(path.exists() for path in (in_use, other, similar, target, link))
