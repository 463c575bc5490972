# SPDX-License-Identifier: Apache-2.0
"""Ranks of documents in a sorted corpus, from the indexes of sorted files; few blocks are opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from thresher.core.files.filesystem import open_read
from thresher.stages.corpus.place_ranges import PlaceRange, Places, kth_place
from thresher.stages.corpus.sorted_file import read_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from thresher.core.files.filesystem import StorageOptions


class SortedCorpus:
    """The blocks of all sorted files of a phase."""

    def __init__(self, blocks: Any, places_of: Callable[[Any], Places]) -> None:
        """`places_of` reads the places of a block."""
        self.blocks = blocks
        self._places_of = places_of

    def __len__(self) -> int:
        return int(self.blocks["records"].sum())

    def before(self, place: Any) -> int:
        """Return how many documents come before a place."""
        if place is None:
            return 0
        blocks = self.blocks
        whole = int(blocks["records"][blocks["last"] < place].sum())
        mixed = blocks[(blocks["first"] < place) & (blocks["last"] >= place)]
        return whole + sum(int((self._places_of(block) < place).sum()) for block in mixed)

    def place_at(self, rank: int) -> Any:
        """Return the place of the document of a rank, counted from 0."""
        found = kth_place(self.blocks, rank + 1, self._places_of)
        return None if found is None else found[0]

    def sizes(self, wanted: PlaceRange) -> tuple[Places, npt.NDArray[np.int64]]:
        """Return the places in a range in order, each once, and the number of documents of each."""
        blocks = wanted.blocks(self.blocks)
        single = blocks["first"] == blocks["last"]
        read = [self._places_of(block) for block in blocks[~single]]
        places = np.concatenate([blocks["first"][single], *read])
        ones = [np.ones(len(some), dtype=np.int64) for some in read]
        weights = np.concatenate([blocks["records"][single], *ones])
        inside = wanted.contains(places)
        found, which = np.unique(places[inside], return_inverse=True)
        return found, np.bincount(which, weights[inside], len(found)).astype(np.int64)


def sorted_corpus(blocks: Any, paths: Sequence[str], place_type: str, options: StorageOptions) -> SortedCorpus:
    """Return the corpus in the blocks of some files."""

    def places_of(block: Any) -> Places:
        with contextlib.closing(open_read(paths[int(block["file"])], storage_options=options)) as file:
            return read_places(block, file, place_type)

    return SortedCorpus(blocks, places_of)
