# SPDX-License-Identifier: Apache-2.0
"""Rule that keeps documents by their language."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import refusals
from thresher.stages.text.judging.rule import TextRule
from thresher.stages.text.language.models import (
    KERNELS,
    check_languages,
    check_model,
    check_model_installed,
    is_bundled_kind,
    load_identifier,
    unpack_model,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.text.language.identifier import LanguageIdentifier


class LanguageFilter(TextRule):
    """Keep documents in any of the given languages, by the probability that a model gives to each.

    The score is a list of a probability and a code: of the most probable language among `languages`, or among all if
    none are given. A document is kept if the probability is above the threshold. The model that comes with the extra
    `langid` knows 139 languages.
    """

    def __init__(
        self,
        model_path: str | None = None,
        languages: str | list[str] | None = None,
        language_threshold: float = 0.65,
    ) -> None:
        """`model_path`: a fastText model (lid.176, GlotLID) in place of the bundled one. `languages` are codes as the
        model defines them, such as `en` (bundled, lid.176) or `eng_Latn` (GlotLID)."""
        check_model_installed("LanguageFilter", model_path)
        self.model_path = model_path
        self.languages = check_languages("LanguageFilter", languages, model_path)
        self.language_threshold = language_threshold
        self._identifier: LanguageIdentifier | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing model, or languages that the model does not know."""
        return refusals(lambda: check_model("LanguageFilter", self.model_path, self.languages))

    def model_check_or_download(self) -> None:
        """Check that the model file exists, and unpack the bundled one."""
        unpack_model("LanguageFilter", self.model_path)

    def load_model(self) -> None:
        """Load the model, and refuse languages that it does not know."""
        self._identifier = load_identifier("LanguageFilter", self.model_path, self.languages, given=False)

    def kernels(self) -> Sequence[str]:
        """Return the kernels of the bundled model; a fastText model has none."""
        return KERNELS if is_bundled_kind(self.model_path) else ()

    def score_document(self, text: str) -> list[Any]:
        """Return the probability and code of the most probable requested language."""
        code, probability = self._loaded().best(text)
        return [probability, code]

    def score_texts(self, texts: Texts, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Return the probability and code of the most probable requested language of each text."""
        found = self._loaded().identify(texts, rows)
        return [list(pair) for pair in zip(found.probabilities.tolist(), found.codes, strict=True)]

    def keep_document(self, score: Any) -> bool:
        """Return True if the probability is above the threshold."""
        return parse_score(score)[0] > self.language_threshold

    def _loaded(self) -> LanguageIdentifier:
        if self._identifier is None:
            self.load_model()
        assert self._identifier is not None
        return self._identifier


def parse_score(score: Any) -> tuple[float, str]:
    """Return probability and code; also accept a text such as `"[0.98, 'en']"`, as other curation tools write it."""
    parts = ast.literal_eval(score) if isinstance(score, str) else score
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        raise TypeError(f"{score!r} is not a score of a language rule; it needs a probability and a code, [0.98, 'en']")
    return float(parts[0]), str(parts[1])
