# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with disks and folders, said so that people can act on it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from thresher.errors import OutputRefusedError, RunFailedError, ThresherError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def storage_error(error: OSError, path: str) -> ThresherError:
    """The error to raise when `path` could not be written."""
    path = str(error.filename or path)
    if error.errno in _FULL:
        what = {errno.EDQUOT: "the disk quota is used up", errno.EFBIG: "the file is larger than allowed here"}
        return RunFailedError(
            f"{path}: cannot write, {what.get(error.errno or 0, 'the disk is full')}. What is committed stays; "
            "make room and run the same command again to go on"
        )
    if error.errno in _FORBIDDEN:
        reason = "the file system is read-only" if error.errno == errno.EROFS else "permission denied"
        return OutputRefusedError(f"{path}: cannot write, {reason}. Choose another folder or change its permissions")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return OutputRefusedError(f"{path}: cannot make a folder, a file is in the way. Choose another output folder")
    reason = error.strerror or str(error) or type(error).__name__
    return RunFailedError(f"{path}: cannot write: {reason}. What is committed stays; the same command goes on")


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn errors of the operating system into ours while `path` is written."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error
