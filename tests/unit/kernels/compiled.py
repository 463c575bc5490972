# SPDX-License-Identifier: Apache-2.0
"""For tests of how kernels are loaded: other tests compile at the same time, in the same folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from thresher.kernels import compile
from thresher.kernels.proven import is_untried


@contextlib.contextmanager
def compiled_and_tried(*modules: str) -> Iterator[None]:
    """Within this block the kernels are there, it is known how they can be loaded, and nobody compiles others."""
    while True:
        compile.compile_missing(modules, _say_nothing)
        with compile._alone(_say_nothing):
            if not is_untried():
                yield
                return


def _say_nothing(line: str) -> None:
    pass
