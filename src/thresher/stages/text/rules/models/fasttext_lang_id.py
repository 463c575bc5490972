# SPDX-License-Identifier: Apache-2.0
"""Language of a document, identified by a fastText model."""

from __future__ import annotations

import ast
from typing import Any

from thresher.errors import UsageError, refusals
from thresher.models.fasttext_model import LABEL, FastTextModel, check_model_file, check_package, labels_in
from thresher.stages.text.judging.rule import DocumentFilter


class _LanguageRule(DocumentFilter):
    """Base of the language rules: a model, and a score that is a list of probability and language."""

    model_path: str

    def model_check_or_download(self) -> None:
        """Check that the model file exists."""
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
        self._model = None

    def check_before_run(self) -> list[str]:
        """Report a missing model, or a language that the model does not know."""
        return refusals(lambda: _check_language(self.model_path, self.lang))

    def score_document(self, text: str) -> list[Any]:
        """Return the probability and code of the most probable language."""
        label, probability = self._loaded().best(text.strip())
        return [probability, label.removeprefix(LABEL)]

    def keep_document(self, score: Any) -> bool:
        """Return True if the probability is high enough and the language is the requested one."""
        probability, found = _parse_score(score)
        return probability >= self.min_langid_score and (not self.lang or _fits(found, self.lang))


class LanguageFilter(_LanguageRule):
    """Keep documents in any of the given languages, by the probability that a fastText model gives to each.

    The score is a list of a probability and a code: of the most probable language among `languages`, or among all if
    none are given. A document is kept if the probability is above the threshold.
    """

    def __init__(
        self, model_path: str, languages: str | list[str] | None = None, language_threshold: float = 0.65
    ) -> None:
        """`languages` are codes as the model defines them, such as `en` (lid.176) or `eng_Latn` (GlotLID)."""
        check_package(type(self).__name__)
        self.model_path = model_path
        self.languages = [languages] if isinstance(languages, str) else languages
        self.language_threshold = language_threshold
        self._model = None

    def check_before_run(self) -> list[str]:
        """Report a missing model, or languages that the model does not know."""
        return refusals(lambda: self._check_languages(labels_in(type(self).__name__, self.model_path)))

    def load_model(self) -> None:
        """Load the model, and refuse languages that it does not know."""
        super().load_model()
        self._check_languages(self._loaded().labels)

    def _check_languages(self, labels: list[str]) -> None:
        codes = codes_of(labels)
        refuse_unknown("LanguageFilter.languages", [code for code in self.languages or [] if code not in codes], codes)

    def score_document(self, text: str) -> list[Any]:
        """Return the probability and code of the most probable requested language."""
        model = self._loaded()
        if self.languages is None:
            label, probability = model.best(text)
            return [probability, label.removeprefix(LABEL)]
        found = model.probabilities(text)
        # On a tie the first in the list wins.
        best = max(self.languages, key=lambda code: found.get(LABEL + code, 0.0), default="")
        return [found.get(LABEL + best, 0.0), best]

    def keep_document(self, score: Any) -> bool:
        """Return True if the probability is above the threshold."""
        return _parse_score(score)[0] > self.language_threshold


def _check_language(path: str, lang: str | None) -> None:
    codes = codes_of(labels_in("FastTextLangId", path))
    if lang and not any(_fits(code, lang) for code in codes):
        refuse_unknown("FastTextLangId.lang", [lang], codes)


def codes_of(labels: list[str]) -> list[str]:
    """Return the language codes that a model knows."""
    return [label.removeprefix(LABEL) for label in labels]


def refuse_unknown(parameter: str, unknown: list[str], codes: list[str]) -> None:
    """Raise a `UsageError` if there are languages that a model does not know."""
    if unknown:
        raise UsageError(
            f"{parameter}: the model does not know {', '.join(map(repr, unknown))}; "
            f"its codes look like {', '.join(sorted(codes)[:12])}, …"
        )


def _parse_score(score: Any) -> tuple[float, str]:
    """Return probability and code; also accept a text such as `"[0.98, 'en']"`, as other curation tools write it."""
    parts = ast.literal_eval(score) if isinstance(score, str) else score
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        raise TypeError(f"{score!r} is not a score of a language rule; it needs a probability and a code, [0.98, 'en']")
    return float(parts[0]), str(parts[1])


def _fits(found: str, wanted: str) -> bool:
    found, wanted = found.casefold(), wanted.casefold()
    return found == wanted or ("_" not in wanted and found.split("_", maxsplit=1)[0] == wanted)
