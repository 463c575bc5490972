# SPDX-License-Identifier: Apache-2.0
"""Texts as they are compared: without differences of case, white space, punctuation or Unicode forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from thresher.errors import UsageError, nearest

if TYPE_CHECKING:
    from thresher.kernels.counts.text_counts import Texts

_NOT_WORD, _WHITE = re.compile(r"\W+"), re.compile(r"\s+")
STEPS: dict[str, Callable[[str], str]] = {
    "unicode": lambda text: unicodedata.normalize("NFKC", text),
    "case": str.lower,
    "punctuation": lambda text: _NOT_WORD.sub(" ", text),
    "space": lambda text: _WHITE.sub(" ", text).strip(),
}
"""Names of the steps, in the order in which they are applied."""


def chosen_steps(owner: str, given: bool | str | Sequence[str]) -> list[str]:
    """Return the steps that an argument names: `True` is all of them. `owner`: the stage, for errors."""
    if isinstance(given, bool):
        return list(STEPS) if given else []
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name not in STEPS:
            hint = nearest(str(name), STEPS)
            raise UsageError(f"{owner}.normalize: {name!r} is not one of {', '.join(STEPS)}.{hint}")
    return [name for name in STEPS if name in names]


def normalized(texts: Texts, steps: Sequence[str]) -> Texts:
    """Return texts after some steps."""
    import numpy as np

    from thresher.kernels.counts.text_counts import PADDING, Texts

    made = []
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        text = texts.data[start:end].tobytes().decode("utf-8", "surrogatepass")
        for step in steps:
            text = STEPS[step](text)
        made.append(text.encode("utf-8", "surrogatepass"))
    ends = np.cumsum([len(text) for text in made], dtype=np.int64)
    data = np.frombuffer(b"".join([*made, bytes(PADDING)]), dtype=np.uint8)
    return Texts(data, np.concatenate((np.zeros(1, np.int64), ends[:-1]))[: len(made)], ends)
