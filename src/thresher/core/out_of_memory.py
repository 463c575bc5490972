# SPDX-License-Identifier: Apache-2.0
"""Tells whether an error means that memory ran out, of this machine or of an accelerator.

Libraries say it in many ways. They are known by the names of their types and by their texts, so nothing is imported.
"""

from __future__ import annotations

import errno
import sys

OUT_OF_MEMORY = "out-of-memory"
"""The kind of error under which a record counts that does not fit, not even alone."""

_TYPE_NAMES = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})
_LIBRARIES = frozenset({"torch", "onnxruntime", "jaxlib", "tensorflow", "cupy", "cudf", "rmm"})
_TEXTS = (
    "out of memory",  # torch, CUDA, HIP, JAX
    "can't allocate memory",  # torch on a CPU
    "cannot allocate memory",  # what the C library says
    "failed to allocate memory",  # ONNX Runtime
    "bad_alloc",  # C++ in general
    "bad allocation",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "resource_exhausted",  # JAX
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error`, or what it was raised from, says that memory ran out."""
    seen: BaseException | None = error
    while seen is not None:
        if _says_so(seen):
            return True
        seen = seen.__cause__
    return False


def _says_so(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    kinds = type(error).__mro__
    if any(kind.__name__ in _TYPE_NAMES for kind in kinds):
        return True
    # Any other error may quote a document that speaks of memory: only those that libraries raise are read.
    if not (isinstance(error, RuntimeError) or any(kind.__module__.split(".")[0] in _LIBRARIES for kind in kinds)):
        return False
    text = str(error).lower()
    return any(known in text for known in _TEXTS)


def release_accelerator_memory() -> None:
    """Let torch give back what it keeps for later, where a stage has imported it and uses an accelerator."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.empty_cache()
