# SPDX-License-Identifier: Apache-2.0
"""The phase of a deduplication that verifies candidates: pairs of documents whose true similarity is too low are left
out.

Each unit of the phase is a unit of documents, with the pairs whose later document is in it. The earlier ones are read
from where they are, block by block, so what is read is bounded by the number of pairs.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFolder, PhaseReader
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.clustering.groups import edge_batch, read_edge_file
from thresher.stages.dedup.files.documents import UnitPlace, keep_places, load_places
from thresher.stages.dedup.files.frames import open_frames

if TYPE_CHECKING:
    from thresher.core.source import ReadContext
    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.dedup.files.keys import Edges
    from thresher.stages.dedup.fuzzy import FuzzyDeduplication

_EDGE_FILES = "pairs"
_PAIRS_PER_BATCH = 16 * 1024


class PairReader(PhaseReader[DocumentBatch]):
    """Give the pairs of documents that are as similar as they must be."""

    intermediate = True
    reaches_back = 2

    def __init__(self, stage: FuzzyDeduplication) -> None:
        self.stage = stage

    def preloads(self) -> list[str]:
        """Return the kernels that compare texts."""
        return ["thresher.kernels.json.text", "thresher.kernels.dedup.jaccard"]

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit for each unit of documents."""
        path, places = keep_places(done.earlier, done, self.stage.known_places(done.storage_options))
        edges = done.keep(_EDGE_FILES, msgspec.msgpack.encode([[file.path, file.nbytes] for file in done.files]))
        return [
            done.unit(number, [Piece(path, str(number), 0), Piece(edges, _EDGE_FILES, 0)], place.nbytes, "pairs")
            for number, place in enumerate(places)
        ]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the verified pairs of a unit, in order."""
        import numpy as np

        from thresher.stages.dedup.files.keys import unique_edges

        documents, edge_files = unit.pieces
        places = load_places(documents.path, self.storage_options)
        edges = unique_edges(self._candidates(places[int(documents.relative)], edge_files))
        edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]  # an earlier document is prepared once for all its pairs
        texts = StoredTexts(self.stage, places, self.buffer_bytes, self.storage_options)
        for start in range(0, len(edges), _PAIRS_PER_BATCH):
            some = edges[start : start + _PAIRS_PER_BATCH]
            similarity = texts.similarities(some)
            good = similarity >= np.float32(self.stage.verified)
            if good.any():
                order = np.lexsort((some[good][:, 1], some[good][:, 0]))
                batch = edge_batch(some[good][order], unit, similarity[good][order])
                yield SourceItem(unit, batch, consumed=unit.nbytes * (start + len(some)) // len(edges))

    def _candidates(self, place: UnitPlace, edge_files: Piece) -> Edges:
        """Return the pairs whose later document is in a unit."""
        import numpy as np

        from thresher.stages.dedup.files.unit_file import read_edges

        with open_frames(place.path, place.nbytes, self.storage_options) as file:
            found = [np.zeros((0, 2), dtype=np.uint64), *read_edges(file, place.first)]
        with open_read(edge_files.path, storage_options=self.storage_options) as opened:
            files = msgspec.msgpack.decode(opened.read())
        for path, nbytes in files:
            with open_frames(path, nbytes, self.storage_options) as file:
                span = place.first, place.first + place.documents
                found += [edges for edges, _ in read_edge_file(file, span)]
        return np.concatenate(found)


class StoredTexts:
    """Texts of documents by number, read from the files of their units. Blocks that were read last are held."""

    def __init__(
        self, stage: FuzzyDeduplication, places: Sequence[UnitPlace], buffer_bytes: int, storage_options: Any
    ) -> None:
        """`buffer_bytes`: bytes of blocks that are held at most, besides two of them."""
        self._stage = stage
        self._places = places
        self._firsts = [place.first for place in places]
        self._storage_options = storage_options
        self._most_bytes = buffer_bytes
        self._held: OrderedDict[tuple[int, int], Texts] = OrderedDict()
        self._held_bytes = 0
        self._ends: dict[int, list[int]] = {}
        """For each unit that was read, the number of documents up to the end of each block."""

    def similarities(self, pairs: Edges) -> Any:
        """Return the similarity of each pair."""
        import numpy as np

        compare = self._stage.pair_similarity()
        found = np.empty(len(pairs), dtype=np.float32)
        last, first_text = -1, None
        for place, (later, first) in enumerate(pairs.tolist()):
            if first != last:
                last, first_text = first, self._text(first)
            assert first_text is not None
            found[place] = compare.of(*self._text(later), *first_text)
        return found

    def _text(self, number: int) -> tuple[Texts, int]:
        """Return the texts of a block, and which of them is that of a document."""
        unit = bisect.bisect_right(self._firsts, number) - 1
        row = number - self._firsts[unit]
        if unit not in self._ends:
            self._ends[unit] = self._block_ends(self._places[unit])
        block = bisect.bisect_right(self._ends[unit], row)
        key = unit, block
        if key in self._held:
            self._held.move_to_end(key)
        else:
            self._held[key] = texts = self._read(self._places[unit], block)
            self._held_bytes += texts.data.nbytes
            while self._held_bytes > self._most_bytes and len(self._held) > 2:
                self._held_bytes -= self._held.popitem(last=False)[1].data.nbytes
        return self._normalized(self._held[key], row - (self._ends[unit][block - 1] if block else 0))

    def _normalized(self, texts: Texts, row: int) -> tuple[Texts, int]:
        if not self._stage.normalize:
            return texts, row
        one = texts._replace(starts=texts.starts[row : row + 1], ends=texts.ends[row : row + 1])
        return self._stage.normalized(one), 0

    def _block_ends(self, place: UnitPlace) -> list[int]:
        import itertools

        from thresher.stages.dedup.files.unit_file import DOCUMENTS

        with open_frames(place.path, place.nbytes, self._storage_options) as file:
            return list(itertools.accumulate(frame.note for frame in file.frames(DOCUMENTS)))

    def _read(self, place: UnitPlace, block: int) -> Texts:
        from thresher.core.documents.blocks import decode_block
        from thresher.stages.dedup.files.unit_file import DOCUMENTS

        with open_frames(place.path, place.nbytes, self._storage_options) as file:
            content = file.read(file.frames(DOCUMENTS)[block])
        return self._stage.texts(decode_block(memoryview(content)), normalize=False)
