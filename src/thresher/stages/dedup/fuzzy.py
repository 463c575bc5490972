# SPDX-License-Identifier: Apache-2.0
"""Similar documents, by MinHash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.dedup.banding import MODES, Banding, propose
from thresher.stages.dedup.deduplication import Deduplication
from thresher.stages.dedup.keep import Keep, KeepWord

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.dedup.jaccard import PairSimilarity

_MOST_NGRAMS = {"char_ngrams": 1000, "word_ngrams": 64}


class FuzzyDeduplication(Deduplication):
    """Keep one document of each cluster of similar documents.

    Documents are compared by their sets of shingles, runs of characters or words. Two are similar if all MinHash values
    of a band agree, and clusters are connected similar documents. A document shorter than a shingle is compared as a
    whole; an empty one is like no other.
    """

    def __init__(  # noqa: PLR0913 - all have a default, under the names that users know
        self,
        text_field: str = "text",
        num_bands: int | None = None,
        minhashes_per_band: int | None = None,
        char_ngrams: int | None = None,
        word_ngrams: int | None = None,
        seed: int = 42,
        threshold: float | None = None,
        mode: Literal["nemo", "datatrove"] = "nemo",
        keep: KeepWord = "first",
        keep_by: str | None = None,
        prefer: Sequence[str] = (),
        action: Literal["drop", "list"] = "drop",
        normalize: bool | str | Sequence[str] = False,
        index: str | Sequence[str] | None = None,
        verify: bool | float = False,
    ) -> None:
        """`mode`: shingles and bands as in other tools: `nemo` takes 24 characters, 20 bands of 13 values, and
        `datatrove` 5 words, 14 bands of 8. `char_ngrams` or `word_ngrams`, and `num_bands` with `minhashes_per_band`,
        are set instead of those. `threshold`: choose bands that find 95 % of the pairs of that similarity.
        `keep`: which one stays: the `first` of the input, the `longest`, the `best` value in the column `keep_by`,
        or the preferred `source`: the first of the values in `prefer` that the column `keep_by` has, or, without
        `keep_by`, the first of the folders in `prefer` that the document's file is in.
        `action`: `drop` the others, or `list` all documents that have duplicates, in place of the documents.
        `normalize`: compare texts without differences of `unicode` (NFKC), `case`, `punctuation` or `space`; `True`: of
        all of them. What is written does not change.
        `index`: folders that `IndexWriter` has written: documents that are in them already are dropped.
        `verify`: compute the true Jaccard similarity of candidates, and leave out pairs below this number; `True`:
        below `threshold`. A cluster then has the documents that are so similar to its first document.
        """
        super().__init__(text_field, Keep("FuzzyDeduplication", keep, keep_by, prefer), action, normalize, index)
        if mode not in MODES:
            raise UsageError(f"FuzzyDeduplication.mode: {mode!r} is not one of {', '.join(MODES)}")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise UsageError(f"FuzzyDeduplication.seed: {seed!r} is not a whole number from 0 to 2**64 - 1")
        unit, size, banding = MODES[mode]
        self.words, self.ngrams = _shingles(unit, size, char_ngrams, word_ngrams)
        self.banding = _banding(banding, num_bands, minhashes_per_band, threshold)
        self.seed = seed
        self.verified = _verified(verify, threshold)
        if self.verified is not None and self.index:
            raise UsageError("FuzzyDeduplication: verify needs texts, and an index has none; give either of them")

    def scheme(self) -> dict[str, Any]:
        """Return how keys are made."""
        shingles = {"words": self.words, "ngrams": self.ngrams}
        return {**super().scheme(), **shingles, **self.banding._asdict(), "seed": self.seed}

    def kernels(self) -> list[str]:
        """Return the module that computes keys."""
        return ["thresher.kernels.dedup.minhash", *(["thresher.kernels.dedup.text_hash"] if self.verified else [])]

    def keys(self, batch: DocumentBatch) -> tuple[npt.NDArray[np.uint64], None]:
        """Return a key for each band of each document; if they are verified, also one for the whole text.

        Documents with the same text are then compared with each other, whatever else they share bands with.
        """
        import numpy as np

        from thresher.kernels.dedup.minhash import band_keys
        from thresher.kernels.dedup.shingles import CHARACTERS, WORDS
        from thresher.kernels.dedup.text_hash import hash_texts

        texts = self.texts(batch)
        kind = WORDS if self.words else CHARACTERS
        keys = band_keys(texts, kind, self.ngrams, self.seed, (self.banding.bands, self.banding.rows))
        if self.verified is None:
            return keys, None
        whole = np.where(keys[:, 0] == 0, np.uint64(0), hash_texts(texts)[:, 0])
        return np.column_stack((keys, whole)), None

    def pair_similarity(self) -> PairSimilarity:
        """Return what computes the true similarity of two texts."""
        from thresher.kernels.dedup.jaccard import PairSimilarity
        from thresher.kernels.dedup.shingles import CHARACTERS, WORDS

        return PairSimilarity(WORDS if self.words else CHARACTERS, self.ngrams)

    def verification(self) -> list[Any]:
        """Return the reader and the writer of the phase that verifies candidates, if there is one."""
        if self.verified is None:
            return []
        from thresher.stages.dedup.clustering.groups import EdgeWriter
        from thresher.stages.dedup.clustering.verification import PairReader

        reader = PairReader(self).with_(name=f"{self.name}-verify")
        return [reader, EdgeWriter().with_(name=f"{self.name}-verified")]


def _shingles(unit: str, size: int, char_ngrams: int | None, word_ngrams: int | None) -> tuple[bool, int]:
    """Return whether shingles are made of words, and how many of them, or of characters, each has."""
    given = {"char_ngrams": char_ngrams, "word_ngrams": word_ngrams}
    chosen = [(name, n) for name, n in given.items() if n is not None]
    if len(chosen) > 1:
        raise UsageError("FuzzyDeduplication: give either char_ngrams or word_ngrams")
    for name, n in chosen:
        _check_count(name, n, _MOST_NGRAMS[name])
        return name == "word_ngrams", n
    return unit == "word", size


def _banding(usual: Banding, bands: int | None, rows: int | None, threshold: float | None) -> Banding:
    if threshold is not None:
        if bands is not None or rows is not None:
            raise UsageError("FuzzyDeduplication: give either threshold, or num_bands and minhashes_per_band")
        return propose(threshold)
    made = Banding(usual.bands if bands is None else bands, usual.rows if rows is None else rows)
    _check_count("num_bands", made.bands, 10_000)
    _check_count("minhashes_per_band", made.rows, 10_000)
    return made


def _verified(verify: Any, threshold: float | None) -> float | None:
    """Return the similarity that pairs must have; `None` if they are not verified."""
    if verify is False or verify is None:
        return None
    least = threshold if verify is True else verify
    if least is None:
        raise UsageError("FuzzyDeduplication.verify: true needs threshold; or give the similarity itself: verify=0.8")
    if not isinstance(least, int | float) or not 0 < least <= 1:
        raise UsageError(f"FuzzyDeduplication.verify: {verify!r} is not a similarity above 0 and up to 1")
    return float(least)


def _check_count(name: str, given: Any, most: int) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise UsageError(f"FuzzyDeduplication.{name}: {given!r} is not a whole number from 1 to {most:,}")
