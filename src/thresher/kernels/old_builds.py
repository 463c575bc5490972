# SPDX-License-Identifier: Apache-2.0
"""Builds of kernels that nobody uses any more: each version of ours, of Numba and of Python leaves one behind."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

from thresher.kernels import cache

UNUSED_S = 90 * 86400.0
"""A build that nobody has read for so long is removed. Should it be wanted again, it is compiled again."""
_BUILD = re.compile(r"kernels-[0-9a-f]{16}")


def remove_old_builds() -> None:
    """Remove what is old beside the build that is in use, to which something was just added."""
    now_s = os.stat(cache.folder()).st_mtime
    for path in _other_builds():
        if now_s - _last_used(path) > UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)


def _other_builds() -> Iterator[str]:
    """Folders of this user with the name of a build, except the one in use."""
    in_use = cache.folder()
    with os.scandir(os.path.dirname(in_use)) as entries:
        for entry in entries:
            is_another = _BUILD.fullmatch(entry.name) is not None and entry.path != in_use
            if is_another and entry.is_dir(follow_symlinks=False) and entry.stat().st_uid == os.getuid():
                yield entry.path


def _last_used(path: str) -> float:
    """When anything in a folder was last written or, where the file system notes it, read."""
    used = os.stat(path).st_mtime
    for folder, _, names in os.walk(path):
        for name in names:
            facts = os.lstat(os.path.join(folder, name))
            used = max(used, facts.st_mtime, facts.st_atime)
    return used
