# SPDX-License-Identifier: Apache-2.0
"""Check compiled kernels in separate processes: load them with one method, and print what they return for texts of
every kind. If a method does not work on this machine, its process may crash."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import numpy as np

from thresher.kernels.build import cache, decorators
from thresher.kernels.build.cache import CHOICE, PACKAGE
from thresher.kernels.counts import COUNTS
from thresher.kernels.counts.text_counts import PADDING, Counts, Texts, load_group

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
"""Sizes of n-grams and lengths of lines that are checked; other counts ignore the parameter."""


def check(modules: Sequence[str]) -> None:
    """Load some modules, and print the counts of those that count."""
    cache.use_own_folder()
    decorators.compile_on_import()
    if os.environ.get(CHOICE) == "0":
        decorators.load_quickly()
    for module in modules:
        importlib.import_module(f"{PACKAGE}.{module}")
    for module in modules:
        group = module.removeprefix("counts.")
        if group in COUNTS:
            sys.stdout.write(f"{group} {_counted(group)}\n")


def _counted(group: str) -> dict[str, list[int]]:
    """Return the counts of a group for the texts above."""
    encoded = [text.encode() for text in _TEXTS]
    ends = np.cumsum([len(text) for text in encoded])
    data = np.frombuffer(b"".join(encoded) + bytes(PADDING), dtype=np.uint8)
    starts = np.concatenate(([0], ends[:-1]))
    work = Counts(Texts(data, starts, ends)).work
    wanted = [(name, parameter) for name in COUNTS[group] for parameter in _PARAMETERS]
    found = load_group(group).compute(work, wanted, np.arange(len(encoded)))
    return {f"{name} {parameter}": values.tolist() for (name, parameter), values in found.items()}
