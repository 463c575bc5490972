# SPDX-License-Identifier: Apache-2.0
"""For tests of how kernels are loaded: other tests compile at the same time, in the same folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from thresher.kernels.build import compile
from thresher.kernels.build.progress import Announcer

SILENT = Announcer("none")


@contextlib.contextmanager
def compiled_and_tried(*modules: str) -> Iterator[None]:
    """Within this block the kernels are there, it is known how they can be loaded, and nobody compiles others."""
    compile.compile_missing(modules, SILENT)
    with compile._build_lock(SILENT):
        yield
