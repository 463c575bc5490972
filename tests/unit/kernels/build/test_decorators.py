# SPDX-License-Identifier: Apache-2.0
"""Kernels that are compiled load without the compiler, and with it where that was not checked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.kernels.compiled import compiled_and_tried
from thresher.kernels.build import cache
from thresher.kernels.build.cache import CHOICE, QUICK_LOADING

LOAD = """
from thresher.kernels.build.cache import QUICK_LOADING
from thresher.kernels.counts.text_counts import Counts, Texts
import numpy as np
data = np.frombuffer(b"one two  three" + bytes(64), dtype=np.uint8)
counts = Counts(Texts(data, np.array([0]), np.array([14])))
counts.fill([("words", 0)], np.array([0]))
import numba, sys
print(int(counts["words", 0][0]), QUICK_LOADING.works(), "numba.experimental.function_type" in sys.modules)
@numba.njit
def own(n):
    return n + 1
print(own(1))
"""


def test_kernels_of_ours_load_quickly_once_that_is_checked_and_code_of_users_compiles_as_ever() -> None:
    with compiled_and_tried("counts.positions"):
        done = subprocess.run(
            [sys.executable, "-c", LOAD], capture_output=True, text=True, check=True, env={**os.environ, CHOICE: "0"}
        )
    assert done.stdout.split() == ["3", "True", "False", "2"], "nothing was set up for compiling until it was needed"


def test_what_did_not_go_well_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    QUICK_LOADING.record(works=True)
    assert QUICK_LOADING.works()
    QUICK_LOADING.record(works=False)
    assert not QUICK_LOADING.works()
    QUICK_LOADING.record(works=False)
