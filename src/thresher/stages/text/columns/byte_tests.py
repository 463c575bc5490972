# SPDX-License-Identifier: Apache-2.0
"""Cheap tests over the bytes of texts, with which modifiers select the texts that they may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts


def pieces(texts: Texts) -> Iterator[bytes]:
    """Yield the bytes of each text."""
    view = texts.data.data
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        yield view[start:end].tobytes()


def for_each(texts: Texts, test: Callable[[bytes], bool]) -> npt.NDArray[np.bool_]:
    """Return the result of `test` for each text."""
    import numpy as np

    return np.fromiter(map(test, pieces(texts)), dtype=np.bool_, count=len(texts.starts))


def holding(texts: Texts, *needles: bytes) -> npt.NDArray[np.bool_]:
    """Return a mask of the texts that contain one of the needles."""
    return for_each(texts, lambda piece: any(needle in piece for needle in needles))


def not_ascii(texts: Texts) -> npt.NDArray[np.bool_]:
    """Return a mask of the texts with a non-ASCII character."""
    return for_each(texts, lambda piece: not piece.isascii())


def utf8(text: str) -> bytes:
    """Encode a text as `Texts` does: a lone surrogate is encoded as three bytes."""
    return text.encode("utf-8", "surrogatepass")
