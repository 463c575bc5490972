# SPDX-License-Identifier: Apache-2.0
"""Cheap tests over the bytes of texts, with which a modifier tells the texts that it leaves alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Texts


def pieces(texts: Texts) -> Iterator[bytes]:
    """The bytes of each text."""
    view = texts.data.data
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        yield view[start:end].tobytes()


def for_each(texts: Texts, test: Callable[[bytes], bool]) -> npt.NDArray[np.bool_]:
    """What `test` says of each text."""
    import numpy as np

    return np.fromiter(map(test, pieces(texts)), dtype=np.bool_, count=len(texts.starts))


def holding(texts: Texts, *needles: bytes) -> npt.NDArray[np.bool_]:
    """Which texts hold one of the needles."""
    return for_each(texts, lambda piece: any(needle in piece for needle in needles))


def not_ascii(texts: Texts) -> npt.NDArray[np.bool_]:
    """Which texts hold a character beyond ASCII."""
    return for_each(texts, lambda piece: not piece.isascii())


def utf8(text: str) -> bytes:
    """The bytes of a text as `Texts` hold them: a lone surrogate has the three that it would have."""
    return text.encode("utf-8", "surrogatepass")
