# SPDX-License-Identifier: Apache-2.0
"""A stage that changes every record, and that misbehaves in one call of the whole run where a test asks for it."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

from thresher import DocumentBatch, ProcessingStage

_KEPT: list[bytearray] = []


class Touched(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds a field. `MISBEHAVIOUR` names what goes wrong, once; `SLOW_S` is how long 100 records take."""

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        """Give every record its number of characters."""
        texts = batch.values("text")
        time.sleep(float(os.environ.get("SLOW_S", "0")) * len(texts) / 100)
        result = batch.replace("characters", [len(text) for text in texts])
        how = os.environ.get("MISBEHAVIOUR", "")
        if how and (how in ALWAYS or is_first(how)):
            result = MISBEHAVIOURS[how](result)
        return result


def is_first(name: str) -> bool:
    """Whether no process of this test did this before."""
    try:
        os.close(os.open(Path(os.environ["MARKERS"]) / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def raise_memory_error(batch: DocumentBatch) -> DocumentBatch:
    """As numpy and torch do."""
    raise MemoryError("not enough for this batch")


def exceed_the_limit(batch: DocumentBatch) -> DocumentBatch:
    """Takes memory as C++ does until the kernel refuses, and ends as C++ does."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    malloc.argtypes = [ctypes.c_size_t]
    while malloc(64 * 2**20):
        pass
    os.abort()


def return_what_cannot_travel(batch: DocumentBatch) -> DocumentBatch:
    """Hangs something on the batch that no pickle takes."""
    batch.metadata["lock"] = threading.Lock()
    return batch


def leak(batch: DocumentBatch) -> DocumentBatch:
    """Keeps 30 MB for ever."""
    _KEPT.append(bytearray(b"x") * 30_000_000)
    return batch


def stand_still(batch: DocumentBatch) -> DocumentBatch:
    """Is stopped and never continued."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return batch


MISBEHAVIOURS = {
    "memory-error": raise_memory_error,
    "memory-limit": exceed_the_limit,
    "unpicklable": return_what_cannot_travel,
    "leak": leak,
    "stand-still": stand_still,
}
ALWAYS = ("leak",)
