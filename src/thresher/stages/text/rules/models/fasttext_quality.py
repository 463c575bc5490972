# SPDX-License-Identifier: Apache-2.0
"""Quality of a document, as classified by a fastText model."""

from __future__ import annotations

import hashlib
import struct

from thresher.errors import UsageError, refusals
from thresher.models.fasttext_model import LABEL, FastTextModel, check_model_file, check_package, labels_in
from thresher.stages.text.judging.rule import DocumentFilter

_BELOW_ONE = 1.0 - 2.0**-24
"""The largest 32-bit float below 1."""
_FREE_BITS = 2**29 - 1
"""Bits of a double that a 32-bit float does not use."""


class FastTextQualityFilter(DocumentFilter):
    """Keep documents by the probability that a fastText model gives to a label, and a random part of the others.

    A document is kept if a number drawn from a Pareto distribution (Lomax, shape `alpha`) is above 1 - score: all of
    the best documents are kept, and a few of the worst. The number is derived from a hash of `seed` and the text, so
    that the decision for a document is the same on every run, in any order, batch or worker. Equal texts get equal
    decisions.

    The score is the probability, which fastText gives with 24 bits. Its lower bits hold a part of the hash of the text
    (they change it by less than one part in eight million), so that the score alone determines the decision, and other
    parameters can be tried on kept scores.
    """

    def __init__(self, model_path: str, label: str = "__label__hq", alpha: float = 3, seed: int = 42) -> None:
        """`label` is the model's label of good documents; the larger `alpha`, the fewer other documents are kept."""
        if not alpha > 0:
            raise UsageError(f"FastTextQualityFilter.alpha: {alpha!r} is not a number above 0")
        check_package(type(self).__name__)
        self.model_path = model_path
        self.label = label
        self.alpha = alpha
        self.seed = seed
        self._model: FastTextModel | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing model, or a label that the model does not know."""
        return refusals(lambda: self._check_label(labels_in("FastTextQualityFilter", self.model_path)))

    def _check_label(self, labels: list[str]) -> None:
        if self.label not in labels:
            known = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
            raise UsageError(f"FastTextQualityFilter.label: the model has no {self.label!r}; its labels are {known}")

    def model_check_or_download(self) -> None:
        """Check that the model file exists."""
        check_model_file("FastTextQualityFilter", self.model_path)

    def load_model(self) -> None:
        """Load the model, and refuse a model without the label."""
        model = FastTextModel("FastTextQualityFilter", self.model_path)
        self._check_label(model.labels)
        self._model = model

    def score_document(self, text: str) -> float:
        """Return the probability of the label; 0 if the model predicts nothing."""
        if self._model is None:
            self.load_model()
        assert self._model is not None
        probability = self._model.probabilities(text.replace(LABEL, " ")).get(self.label, 0.0)
        return _marked(probability, text)

    def keep_document(self, score: float) -> bool:
        """Return True if the number drawn for the document is above 1 - score."""
        return _pareto(score, self.alpha, self.seed) > 1 - score


def _marked(probability: float, text: str) -> float:
    """Return the probability with a hash of the text in its unused bits."""
    mark = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    (bits,) = struct.unpack("<Q", struct.pack("<d", min(max(probability, 0.0), _BELOW_ONE)))
    (marked,) = struct.unpack("<d", struct.pack("<Q", bits & ~_FREE_BITS | mark & _FREE_BITS))
    return float(marked)


def _pareto(score: float, alpha: float, seed: int) -> float:
    """Return a number from the Pareto distribution (Lomax), determined by the score and the seed."""
    name = struct.pack("<d", score) + str(seed).encode()
    drawn = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little") >> 11
    return float((1 - drawn * 2.0**-53) ** (-1 / alpha) - 1)
