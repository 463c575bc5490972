# SPDX-License-Identifier: Apache-2.0
"""Errors of local folders and object stores: what the user is told, how they are classified, and retries with backoff.

A call to an object store without an answer may or may not have taken effect. A call that is safe to repeat is repeated;
before any other, the caller checks what happened.
"""

from __future__ import annotations

import contextlib
import errno
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from thresher.errors import OutputRefusedError, RunFailedError, ThresherError, UsageError

T = TypeVar("T")
ErrorClass = Literal["exists", "conflict", "gone", "unclear", "unsupported", "refused"]

TRIES = 8
"""Number of attempts per call."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_BUSY = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestTimeTooSkewed"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted"}


# -- what the user is told ---------------------------------------------------------------------------------------------


_FULL = {errno.ENOSPC, errno.EDQUOT}
_TRANSIENT = {*_FULL, errno.EFBIG, errno.EIO, errno.ESTALE}
"""Errors that may be gone at the next attempt."""
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def storage_error(error: OSError, path: str) -> ThresherError:
    """Return the error to raise when `path` cannot be written."""
    path = str(error.filename or path)
    if error.errno == errno.EFBIG:
        return RunFailedError(
            f"{path}: cannot write, the file is larger than is allowed here (ulimit -f). What is committed stays; "
            "raise the limit and run the same command again to go on"
        )
    if error.errno in _FULL:
        what = "the disk quota is used up" if error.errno == errno.EDQUOT else "the disk is full"
        return RunFailedError(
            f"{path}: cannot write, {what}. What is committed stays; make room and run the same command again to go on"
        )
    if error.errno in _FORBIDDEN:
        reason = "the file system is read-only" if error.errno == errno.EROFS else "permission denied"
        return OutputRefusedError(f"{path}: cannot write, {reason}. Choose another folder or change its permissions")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return OutputRefusedError(f"{path}: cannot make a folder, a file is in the way. Choose another folder")
    reason = error.strerror or str(error) or type(error).__name__
    return RunFailedError(f"{path}: cannot write: {reason}. What is committed stays; the same command goes on")


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an `OSError` into a Thresher error while `path` is written."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


@contextlib.contextmanager
def making(folder: str) -> Iterator[None]:
    """Turn an `OSError` into a Thresher error while a folder is created before a run."""
    try:
        with writing(folder):
            yield
    except RunFailedError as failed:
        error = failed.__cause__
        if not isinstance(error, OSError) or error.errno in _TRANSIENT:
            raise
        path = error.filename or folder
        raise UsageError(f"{path}: cannot make a folder: {error.strerror or error}. Choose another folder") from error


# -- object stores -----------------------------------------------------------------------------------------------------


def classify(error: BaseException) -> ErrorClass:
    """Classify an error of a call to a store.

    `exists`: the condition did not hold. `conflict`: a concurrent call interfered. `gone`: the object does not exist.
    `unclear`: no answer, or one without meaning. `unsupported`: the store does not have this call. `refused`: repeating
    does not help.
    """
    for found in (error, error.__cause__):
        response = getattr(found, "response", None)
        if isinstance(response, dict):
            return _meaning_of_answer(response)
    if isinstance(error, FileExistsError):
        return "exists"
    if isinstance(error, FileNotFoundError):
        return "gone"
    if isinstance(error, NotImplementedError):
        return "unsupported"
    if isinstance(error, TimeoutError | ConnectionError) or _is_network_error(error):
        return "unclear"
    return "refused"


def _meaning_of_answer(response: dict[str, Any]) -> ErrorClass:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if status == 412 or code in ("PreconditionFailed", "412"):
        return "exists"
    if code in _BUSY or status == 429:
        return "unclear"
    if status == 409 and code in (*_CONFLICT, "409"):
        return "conflict"
    if status == 404 and code != "NoSuchBucket":
        return "gone"
    if status == 501 or code == "NotImplemented":
        return "unsupported"
    return "unclear" if status >= 500 else "refused"


def _is_network_error(error: BaseException) -> bool:
    """Return True for network errors of the libraries below fsspec that are not an `OSError`."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(
        names
        & {
            "botocore.exceptions.HTTPClientError",
            "botocore.exceptions.ConnectionError",
            "botocore.parsers.ResponseParserError",
            "aiohttp.client_exceptions.ClientError",
            "http.client.IncompleteRead",
            "http.client.HTTPException",
        }
    )


def backoff_waits() -> Iterator[float]:
    """Yield the seconds to wait after each failed call except the last, with exponential backoff and jitter."""
    for number in range(TRIES - 1):
        yield min(_FIRST_WAIT_S * 2**number, _LONGEST_WAIT_S) * random.uniform(0.5, 1.0)


def with_backoff(call: Callable[[], T]) -> T:
    """Return the answer of a call that is safe to repeat, and repeat it while the outcome is unclear."""
    for wait_s in backoff_waits():
        try:
            return call()
        except Exception as error:
            if classify(error) not in ("unclear", "conflict"):
                raise
        time.sleep(wait_s)
    try:
        return call()
    except Exception as error:
        raise as_os_error(error) from error


def as_os_error(error: Exception) -> OSError:
    """Return an error of a store as an `OSError` that `writing` can explain."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return OSError(errno.EIO, f"the store did not answer after {TRIES} tries ({type(error).__name__}: {error})")
