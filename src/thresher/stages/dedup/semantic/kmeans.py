# SPDX-License-Identifier: Apache-2.0
"""Spherical k-means over rounded vectors. All sums are exact, so the result is the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thresher.stages.dedup.semantic.vectors import Floats, Vectors, products, rounded, squares

_ROWS = 1024
"""Vectors that are compared with all centroids at a time."""
_LEAST_SAMPLE, _PER_CENTROID = 20_000, 64
_SAMPLE_BYTES = 128 * 2**20


def sample_rows(documents: int, clusters: int, dimensions: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the documents to which centroids are fitted: one at random of each equal part of all."""
    wanted = min(max(_LEAST_SAMPLE, _PER_CENTROID * clusters), max(1, _SAMPLE_BYTES // (2 * dimensions)))
    if documents <= wanted:
        return np.arange(documents)
    bounds = np.arange(wanted + 1) * documents // wanted
    inside = np.random.default_rng(seed).random(wanted)
    return np.asarray(bounds[:-1] + (inside * np.diff(bounds)).astype(np.int64))


def fit(sample: Vectors, clusters: int, seed: int, rounds: int) -> Vectors:
    """Return at most so many centroids, fewer if the sample has fewer different vectors; none if all are zero."""
    sample = sample[sample.any(axis=1)]
    different = np.unique(sample, axis=0) if len(sample) else sample
    chosen = np.random.default_rng(seed).permutation(len(different))[:clusters]
    centroids = different[np.sort(chosen)]
    for _ in range(rounds if len(centroids) > 1 else 0):
        before = centroids
        centroids = _moved(sample, nearest(sample, centroids)[0], centroids)
        if np.array_equal(before, centroids):
            break
    return centroids


def nearest(vectors: Vectors, centroids: Vectors) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the nearest centroid of each vector, and the cosine of the two; vectors are not zero."""
    found = np.zeros(len(vectors), dtype=np.int64)
    cosines = np.zeros(len(vectors))
    lengths = np.sqrt(squares(centroids))
    for start in range(0, len(vectors), _ROWS):
        some = vectors[start : start + _ROWS]
        scores = products(some, centroids) / lengths
        best = scores.argmax(axis=1)
        found[start : start + _ROWS] = best
        cosines[start : start + _ROWS] = scores[np.arange(len(some)), best] / np.sqrt(squares(some))
    return found, cosines


def _moved(sample: Vectors, labels: npt.NDArray[np.int64], centroids: Vectors) -> Vectors:
    """Return the direction of the sum of the vectors of each centroid; one without vectors stays where it is."""
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
    sums = np.stack([part.sum(axis=0, dtype=np.int64) for part in np.split(sample[order], starts[1:])])
    made = rounded(sums.astype(np.float64))
    moved = centroids.copy()
    has_direction = made.any(axis=1)
    moved[labels[order][starts][has_direction]] = made[has_direction]
    return moved
