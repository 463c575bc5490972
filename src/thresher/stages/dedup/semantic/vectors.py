# SPDX-License-Identifier: Apache-2.0
"""Vectors as whole numbers, so that their products do not depend on the order in which a processor adds.

A vector is scaled to a length of about 4000 and rounded. The product of two such vectors is below 2^24, and so is every
part of its sum: single precision holds it exactly, in any order and with any library. Similarities change by
about 0.0001.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import RunFailedError

LENGTH = 4000
MOST_DIMENSIONS = 16384
"""With more, rounding could make the product of two vectors larger than 2^24."""
Vectors = npt.NDArray[np.int16]
"""Rounded vectors, one per row. A vector of zeros has no direction."""
Floats = npt.NDArray[np.float64]


def rounded(vectors: Floats) -> Vectors:
    """Return vectors as whole numbers, scaled to the same length."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    scaled = vectors / np.where(largest > 0, largest, 1)  # the square of a large number would be infinite
    length = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    made: Vectors = np.rint(scaled / np.where(length > 0, length, 1) * LENGTH).astype(np.int16)
    return made


def products(one: Vectors, other: Vectors) -> npt.NDArray[np.float32]:
    """Return the product of each row of `one` with each of `other`; they are exact."""
    return np.asarray(one.astype(np.float32) @ other.astype(np.float32).T)


def squares(vectors: Vectors) -> Floats:
    """Return the product of each vector with itself."""
    wide = vectors.astype(np.int64)
    return np.asarray((wide * wide).sum(axis=1).astype(np.float64))


def similarities(one: Vectors, other: Vectors) -> Floats:
    """Return the cosine of each row of `one` with each of `other`. Equal vectors have exactly 1."""
    return np.asarray(products(one, other) / np.sqrt(squares(one)[:, None] * squares(other)[None, :]))


def vectors_in(batch: DocumentBatch, field: str, dimensions: int | None) -> tuple[Floats | None, dict[int, str]]:
    """Return the vectors in a column, and what is wrong with rows that have none; no vectors if there are such rows.

    `dimensions`: how many numbers a vector must have; `None`: all the same number.
    """
    found: list[Floats] = []
    wrong: dict[int, str] = {}
    for row, value in enumerate(batch.values(field)):
        vector = _vector(value)
        if isinstance(vector, str):
            wrong[row] = f"field {field!r} {vector}"
        elif dimensions is not None and len(vector) != dimensions:
            wrong[row] = f"field {field!r} has {len(vector)} numbers, {dimensions} are needed"
        else:
            found.append(vector)
    for vector in found:
        check_dimensions(len(found[0]), len(vector))
    return (None, wrong) if wrong or not found else (np.stack(found), {})


def check_dimensions(one: int, other: int) -> None:
    """Refuse vectors with different numbers of dimensions."""
    if one != other:
        raise RunFailedError(
            f"documents have vectors of {one} and of {other} numbers; they cannot be compared. With embedding_dim=N, "
            "those with another number are quarantined"
        )


def _vector(value: Any) -> Floats | str:
    """Return a value as a vector, or what is wrong with it."""
    if value is None:
        return "is missing or null, a list of numbers is needed"
    try:
        vector = np.asarray(value)
    except ValueError:  # lists of different lengths
        return "is not a list of numbers"
    if vector.ndim != 1 or vector.dtype.kind not in "iuf" or not len(vector):
        return "is not a list of numbers"
    if len(vector) > MOST_DIMENSIONS:
        return f"has {len(vector):,} numbers, at most {MOST_DIMENSIONS:,} are possible"
    vector = vector.astype(np.float64)
    return vector if np.isfinite(vector).all() else "has a number that is NaN or infinite"
