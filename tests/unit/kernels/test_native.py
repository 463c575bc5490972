# SPDX-License-Identifier: Apache-2.0
"""Kernels that are loaded without Numba do what those do that Numba loads, and refuse what they cannot take."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.kernels.compiled import compiled_and_tried
from thresher.kernels import cache
from thresher.kernels.intrinsics import BYTES
from thresher.kernels.line_feeds import note_line_feeds
from thresher.kernels.native import NativeKernel, load
from thresher.kernels.proven import CHOICE, NATIVELY
from thresher.kernels.signatures import types

LOADED = """
import sys
import numpy as np
from thresher.kernels.line_feeds import count_line_feeds, find_line_feeds
from thresher.kernels.utf8 import is_utf8
data = np.frombuffer("one\\ntwo\\u00e4\\n".encode() + b"x" * 200 + b"\\n", dtype=np.uint8)
print(count_line_feeds(data), find_line_feeds(data).tolist(), is_utf8(data), is_utf8(np.array([255], dtype=np.uint8)))
print(type(count_line_feeds).__name__, "numba" in sys.modules, file=sys.stderr)
"""
ANSWER = "3 [3, 9, 210] True False"


ONLY_HERE = pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels need Numba where this is not x86-64")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with compiled_and_tried("line_feeds", "utf8", "places"):
        yield


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )


@ONLY_HERE
def test_what_is_compiled_is_loaded_without_importing_numba() -> None:
    assert NATIVELY.is_proven()
    done = run(LOADED)
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["NativeKernel", "False"]


def test_numba_loads_kernels_where_it_is_told_to_and_they_do_the_same() -> None:
    done = run(LOADED, **{CHOICE: "0"})
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["CPUDispatcher", "True"]


@ONLY_HERE
def test_a_damaged_file_is_not_run(tmp_path: Path) -> None:
    """The machine code of one kernel has another byte: Numba loads that kernel."""
    for entry in os.scandir(cache.folder()):
        if entry.name.endswith((".native", ".proven")):
            (tmp_path / entry.name).write_bytes(Path(entry.path).read_bytes())
    file = tmp_path / "line_feeds.count_line_feeds.native"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code = (
        f"""
from thresher.kernels import cache
cache.folder = lambda: {str(tmp_path)!r}
"""
        + LOADED
    )
    done = run(code)
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["CPUDispatcher", "True"]


NOT_EXECUTABLE = """
from thresher.kernels import native
def refuse(start, length): raise PermissionError(13, "memory cannot be made executable")
native._make_executable = refuse
"""


def test_where_memory_cannot_be_made_executable_numba_is_asked() -> None:
    done = run(NOT_EXECUTABLE + LOADED, **{CHOICE: "1"})
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["CPUDispatcher", "True"]


# -- what kernels take ------------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that was loaded without Numba, whoever loaded the same one in this process before."""
    monkeypatch.setenv(CHOICE, "1")
    found = note_line_feeds
    if not isinstance(found, NativeKernel):
        signature = types.int64(BYTES, types.int64[::1])
        found = load(found.py_func, signature, lambda: note_line_feeds)  # type: ignore[attr-defined]  # Numba's
    assert isinstance(found, NativeKernel)
    return found


DATA, PLACES = np.frombuffer(b"a\nb", dtype=np.uint8), np.zeros(4, dtype=np.int64)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((DATA,), "takes 2 values, not 1"),
        ((b"a\nb", PLACES), "a read C array of uint8 with 1 dimensions, not a bytes"),
        ((DATA.astype(np.int8), PLACES), "uint8 with 1 dimensions, not one of int8"),
        ((DATA.reshape(1, 3), PLACES), "with 1 dimensions, not one of uint8 with 2"),
        ((DATA[::2], PLACES), "C array of uint8"),
        ((DATA, PLACES.astype(np.int32)), "int64 with 1 dimensions, not one of int32"),
        ((DATA, np.frombuffer(bytes(32), dtype=np.int64)), "a written C array of int64"),
        ((DATA, np.frombuffer(bytearray(33), dtype=np.uint8)[1:].view(np.int64)), "a written C array of int64"),
        ((DATA, PLACES.astype(">i8")), "int64"),
    ],
)
@ONLY_HERE
def test_what_does_not_fit_is_refused_before_the_machine_code_sees_it(
    kernel: Any, arguments: tuple[object, ...], told: str
) -> None:
    with pytest.raises(TypeError, match=f"the kernel note_line_feeds takes .*{told}|{told}"):
        kernel(*arguments)


@ONLY_HERE
def test_what_fits_is_taken_also_from_subclasses_and_with_numbers_of_numpy(kernel: Any) -> None:
    assert kernel(DATA.view(np.ndarray), PLACES) == 1
    assert PLACES[0] == 1
