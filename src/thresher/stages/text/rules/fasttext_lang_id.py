# SPDX-License-Identifier: Apache-2.0
"""In which language a document is, as a fastText model sees it."""

from __future__ import annotations

import ast
from typing import Any

from thresher.errors import UsageError
from thresher.models.fasttext_model import LABEL, FastTextModel, check_model_file, check_package
from thresher.stages.text.document_filter import DocumentFilter


class _LanguageRule(DocumentFilter):
    """What rules about the language share: a model, and a score that is a list of probability and language."""

    model_path: str

    def model_check_or_download(self) -> None:
        """The model must be there."""
        check_model_file(type(self).__name__, self.model_path)

    def load_model(self) -> None:
        """Load the model."""
        self._model: FastTextModel | None = FastTextModel(type(self).__name__, self.model_path)

    def _loaded(self) -> FastTextModel:
        if self._model is None:
            self.load_model()
        assert self._model is not None
        return self._model


class FastTextLangId(_LanguageRule):
    """Keep documents whose language the model is sure of, or those in one language.

    The score is a list, `[0.98, "en"]`: the probability of the most probable language, and its code as the model has
    it. A text that the model says nothing about has `[0.0, ""]`. Codes are compared in lower case. A wanted `eng` fits
    `eng_Latn` and every other script, a wanted `eng_Latn` fits only itself.
    """

    def __init__(self, model_path: str, min_langid_score: float = 0.3, lang: str | None = None) -> None:
        """The bound is an allowed value; without `lang` every language is good enough."""
        check_package(type(self).__name__)
        self.model_path = model_path
        self.min_langid_score = min_langid_score
        self.lang = lang
        self._model = None

    def score_document(self, text: str) -> list[Any]:
        """Probability and code of the most probable language."""
        label, probability = self._loaded().best(text.strip())
        return [probability, label.removeprefix(LABEL)]

    def keep_document(self, score: Any) -> bool:
        """Whether the model is sure enough, and the language the wanted one."""
        probability, found = _parted(score)
        return probability >= self.min_langid_score and (not self.lang or _fits(found, self.lang))


class LanguageFilter(_LanguageRule):
    """Keep documents that are in one of some languages, by the probability that the model gives to each of them.

    The score is a list of a probability and a code: of the most probable one among `languages`, or of all where none
    are given. A document is kept when the probability is above the threshold.
    """

    def __init__(
        self, model_path: str, languages: str | list[str] | None = None, language_threshold: float = 0.65
    ) -> None:
        """`languages` are codes as the model has them, such as `en` (lid.176) or `eng_Latn` (GlotLID)."""
        check_package(type(self).__name__)
        self.model_path = model_path
        self.languages = [languages] if isinstance(languages, str) else languages
        self.language_threshold = language_threshold
        self._model = None

    def load_model(self) -> None:
        """Load the model, and refuse languages that it does not know."""
        super().load_model()
        known = [label.removeprefix(LABEL) for label in self._loaded().labels]
        unknown = [code for code in self.languages or [] if code not in known]
        if unknown:
            shown = ", ".join(sorted(known)[:12])
            raise UsageError(
                f"LanguageFilter.languages: the model does not know {', '.join(map(repr, unknown))}; "
                f"its codes look like {shown}, …"
            )

    def score_document(self, text: str) -> list[Any]:
        """The best of the wanted languages, and its probability."""
        model = self._loaded()
        if self.languages is None:
            label, probability = model.best(text)
            return [probability, label.removeprefix(LABEL)]
        found = model.probabilities(text)
        # Of equal ones the first in the list counts.
        best = max(self.languages, key=lambda code: found.get(LABEL + code, 0.0), default="")
        return [found.get(LABEL + best, 0.0), best]

    def keep_document(self, score: Any) -> bool:
        """Whether the probability is above the threshold."""
        return _parted(score)[0] > self.language_threshold


def _parted(score: Any) -> tuple[float, str]:
    """Probability and code; a text such as `"[0.98, 'en']"`, as other curators write it, is understood too."""
    parts = ast.literal_eval(score) if isinstance(score, str) else score
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        raise TypeError(f"{score!r} is no score of a language rule; it needs a probability and a code, [0.98, 'en']")
    return float(parts[0]), str(parts[1])


def _fits(found: str, wanted: str) -> bool:
    found, wanted = found.casefold(), wanted.casefold()
    return found == wanted or ("_" not in wanted and found.split("_", maxsplit=1)[0] == wanted)
