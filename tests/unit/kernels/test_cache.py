# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept: a folder of the user's own, and what happens where there is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from thresher.kernels import cache


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
    (tmp_path / "kernel.py").write_text("one")
    monkeypatch.setattr(cache, "_HERE", str(tmp_path))
    before = cache.name_of_build.__wrapped__()
    assert cache.name_of_build.__wrapped__() == before
    if changed == "source":
        (tmp_path / "helper.py").write_text("two")
    elif changed == "compiler":
        monkeypatch.setattr(cache, "_version_file", lambda name: b"another")
    elif changed == "processor":
        monkeypatch.setattr(cache, "_processor", lambda: "another")
    else:
        monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert cache.name_of_build.__wrapped__() != before
