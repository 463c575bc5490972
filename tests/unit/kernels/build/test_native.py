# SPDX-License-Identifier: Apache-2.0
"""Kernels that are loaded without Numba return what those return that Numba loads, and reject wrong arguments."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.kernels.compiled import compiled_and_tried
from thresher.kernels.build import cache
from thresher.kernels.build.cache import CHOICE, NATIVE_LOADING
from thresher.kernels.build.decorators import LateKernel
from thresher.kernels.build.intrinsics import BYTES
from thresher.kernels.build.native import NativeKernel, Unsupported, load, object_code, parameters_of
from thresher.kernels.build.signatures import types
from thresher.kernels.json.chunks import note_line_feeds

LOADED = """
import sys
import numpy as np
from thresher.kernels.json.chunks import count_line_feeds, find_line_feeds, is_utf8
data = np.frombuffer("one\\ntwo\\u00e4\\n".encode() + b"x" * 200 + b"\\n", dtype=np.uint8)
print(count_line_feeds(data), find_line_feeds(data).tolist(), is_utf8(data), is_utf8(np.array([255], dtype=np.uint8)))
print(type(count_line_feeds).__name__, "numba" in sys.modules, file=sys.stderr)
"""
ANSWER = "3 [3, 9, 210] True False"


ONLY_HERE = pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels need Numba where this is not x86-64")


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with compiled_and_tried("json.chunks", "counts.positions"):
        yield


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )


@ONLY_HERE
def test_what_is_compiled_is_loaded_without_importing_numba() -> None:
    assert NATIVE_LOADING.works()
    done = run(LOADED)
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["NativeKernel", "False"]


def test_numba_loads_kernels_where_it_is_told_to_and_they_do_the_same() -> None:
    done = run(LOADED, **{CHOICE: "0"})
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["CPUDispatcher", "True"]


IMPORTED = """
import sys
from thresher.kernels.json.chunks import is_utf8
from thresher.kernels.build import decorators
print(type(is_utf8).__name__, "numba" in sys.modules, len(decorators._late))
"""


def test_importing_a_module_compiles_nothing(tmp_path: Path) -> None:
    done = run(IMPORTED, **{cache.VARIABLE: str(tmp_path)})
    assert done.stdout.split() == ["LateKernel", "False", "3"]


COPIED = """
import sys
from thresher.kernels.build import cache, decorators
from thresher.kernels.json import chunks
assert sys.argv[1] in decorators.__file__, decorators.__file__
kernels = [chunks.count_line_feeds, chunks.is_utf8]
print(cache.folder(), *(sum(one.stats.cache_misses.values()) if hasattr(one, "stats") else 0 for one in kernels))
"""


@pytest.mark.parametrize("choice", ["0", "1"])
def test_a_copy_of_the_sources_elsewhere_compiles_nothing_again(tmp_path: Path, choice: str) -> None:
    shutil.copytree(Path(cache.__file__).parents[2], tmp_path / "src" / "thresher")
    environment = {**os.environ, CHOICE: choice, "PYTHONPATH": str(tmp_path / "src")}
    copied = [sys.executable, "-c", COPIED, str(tmp_path)]
    done = subprocess.run(copied, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [cache.folder(), "0", "0"]


@ONLY_HERE
def test_a_damaged_file_is_not_run(tmp_path: Path) -> None:
    """The machine code of one kernel has another byte: Numba loads that kernel."""
    for entry in os.scandir(cache.folder()):
        if entry.name.endswith((".native", ".works", ".ready")):
            (tmp_path / entry.name).write_bytes(Path(entry.path).read_bytes())
    file = tmp_path / "json.chunks.count_line_feeds.native"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code = (
        f"""
from thresher.kernels.build import cache
cache.folder = lambda: {str(tmp_path)!r}
"""
        + LOADED
    )
    done = run(code)
    assert done.stdout.strip() == ANSWER
    assert done.stderr.split() == ["CPUDispatcher", "True"]


# -- what is stored ---------------------------------------------------------------------------------------------------


def object_file(text: str, name: str) -> bytes:
    """Compile LLVM assembly for this machine."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return object_code(text, name, llvm.Target.from_default_triple().create_target_machine())


CALLER = "declare i64 @other(i64)\ndefine i64 @entry(i64 %a) { %b = call i64 @other(i64 %a)\n ret i64 %b }\n"
OTHER = "define i64 @other(i64 %a) { %b = add i64 %a, 5\n ret i64 %b }\n"
WRAPPER = (
    "declare i64 @PyLong_FromLong(i64)\ndefine i64 @wrapper() { %b = call i64 @PyLong_FromLong(i64 1)\n ret i64 %b }"
)


def test_functions_that_a_kernel_does_not_call_are_not_stored() -> None:
    code = object_file(OTHER + WRAPPER, "other")
    assert b"other" in code
    assert b"wrapper" not in code
    assert b"PyLong_FromLong" not in code


def test_a_kernel_that_calls_an_unknown_function_is_not_stored() -> None:
    with pytest.raises(Unsupported, match="calls other"):
        object_file(CALLER, "entry")


def test_a_kernel_may_call_functions_of_the_c_library_and_free_what_it_never_allocated() -> None:
    for called in ("memset", "NRT_MemInfo_call_dtor"):
        assert object_file(CALLER.replace("other", called), "entry")


def test_only_arrays_and_whole_numbers_are_supported() -> None:
    both = types.void(types.Tuple((types.uint8[::1], types.Tuple((types.int64, types.int64[:, ::1])))))
    assert [getattr(kind, "ndim", 0) for kind in parameters_of(both)] == [1, 0, 2]
    with pytest.raises(Unsupported, match="other than int64"):
        parameters_of(types.void(types.float64))
    with pytest.raises(Unsupported, match="the result is float64"):
        parameters_of(types.float64(types.int64))


# -- what kernels take ------------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that was loaded without Numba, whoever loaded the same one in this process before."""
    monkeypatch.setenv(CHOICE, "1")
    found = note_line_feeds.ready() if isinstance(note_line_feeds, LateKernel) else note_line_feeds
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
        ((b"a\nb", PLACES), "a readable C array of uint8 with 1 dimensions, not a bytes"),
        ((DATA.astype(np.int8), PLACES), "uint8 with 1 dimensions, not one of int8"),
        ((DATA.reshape(1, 3), PLACES), "with 1 dimensions, not one of uint8 with 2"),
        ((DATA[::2], PLACES), "C array of uint8"),
        ((DATA, PLACES.astype(np.int32)), "int64 with 1 dimensions, not one of int32"),
        ((DATA, np.frombuffer(bytes(32), dtype=np.int64)), "a writable C array of int64"),
        ((DATA, np.frombuffer(bytearray(33), dtype=np.uint8)[1:].view(np.int64)), "a writable C array of int64"),
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
