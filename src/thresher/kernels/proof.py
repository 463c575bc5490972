# SPDX-License-Identifier: Apache-2.0
"""What is done with kernels after compiling, in processes of their own: load them in the quick ways, and print what
they give for texts of every kind. Where a way does not work on this machine the process may come to its end at once."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import numpy as np

from thresher.kernels import cache, quick_load
from thresher.kernels.counts import PADDING, Counts, Texts
from thresher.kernels.groups import COUNTS, load_group
from thresher.kernels.proven import CHOICE

_PACKAGE = __package__ or "thresher.kernels"
_TEXTS = (
    "",
    " \n\t",
    "a",
    "The quick brown fox, and the lazy dog. " * 9,
    "# one\n- two\n- two\n\n* three…\nread more...\n" * 5,
    "Überall «Wörter», 漢字 и слова, e\u0301 \U0001f600\u2028next\u00a0line",
    "see https://example.org/a?b=c and www.example.com (terms of use) {x} lorem ipsum",
)
_PARAMETERS = (2, 3, 5, 10)
"""Sizes of n-grams and lengths of lines that are asked for; other counts have no parameter."""


def prove(modules: Sequence[str]) -> None:
    """Load some modules, and print what those of them that count give."""
    cache.use_own_folder()
    if os.environ.get(CHOICE) == "0":
        quick_load.install()
    for module in modules:
        importlib.import_module(f"{_PACKAGE}.{module}")
    for module in modules:
        if module in COUNTS:
            sys.stdout.write(f"{module} {_counted(module)}\n")


def _counted(group: str) -> dict[str, list[int]]:
    """The counts of a group for the texts above."""
    encoded = [text.encode() for text in _TEXTS]
    ends = np.cumsum([len(text) for text in encoded])
    data = np.frombuffer(b"".join(encoded) + bytes(PADDING), dtype=np.uint8)
    starts = np.concatenate(([0], ends[:-1]))
    work = Counts(Texts(data, starts, ends)).work
    wanted = [(name, parameter) for name in COUNTS[group] for parameter in _PARAMETERS]
    found = load_group(group).compute(work, wanted, np.arange(len(encoded)))
    return {f"{name} {parameter}": values.tolist() for (name, parameter), values in found.items()}
