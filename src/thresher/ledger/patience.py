# SPDX-License-Identifier: Apache-2.0
"""What an object store's refusals mean, and how long we ask again.

A call that got no answer may have happened or not. So a call that may be repeated is repeated, and one that may not be
is asked after first.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Meaning = Literal["exists", "conflict", "gone", "unclear", "unsupported", "refused"]

TRIES = 8
"""How often a call is made before we give up."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_BUSY = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestTimeTooSkewed"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted"}


def meaning(error: BaseException) -> Meaning:
    """What an error of a call to a store says about the call.

    `exists`: the condition did not hold. `conflict`: somebody else was at it at the same time. `gone`: what the call
    was about is not there. `unclear`: no answer, or one that says nothing. `unsupported`: the store has no such call.
    `refused`: asking again does not help.
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


def _meaning_of_answer(response: dict[str, Any]) -> Meaning:
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
    """Errors of the libraries below fsspec that are no `OSError`; those libraries are loaded if one was raised."""
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


def waits() -> Iterator[float]:
    """Seconds to wait after each failed call but the last; the waits grow and are never quite the same."""
    for number in range(TRIES - 1):
        yield min(_FIRST_WAIT_S * 2**number, _LONGEST_WAIT_S) * random.uniform(0.5, 1.0)


def repeated(call: Callable[[], T]) -> T:
    """The answer of a call that may be made again, which is done while it is unclear what became of it."""
    for wait_s in waits():
        try:
            return call()
        except Exception as error:
            if meaning(error) not in ("unclear", "conflict"):
                raise
        time.sleep(wait_s)
    try:
        return call()
    except Exception as error:
        raise as_os_error(error) from error


def as_os_error(error: Exception) -> OSError:
    """An error of a store as one of the operating system, which `failures.writing` can explain."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return OSError(errno.EIO, f"the store did not answer after {TRIES} tries ({type(error).__name__}: {error})")
