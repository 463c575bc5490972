# SPDX-License-Identifier: Apache-2.0
"""Functions on files that scripts call before they make a pipeline."""

from __future__ import annotations

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
    from thresher.stages.io.listing import AcceptedFiles, find_files

    endings = [keep_extensions] if isinstance(keep_extensions, str) else list(keep_extensions or [""])
    accepted = AcceptedFiles("get_all_file_paths_under", tuple(ending.lower() for ending in endings))
    found = find_files(path, accepted, storage_options)
    return [info.path for info in found if recurse_subdirectories or "/" not in info.relative]
