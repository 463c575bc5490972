# SPDX-License-Identifier: Apache-2.0
"""Language of a document, identified by a fastText model."""

from __future__ import annotations

from typing import Any

from thresher.errors import refusals
from thresher.models.fasttext_model import LABEL, FastTextModel, check_model_file, check_package, codes_of, labels_in
from thresher.stages.text.judging.rule import DocumentFilter
from thresher.stages.text.language.language_filter import parse_score
from thresher.stages.text.language.models import refuse_unknown


class FastTextLangId(DocumentFilter):
    """Keep documents whose language a fastText model identifies with enough certainty, or those in one language.

    The score is a list, `[0.98, "en"]`: the probability of the most probable language, and its code in the model. A
    text for which the model predicts nothing has `[0.0, ""]`. Codes are compared in lower case. `eng` matches
    `eng_Latn` and every other script, `eng_Latn` matches only itself.
    """

    def __init__(self, model_path: str, min_langid_score: float = 0.3, lang: str | None = None) -> None:
        """The bound is inclusive; without `lang` every language is accepted."""
        check_package(type(self).__name__)
        self.model_path = model_path
        self.min_langid_score = min_langid_score
        self.lang = lang
        self._model: FastTextModel | None = None

    def check_before_run(self) -> list[str]:
        """Report a missing model, or a language that the model does not know."""
        return refusals(lambda: _check_language(self.model_path, self.lang))

    def model_check_or_download(self) -> None:
        """Check that the model file exists."""
        check_model_file("FastTextLangId", self.model_path)

    def load_model(self) -> None:
        """Load the model."""
        self._model = FastTextModel("FastTextLangId", self.model_path)

    def score_document(self, text: str) -> list[Any]:
        """Return the probability and code of the most probable language."""
        if self._model is None:
            self.load_model()
        assert self._model is not None
        label, probability = self._model.best(text.strip())
        return [probability, label.removeprefix(LABEL)]

    def keep_document(self, score: Any) -> bool:
        """Return True if the probability is high enough and the language is the requested one."""
        probability, found = parse_score(score)
        return probability >= self.min_langid_score and (not self.lang or _fits(found, self.lang))


def _check_language(path: str, lang: str | None) -> None:
    codes = codes_of(labels_in("FastTextLangId", path))
    if lang and not any(_fits(code, lang) for code in codes):
        refuse_unknown("FastTextLangId.lang", [lang], codes)


def _fits(found: str, wanted: str) -> bool:
    found, wanted = found.casefold(), wanted.casefold()
    return found == wanted or ("_" not in wanted and found.split("_", maxsplit=1)[0] == wanted)
