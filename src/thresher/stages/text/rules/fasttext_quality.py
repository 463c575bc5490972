# SPDX-License-Identifier: Apache-2.0
"""What a fastText model thinks of a document's quality."""

from __future__ import annotations

import hashlib
import struct

from thresher.errors import UsageError
from thresher.models.fasttext_model import LABEL, FastTextModel, check_model_file, check_package
from thresher.stages.text.document_filter import DocumentFilter

_BELOW_ONE = 1.0 - 2.0**-24
"""The largest float of 32 bits below 1."""
_FREE_BITS = 2**29 - 1
"""Bits of a double that a float of 32 bits does not use."""


class FastTextQualityFilter(DocumentFilter):
    """Keep documents by the probability that a fastText model gives to a label, with some chance for the others.

    A document is kept when a number drawn from a Pareto distribution (Lomax, shape `alpha`) is above 1 - score: all of
    the best are kept, and a few of the worst. The number is drawn from a hash of `seed` and the text, so that a
    document has the same fate on every run, in whatever order, batch or worker. Equal texts have the same fate.

    The score is the probability, which fastText gives with 24 bits. The lower bits of the number hold a part of the
    text's hash (they change it by less than one part in eight million), so that a score alone tells the fate too, and
    other parameters can be tried on kept scores.
    """

    def __init__(self, model_path: str, label: str = "__label__hq", alpha: float = 3, seed: int = 42) -> None:
        """`label` is what good documents are called in the model; the larger `alpha`, the fewer others are kept."""
        if not alpha > 0:
            raise UsageError(f"FastTextQualityFilter.alpha: {alpha!r} is not a number above 0")
        check_package(type(self).__name__)
        self.model_path = model_path
        self.label = label
        self.alpha = alpha
        self.seed = seed
        self._model: FastTextModel | None = None

    def model_check_or_download(self) -> None:
        """The model must be there."""
        check_model_file("FastTextQualityFilter", self.model_path)

    def load_model(self) -> None:
        """Load the model, and refuse one that does not know the label."""
        model = FastTextModel("FastTextQualityFilter", self.model_path)
        if self.label not in model.labels:
            known = ", ".join(model.labels[:8]) + (", …" if len(model.labels) > 8 else "")
            raise UsageError(f"FastTextQualityFilter.label: the model has no {self.label!r}; its labels are {known}")
        self._model = model

    def score_document(self, text: str) -> float:
        """The probability of the label; 0 where the model says nothing."""
        if self._model is None:
            self.load_model()
        assert self._model is not None
        probability = self._model.probabilities(text.replace(LABEL, " ")).get(self.label, 0.0)
        return _marked(probability, text)

    def keep_document(self, score: float) -> bool:
        """Whether the document is lucky, or good."""
        return _pareto(score, self.alpha, self.seed) > 1 - score


def _marked(probability: float, text: str) -> float:
    """The probability with a hash of the text in the bits that it does not use."""
    mark = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    (bits,) = struct.unpack("<Q", struct.pack("<d", min(max(probability, 0.0), _BELOW_ONE)))
    (marked,) = struct.unpack("<d", struct.pack("<Q", bits & ~_FREE_BITS | mark & _FREE_BITS))
    return float(marked)


def _pareto(score: float, alpha: float, seed: int) -> float:
    """A number of the Pareto distribution (Lomax) that follows from a score and a seed."""
    name = struct.pack("<d", score) + str(seed).encode()
    drawn = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 11
    return float((1 - drawn * 2.0**-53) ** (-1 / alpha) - 1)
