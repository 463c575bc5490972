# SPDX-License-Identifier: Apache-2.0
"""Rounded vectors, k-means and the choice among neighbours do what they say, whatever the sizes of blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.stages.dedup.semantic.kmeans import fit, nearest, sample_rows
from thresher.stages.dedup.semantic.neighbours import VectorFile, find_kept
from thresher.stages.dedup.semantic.vectors import MOST_DIMENSIONS, products, rounded, similarities


@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([1e-200, 1.0, 1e200]))
def test_rounding_keeps_cosines(seed: int, dimensions: int, scale: float) -> None:
    vectors = np.random.default_rng(seed).normal(size=(6, dimensions)) * scale
    unit = vectors / scale
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    assert np.abs(similarities(rounded(vectors), rounded(vectors)) - unit @ unit.T).max() < 1e-3


@pytest.mark.parametrize("dimensions", [1, 2, 300, MOST_DIMENSIONS])
def test_products_are_exact(dimensions: int) -> None:
    random = np.random.default_rng(dimensions)
    for spread in (0.0, 1.0):
        vectors = rounded(1 + spread * random.normal(size=(5, dimensions)))
        exact = vectors.astype(np.int64) @ vectors.astype(np.int64).T
        assert np.array_equal(products(vectors, vectors), exact)
        assert exact.max() < 2**24


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 50), st.sampled_from([0.5, 0.9, 1.0]))
def test_the_choice_is_that_of_the_definition(seed: int, count: int, rows: int, least: float) -> None:
    import tempfile

    random = np.random.default_rng(seed)
    vectors = rounded(random.integers(-2, 3, size=(count, 3)) + np.array([0.1, 0, 0]))
    order = random.permutation(count)
    with tempfile.TemporaryDirectory() as folder:
        file = VectorFile(str(Path(folder) / "vectors"))
        file.add(vectors)
        found = find_kept(file, order, least, str(Path(folder) / "kept"), rows)
        file.remove()
    cosines = similarities(vectors[order], vectors[order])
    kept: list[int] = []
    for place in range(count):
        best = max(kept, key=lambda other: (cosines[place, other], -other), default=place)
        if kept and cosines[place, best] >= least:
            assert (found.kept[place], found.similarity[place]) == (best, cosines[place, best])
        else:
            kept.append(place)
            assert (found.kept[place], found.similarity[place]) == (place, 1.0)


def test_centroids_find_well_separated_groups() -> None:
    random = np.random.default_rng(1)
    groups = np.eye(8) * 10
    which = np.arange(800) % 8
    vectors = rounded(groups[which] + 0.3 * random.normal(size=(800, 8)))
    centroids = fit(vectors, 40, seed=3, rounds=25)
    labels, cosines = nearest(vectors, centroids)
    assert len(centroids) == 40
    assert all(len(set(which[labels == label])) == 1 for label in set(labels.tolist()))
    assert cosines.min() > 0.9


def test_as_many_centroids_as_different_vectors() -> None:
    assert fit(rounded(np.array([[1.0, 0], [1, 0], [0, 1]])), 100, seed=0, rounds=5).tolist() == [[0, 4000], [4000, 0]]
    assert len(fit(rounded(np.zeros((3, 2))), 100, seed=0, rounds=5)) == 0


@given(st.integers(1, 300_000), st.integers(1, 2000))
def test_the_sample_is_spread_over_all_documents(count: int, clusters: int) -> None:
    rows = sample_rows(count, clusters, 256, seed=1)
    assert len(rows) == min(count, max(20_000, 64 * clusters))
    assert (np.diff(rows) > 0).all()
    assert rows[0] >= 0
    assert rows[-1] < count
