# SPDX-License-Identifier: Apache-2.0
"""Arrays that take long to unpack, kept unpacked in the user's cache folder.

They are mapped into memory, so all workers of a machine share one copy and load it in no time. Without a folder that is
writable and safe, each worker unpacks them into its own memory.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Arrays: TypeAlias = Mapping[str, "npt.NDArray[Any]"]


def cached_arrays(
    key: str, names: Sequence[str], make: Callable[[], Arrays], check: Callable[[Arrays], None]
) -> Arrays:
    """Return the arrays that `make` returns under these names, from the cache if they were stored under this key.

    `key` must change whenever the contents do. `check` raises a `ValueError` for arrays that are damaged: those of the
    cache are then replaced.
    """
    folder = _folder()
    paths = {name: os.path.join(folder, f"{key}-{name}.npy") for name in names} if folder else {}
    with contextlib.suppress(OSError, ValueError):
        if paths:
            return _mapped(paths, check)
    made = make()
    check(made)
    with contextlib.suppress(OSError, ValueError):  # the disk may be full
        for name, path in paths.items():
            _write(path, made[name])
        if paths:
            return _mapped(paths, check)
    return made


def _folder() -> str | None:
    """Return the folder; None if it cannot be written to, or others can."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = os.path.join(os.path.abspath(base), "thresher", "models")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return path if _is_ours(os.lstat(path)) and os.access(path, os.W_OK) else None


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _mapped(paths: Mapping[str, str], check: Callable[[Arrays], None]) -> Arrays:
    import numpy as np

    for path in paths.values():
        if not _is_ours(os.lstat(path)):
            raise OSError(f"{path} can be written to by others")
    arrays = {name: np.load(path, mmap_mode="r", allow_pickle=False) for name, path in paths.items()}
    check(arrays)
    return arrays


def _write(path: str, array: npt.NDArray[np.generic]) -> None:
    """Write a file that is complete as soon as it has its name, also after a power cut."""
    import numpy as np

    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(handle, "wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
