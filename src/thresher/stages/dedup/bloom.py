# SPDX-License-Identifier: Apache-2.0
"""Documents with a text that a Bloom filter has seen before are dropped.

Three phases: documents and hashes of their texts are written unit by unit; the hashes pass through the filter in the
order of the input; documents are read again, without those that the filter knew. The filter is divided by ranges of
hashes, each of which is a unit: a filter never leaves its worker, and a unit that is retried begins with an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.errors import UsageError
from thresher.stages.dedup.clustering.groups import KeyGroupReader, edge_batch
from thresher.stages.dedup.files.documents import load_places
from thresher.stages.dedup.files.frames import open_frames
from thresher.stages.dedup.passages.marks import MarkedReader, MarkingStage, MarkWriter, PartsWriter, UnitMarks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.source import ReadContext
    from thresher.kernels.dedup.bloom import BloomFilter
    from thresher.stages.dedup.files.documents import UnitPlace

LEAST_RATE = 1e-9
_PER_RANGE = 8 * 2**20
"""Documents in a range of hashes. No setting: which documents the filter confuses depends on it."""
_ALL_HASHES = 2**64
_RULE = "duplicate"


class BloomDeduplication(MarkingStage):
    """Drop documents whose text occurs earlier in the corpus, and by mistake a few others.

    Of documents with a text of their own at most a share of `false_positive_rate` is dropped by mistake.
    """

    def __init__(self, false_positive_rate: float = 1e-6, text_field: str = "text") -> None:
        """`false_positive_rate`: the largest probability with which a document that has no duplicate is dropped.
        `text_field`: the column that is compared.
        """
        rate = false_positive_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not LEAST_RATE <= rate <= 0.5:
            raise UsageError(
                f"BloomDeduplication.false_positive_rate: {rate!r} is not a number from {LEAST_RATE} to 0.5; for none, "
                "use ExactDeduplication"
            )
        self.false_positive_rate = float(rate)
        self.text_field = field_name("BloomDeduplication", "text_field", text_field)

    def kernels(self) -> list[str]:
        """Return the module that hashes texts."""
        return ["thresher.kernels.dedup.text_hash"]

    def decompose(self) -> list[Any]:
        """Return the writers and readers of the three phases."""
        return [
            PartsWriter(self).with_(name=f"{self.name}-keys"),
            FilterReader(self).with_(name=f"{self.name}-filter"),
            MarkWriter().with_(name=f"{self.name}-marks"),
            MarkedReader(self).with_(name=self.name),
        ]

    def keys(self, batch: DocumentBatch) -> npt.NDArray[np.uint64]:
        """Return the hash of each text."""
        from thresher.kernels.dedup.text_hash import hash_texts
        from thresher.stages.dedup.passages.parts import texts_of

        return hash_texts(texts_of(batch, self.text_field))

    def without(self, batch: DocumentBatch, marks: UnitMarks) -> tuple[DocumentBatch, int]:
        """Return a batch without the documents that are marked. They count as dropped, and not as parts of one."""
        rows = marks.take_numbers(len(batch))
        return (batch.drop(rows, _RULE, [None] * len(rows)) if len(rows) else batch), 0


class FilterReader(KeyGroupReader):
    """Pass the hashes of a range through a filter, in the order of the input."""

    stage: Any

    def preloads(self) -> list[str]:
        """Return the kernel of the filter."""
        return ["thresher.kernels.dedup.bloom"]

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return ranges of hashes with about the same number of documents; they depend on that number alone."""
        path, places = self.places(done)
        documents = sum(place.documents for place in places)
        count = -(-documents // _PER_RANGE)
        bounds = [_ALL_HASHES * number // max(count, 1) for number in range(count + 1)]
        pieces = [Piece(path, f"{bounds[n]}-{bounds[n + 1]}", documents // count + 1) for n in range(count)]
        nbytes = sum(place.keys for place in places) * 24
        return [done.unit(number, [piece], nbytes // count, "filter") for number, piece in enumerate(pieces)]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents that the filter knew, each as an edge to itself."""
        import numpy as np

        from thresher.kernels.dedup.bloom import BloomFilter

        (piece,) = unit.pieces
        start, end = map(int, piece.relative.split("-"))
        places = load_places(piece.path, self.storage_options)
        known_hashes = BloomFilter(piece.size + piece.size // 64, self.stage.false_positive_rate)
        for number, place in enumerate(places):
            known = self._known(place, start, end, known_hashes)
            if len(known):
                consumed = unit.nbytes * (number + 1) // len(places)
                yield SourceItem(unit, edge_batch(np.stack((known, known), axis=1), unit), consumed=consumed)

    def _known(self, place: UnitPlace, start: int, end: int, known: BloomFilter) -> npt.NDArray[np.uint64]:
        """Return the documents of a unit whose hashes are known, and add the others."""
        import numpy as np

        from thresher.stages.dedup.files.keys import Keys
        from thresher.stages.dedup.files.unit_file import read_keys

        with open_frames(place.path, place.nbytes, self.storage_options) as file:
            keys = Keys.concat(list(read_keys(file, start, end, place.first)), wide=True)
        keys = keys.take(np.argsort(keys.documents))
        assert keys.lows is not None, "these keys have 128 bits"
        return np.asarray(keys.documents[known.add(np.stack((keys.hashes, keys.lows), axis=1))])
