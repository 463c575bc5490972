# SPDX-License-Identifier: Apache-2.0
"""Bands and rows of MinHash: which similar documents are found."""

from __future__ import annotations

from typing import NamedTuple

from thresher.errors import UsageError

MOST_VALUES = 260
"""Values per document that a proposal uses at most."""
_WANTED = 0.95
"""Share of the pairs at the threshold that a proposal finds at least."""


class Banding(NamedTuple):
    """Scheme for comparing the values of documents: two are candidates if all values of a band agree."""

    bands: int
    """Number of bands."""
    rows: int
    """Number of values in each."""

    def found(self, similarity: float) -> float:
        """Return the probability that two documents of a Jaccard similarity become candidates."""
        return float(1 - (1 - similarity**self.rows) ** self.bands)

    def midpoint(self) -> float:
        """Return the similarity at which half of the pairs are found."""
        return float((1 - 0.5 ** (1 / self.bands)) ** (1 / self.rows))


MODES = {"nemo": ("char", 24, Banding(20, 13)), "datatrove": ("word", 5, Banding(14, 8))}
"""Shingles and bands of other tools."""


def propose(threshold: float, values: int = MOST_VALUES) -> Banding:
    """Return the banding that finds 95 % of the pairs at a threshold with the fewest pairs below it."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
        raise UsageError(f"threshold: {threshold!r} is not a similarity between 0 and 1")
    found = (Banding(values // rows, rows) for rows in range(values, 0, -1))
    return next((one for one in found if one.found(threshold) >= _WANTED), Banding(values, 1))


def curve_text(banding: Banding) -> str:
    """Return the share of pairs that are found, by similarity, as a chart."""
    lines = [
        f"{banding.bands} bands of {banding.rows} values: half of the pairs are found at {banding.midpoint():.3f}",
        "similarity  found",
    ]
    for percent in (*range(50, 100, 5), 99):
        share = banding.found(percent / 100)
        lines.append(f"      {percent / 100:.2f}  {share:6.1%}  {'█' * round(40 * share)}")
    return "\n".join(lines)
