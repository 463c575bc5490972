# SPDX-License-Identifier: Apache-2.0
"""Errors of user code: which exceptions count as stage failures, how to format them safely, and what they mean.

A stage may raise anything: classes that derive from `BaseException` (a Rust panic does), `KeyboardInterrupt`,
`asyncio.CancelledError`, and classes whose own `__str__` raises. All of these count as a failure of the stage on its
input, except a `ControlSignal`. So user code is called like this:

    except ControlSignal:
        raise
    except BaseException as error:
        ... message_of(error) ...

The signals Ctrl-C and SIGTERM are raised as classes of their own, so that a stage cannot raise them.
"""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
import traceback
from collections.abc import Iterator
from types import FrameType


class ControlSignal(BaseException):
    """A signal that the framework raises to abort a call. It passes through stages and never counts as a stage
    failure."""


TERMINATED = 143
"""The exit code after SIGTERM."""


class Interrupted(KeyboardInterrupt, ControlSignal):
    """Raised on Ctrl-C. A `KeyboardInterrupt` that a stage raises itself is of another class."""


class Terminated(SystemExit, ControlSignal):
    """Raised on SIGTERM."""


def raised_by(number: int) -> BaseException:
    return Terminated(TERMINATED) if number == signal.SIGTERM else Interrupted()


@contextlib.contextmanager
def signals_raise(*numbers: signal.Signals) -> Iterator[None]:
    """Make these signals raise `Interrupted` or `Terminated` inside the block; works in the main thread only."""

    def received(number: int, frame: FrameType | None) -> None:
        raise raised_by(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, received) for number in numbers} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def error_text(error: BaseException) -> str:
    """Return the message of an error as encodable text. It is not redacted: use `message_of` for text that is shown."""
    try:
        text = str(error)
    except ControlSignal:
        raise
    except BaseException as second:
        return f"its text is not known, because its __str__ raised {type(second).__name__}"
    return text.encode("utf-8", "replace").decode()


def error_report(error: BaseException, frames: traceback.StackSummary | None = None) -> str:
    """Return the traceback of an error with all its causes; with `frames`, format only these frames and no causes."""
    try:
        if frames is None:
            lines = traceback.format_exception(error)
        else:
            head = "Traceback (most recent call last):\n"
            lines = [head, *frames.format(), *traceback.format_exception_only(error)]
    except ControlSignal:
        raise
    except BaseException:  # for example a SyntaxError whose line number is not a number
        lines = [f"{type(error).__name__}: {error_text(error)}"]
    return "".join(lines).rstrip().encode("utf-8", "replace").decode()


# -- writes to a read-only buffer: NumPy, memoryviews, Cython, Numba ---------------------------------------------------


_READ_ONLY = ("read-only", "readonly", "WRITEABLE flag")


def is_read_only(error: BaseException) -> bool:
    """Return True if an error says that a buffer cannot be changed."""
    if not isinstance(error, ValueError | TypeError) and type(error).__name__ != "TypingError":
        return False
    text = error_text(error)
    return any(words in text for words in _READ_ONLY)


# -- out of memory, which libraries report in different ways: matched by type name and message -------------------------


OUT_OF_MEMORY = "out-of-memory"
"""Error kind of a record that does not fit in memory even on its own."""

_TYPE_NAMES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
_LIBRARIES = frozenset({"torch", "onnxruntime", "jaxlib", "tensorflow", "cupy", "cudf", "rmm"})
_TEXTS = (
    "out of memory",  # torch, CUDA, HIP, JAX
    "can't allocate memory",  # torch on a CPU
    "cannot allocate memory",  # C library
    "failed to allocate memory",  # ONNX Runtime
    "could not create a primitive",  # oneDNN, inside of torch on a CPU
    "bad_alloc",  # C++
    "bad allocation",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "resource_exhausted",  # JAX
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if `error` or one of its causes means out of memory."""
    causes: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and not any(seen is cause for cause in causes):  # a cause may lead back to the error
        if _means_out_of_memory(seen):
            return True
        causes.append(seen)
        seen = seen.__cause__
    return False


def _means_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    kinds = type(error).__mro__
    if any(kind.__name__ in _TYPE_NAMES for kind in kinds):
        return True
    # Other errors may quote a document that mentions memory, so only those of libraries are examined.
    if not (isinstance(error, RuntimeError) or any(str(kind.__module__).split(".")[0] in _LIBRARIES for kind in kinds)):
        return False
    text = error_text(error).lower()
    return any(known in text for known in _TEXTS)


# -- transient errors -------------------------------------------------------------------------------------------------


_TRANSIENT = frozenset(
    {
        "ConnectionError",  # Python, requests
        "TimeoutError",
        "Timeout",  # requests
        "TransportError",  # httpx
        "APIConnectionError",  # clients of model endpoints
        "RateLimitError",
        "InternalServerError",
        "ServiceUnavailable",
        "BlockingIOError",
        "InterruptedError",
    }
)
"""Class names of transient errors. Matching by name avoids importing the libraries that define them."""


def is_transient(error: BaseException) -> bool:
    """Return True if the same call may succeed later without any change."""
    return any(kind.__name__ in _TRANSIENT for kind in type(error).__mro__)
