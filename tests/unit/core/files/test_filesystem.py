# SPDX-License-Identifier: Apache-2.0
"""Files by path, local and behind URLs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thresher.core.files import filesystem as fs
from thresher.errors import InputError, MissingPackageError


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("s3://bucket/key", True),
        ("memory://x", True),
        ("simplecache::s3://bucket/key", True),
        ("file:///tmp/x", False),
        ("/tmp/x", False),
        ("x:y", False),
        ("data/a://b", False),
        ("", False),
    ],
)
def test_which_paths_are_urls(path: str, remote: bool) -> None:
    assert fs.is_url(path) is remote


def test_joining_uses_forward_slashes() -> None:
    assert fs.join("a", "b", "c") == fs.join("a/", "b/", "c") == "a/b/c"
    assert fs.join("s3://bucket", "x") == "s3://bucket/x"
    assert fs.join("/", "x") == "/x"
    assert fs.join("", "x") == "x"


def test_a_local_file_is_described_and_read_without_fsspec(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"0123456789")
    info = fs.file_info(str(path))
    assert info == (str(path), "x.bin", 10, str(path.stat().st_mtime_ns))
    assert fs.file_info(f"file://{path}") == info
    with fs.open_read(str(path), 4) as opened:
        assert fs.opened_state(opened) == (10, info.version)
        target = bytearray(3)
        assert opened.readinto(target) == 3
        assert target == b"456"
    assert fs.read_start(str(path), 3) == b"012"
    assert fs.read_start(str(path), 99) == b"0123456789"
    assert fs.exists(str(path))
    assert not fs.exists(str(tmp_path / "y"))
    assert [fs.kind_of(str(place)) for place in (tmp_path, path, tmp_path / "y")] == ["folder", "file", "nothing"]


def test_a_remote_file_is_described_and_read_the_same_way() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    store.pipe("/remote/a/x.bin", b"0123456789")
    store.pipe("/remote/_b/y.bin", b"1")
    store.pipe("/remote/z.bin", b"12")
    url = "memory://remote/a/x.bin"
    info = fs.file_info(url)
    assert info[:3] == (url, "x.bin", 10)
    assert info.version
    with fs.open_read(url, 4) as opened:
        assert opened.read(3) == b"456"
    assert fs.read_start(url, 3) == b"012"
    assert fs.read_starts([url, "memory://remote/z.bin"], 3) == [b"012", b"12"]
    assert fs.exists(url)
    kinds = [fs.kind_of(place) for place in ("memory://remote/a", url, "memory://remote/nothing")]
    assert kinds == ["folder", "file", "nothing"]
    assert [(f.path, f.relative, f.size) for f in fs.list_files("memory://remote/")] == [
        (url, "a/x.bin", 10),
        ("memory://remote/z.bin", "z.bin", 2),
    ]
    assert len(list(fs.list_files("memory://remote", hidden=True))) == 3
    store.rm("/remote", recursive=True)


def test_a_walk_shows_hidden_names_only_when_asked(tmp_path: Path) -> None:
    for name in ("a", ".b", "_c/d", "e/f"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [info.relative for info in fs.list_files(str(tmp_path))] == ["a", "e/f"]
    assert [info.relative for info in fs.list_files(str(tmp_path), hidden=True)] == [".b", "_c/d", "a", "e/f"]
    assert [info.relative for info in fs.list_files(str(tmp_path), descend=lambda folder: folder != "e")] == ["a"]


def test_what_cannot_be_opened_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="x does not exist; check the path"):
        fs.open_read(str(tmp_path / "x"))
    with pytest.raises(InputError, match="is a folder"):
        fs.open_read(str(tmp_path))
    with pytest.raises(InputError, match="not a regular file"):
        fs.file_info(str(tmp_path))
    with pytest.raises(InputError, match="does not exist"):
        list(fs.list_files(str(tmp_path / "nothing")))
    os.symlink(tmp_path / "gone", tmp_path / "link")
    with pytest.raises(InputError, match="is a link to something that does not exist"):
        fs.open_read(str(tmp_path / "link"))
    with pytest.raises(InputError, match="memory://gone/x does not exist"):
        fs.file_info("memory://gone/x")


def test_an_unknown_kind_of_url_says_what_is_legal() -> None:
    with pytest.raises(InputError, match=r"nonsense.*s3://"):
        fs.exists("nonsense://x")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    def refuse(*_: object, **__: object) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", refuse)
    with pytest.raises(MissingPackageError, match=r"pip install 'thresher\[s3\]'"):
        fs.exists("s3://bucket/x")
