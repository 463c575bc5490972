# SPDX-License-Identifier: Apache-2.0
"""Functions on files that scripts call before they make a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def get_all_file_paths_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | list[str] | None = None,
    storage_options: dict[str, Any] | None = None,
    fs: Any = None,
) -> list[str]:
    """Return the paths of the files in a folder in input order, those of folders in it on request.

    `keep_extensions`: endings of names. Names that begin with `.` or `_` are left out, as readers leave them out.
    """
    del fs  # the path says where it is
    return [name for name, _ in _files(path, recurse_subdirectories, keep_extensions, storage_options)]


def get_all_file_paths_and_size_under(
    path: str,
    recurse_subdirectories: bool = False,
    keep_extensions: str | list[str] | None = None,
    storage_options: dict[str, Any] | None = None,
    fs: Any = None,
    sort_by_size: bool = True,
) -> list[tuple[str, int]]:
    """Return the same with their sizes in bytes, the smallest first unless told otherwise."""
    del fs
    found = list(_files(path, recurse_subdirectories, keep_extensions, storage_options))
    return sorted(found, key=lambda pair: pair[1]) if sort_by_size else found


def _files(
    path: str, recurse: bool, endings: str | list[str] | None, storage_options: dict[str, Any] | None
) -> Iterator[tuple[str, int]]:
    from thresher.stages.io.listing import AcceptedFiles, find_files

    wanted = [endings] if isinstance(endings, str) else list(endings or [""])
    accepted = AcceptedFiles("the listing", tuple(ending.lower() for ending in wanted))
    for info in find_files(path, accepted, storage_options):
        if recurse or "/" not in info.relative:
            yield info.path, info.size
