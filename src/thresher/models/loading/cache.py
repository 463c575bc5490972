# SPDX-License-Identifier: Apache-2.0
"""Copies of remote model folders on this machine, and the checksums of their files.

A copy is made in a folder beside its place, checked, and renamed, so that a place holds all files or does not exist.
Processes that want the same model wait for the first one. The name of the place has a hash of the names, sizes and
versions of the remote files: a model that changed is fetched again, and one in use is not written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from thresher.core.files.filesystem import FileInfo, list_files, open_read
from thresher.errors import InputError

CACHE = "THRESHER_MODEL_CACHE"
"""Variable that names the folder for copies of models."""
_PIECE_BYTES = 4 * 2**20


def cache_folder(given: str | None = None) -> str:
    """Return the folder for copies of models."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return given or os.environ.get(CACHE) or os.path.join(home, "thresher", "models")


def folder_problems(caller: str, path: str) -> list[str]:
    """Return what is wrong with the path of a local model."""
    if os.path.isdir(path):
        return []
    what = "is a file, and a folder is needed" if os.path.exists(path) else "does not exist"
    return [f"{caller}: {path!r} {what}; give a folder that holds a model, a URL, or owner/name of the hub"]


class RemoteFolder(NamedTuple):
    """A model folder at a URL."""

    caller: str
    """Stage and parameter, for error messages."""
    url: str
    """Where it is."""
    storage_options: dict[str, Any] | None
    """Options of fsspec."""
    keep: Callable[[str], bool]
    """Tells of a relative path whether the file is needed."""


def fetch_url(remote: RemoteFolder, sha256: Mapping[str, str], cache_dir: str | None) -> str:
    """Return a local copy of a remote folder; make it if there is none of its current version."""
    files = [info for info in list_files(remote.url, remote.storage_options) if remote.keep(info.relative)]
    if not files:
        raise InputError(
            f"{remote.caller}: there are no files below {remote.url}; give the folder that holds the model"
        )
    root = cache_folder(cache_dir)
    os.makedirs(root, exist_ok=True)
    place = os.path.join(root, _place_name(remote.url, files))
    if os.path.isdir(place):
        return verified(remote.caller, place, sha256)
    with _locked(f"{place}.lock"):
        if not os.path.isdir(place):
            _copy(remote, files, place, sha256)
    return place


def verified(caller: str, folder: str, sha256: Mapping[str, str]) -> str:
    """Return the folder if its files have these checksums."""
    for relative, wanted in sha256.items():
        path = os.path.join(folder, relative)
        if not os.path.isfile(path):
            raise InputError(f"{caller}: sha256 names {relative!r}, and {folder} has no such file")
        found = _sha256(path)
        if found != wanted.lower():
            raise InputError(
                f"{caller}: {path} has the sha256 {found}, and {wanted.lower()} is expected; fetch the model again, "
                "or correct sha256"
            )
    return folder


def _place_name(url: str, files: Sequence[FileInfo]) -> str:
    facts = "\n".join(f"{info.relative}\t{info.size}\t{info.version}" for info in files)
    digest = hashlib.sha256(f"{url}\n{facts}".encode()).hexdigest()[:24]
    last = url.rstrip("/").rsplit("/", 1)[-1]
    readable = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in last)[:40]
    return f"{readable}-{digest}"


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold a lock that the kernel releases if this process ends."""
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy(remote: RemoteFolder, files: Sequence[FileInfo], place: str, sha256: Mapping[str, str]) -> None:
    partial = tempfile.mkdtemp(prefix=f"{os.path.basename(place)}.", dir=os.path.dirname(place))
    try:
        for info in files:
            _copy_file(info, os.path.join(partial, *info.relative.split("/")), remote.storage_options)
        verified(remote.caller, partial, sha256)
        os.chmod(partial, 0o755)
        os.rename(partial, place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # gone after the renaming


def _copy_file(info: FileInfo, target: str, storage_options: dict[str, Any] | None) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open_read(info.path, 0, storage_options) as source, open(target, "wb") as copy:
        shutil.copyfileobj(source, copy, _PIECE_BYTES)
        copy.flush()
        os.fsync(copy.fileno())
    size = os.path.getsize(target)
    if size != info.size:
        raise InputError(f"{info.path}: {size:,} bytes were read and {info.size:,} were listed; it changed meanwhile")


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
