# SPDX-License-Identifier: Apache-2.0
"""Identify the languages of texts with a model: the bundled one, or one of the user's.

A model gives each text a probability for each language that it knows. Candidates narrow that down in one of two ways: a
stage that labels asks for the probability *given* that the text is in one of them, so they sum to 1; a filter asks
for the plain probability, so that a text in none of them has a low one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts.text_counts import Rows, Texts
from thresher.kernels.language.byte_ngrams import ByteNgrams, score
from thresher.kernels.language.plain_form import find_forms
from thresher.models.byte_ngram_model import ByteNgramModel
from thresher.models.fasttext_model import LABEL, FastTextModel
from thresher.stages.text.columns.text_column import as_texts

SCORE_DIGITS = 4
"""Probabilities are rounded to this many decimal places: processors differ in the last ones."""
SHORT = 20
"""A text with fewer characters, white space not counted, is identified in lower case and between spaces. The model was
trained on documents: to it, the first letter of a word without a space before it is something else."""
_AT_A_TIME = 1024
"""Number of texts whose scores are in memory at a time."""


class Identified(NamedTuple):
    """The languages of some texts."""

    codes: list[str]
    """The most probable language of each text; any or none if the model finds nothing that it knows."""
    probabilities: npt.NDArray[np.float64]
    """Its probability; 0 if the model finds nothing."""


class LanguageIdentifier(Protocol):
    """A model with its candidates."""

    def identify(self, texts: Texts, rows: Rows) -> Identified:
        """Return the most probable candidate for some of the texts."""
        ...

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable candidate for a text, and its probability."""
        ...


def string_of(texts: Texts, row: int) -> str:
    """Return one text as a string."""
    return str(texts.data[texts.starts[row] : texts.ends[row]].data, "utf-8", "surrogatepass")


def _packed(strings: Sequence[str]) -> Texts:
    return as_texts([string.encode("utf-8", "surrogatepass") for string in strings])


class ByteNgramIdentifier:
    """A model of byte sequences. What it gives a text depends on nothing but the text, on every machine."""

    def __init__(self, model: ByteNgramModel, candidates: Sequence[str] | None = None, given: bool = False) -> None:
        """`candidates` are codes of the model, by default all; `given`: their probabilities sum to 1."""
        if candidates is not None and given:
            model = model.restricted(set(candidates))
        known = list(dict.fromkeys(model.classes))
        self._candidates = known if candidates is None else list(candidates)
        self._arrays = ByteNgrams(model.moves, model.states, model.weights, model.prior)
        # A language that is written in two scripts has a class for each.
        columns = {code: [n for n, other in enumerate(model.classes) if other == code] for code in self._candidates}
        self._first = np.array([columns[code][0] for code in self._candidates], dtype=np.int64)
        self._others = [(n, column) for n, code in enumerate(self._candidates) for column in columns[code][1:]]

    def identify(self, texts: Texts, rows: Rows) -> Identified:
        """Return the most probable candidate for some of the texts; on a tie the first one."""
        codes: list[str] = []
        probabilities = np.zeros(len(rows), dtype=np.float64)
        for start in range(0, len(rows), _AT_A_TIME):
            found = self._probabilities(texts, rows[start : start + _AT_A_TIME])
            best = found.argmax(axis=1)
            highest = np.take_along_axis(found, best[:, np.newaxis], axis=1)[:, 0]
            probabilities[start : start + len(best)] = highest.round(SCORE_DIGITS)
            codes += [self._candidates[n] if known else "" for n, known in zip(best.tolist(), highest > 0, strict=True)]
        return Identified(codes, probabilities)

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable candidate for a text, and its probability."""
        found = self.identify(_packed([text]), np.zeros(1, dtype=np.int64))
        return found.codes[0], float(found.probabilities[0])

    def _probabilities(self, texts: Texts, rows: Rows) -> npt.NDArray[np.float64]:
        """Return a row of probabilities of the candidates for each of the texts; zeros for one without features."""
        found = np.zeros((len(rows), len(self._first)), dtype=np.float64)
        for where, some, some_rows in _in_plain_form(texts, rows):
            scored = score(some, some_rows, self._arrays)
            # The square root keeps probabilities of long texts from being all 0 or 1: their features are not
            # independent of one another.
            lengths = np.maximum(some.ends[some_rows] - some.starts[some_rows], 1)
            shares = scored.scores.astype(np.float64) / np.sqrt(lengths)[:, np.newaxis]
            shares = np.exp(shares - shares.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            candidates = shares[:, self._first]
            for n, column in self._others:
                candidates[:, n] += shares[:, column]
            candidates[scored.features == 0] = 0.0
            found[where] = candidates
        return found


def _in_plain_form(texts: Texts, rows: Rows) -> Iterator[tuple[Rows, Texts, Rows]]:
    """Yield the texts in the form in which the model knows its features. Each item has positions in `rows`, texts, and
    the rows of those."""
    forms = find_forms(texts, rows)
    short = forms.visible < SHORT
    changed = forms.changed | short
    plain = np.flatnonzero(~changed)
    if len(plain):
        yield plain, texts, rows[plain]
    others = np.flatnonzero(changed)
    if len(others):
        pairs = zip(rows[others].tolist(), short[others].tolist(), strict=True)
        strings = [plain_form(string_of(texts, row), is_short) for row, is_short in pairs]
        yield others, _packed(strings), np.arange(len(strings), dtype=np.int64)


def plain_form(text: str, short: bool) -> str:
    """Return a text in Unicode's composed form; in lower case if it is in capitals alone or short, and then between
    spaces, so that its first and last words are known as words."""
    if short:
        text = f" {text.lower()} "
    elif text.isupper():
        text = text.lower()
    return unicodedata.normalize("NFC", text)


class FastTextIdentifier:
    """A fastText model."""

    def __init__(self, model: FastTextModel, candidates: Sequence[str] | None = None, given: bool = False) -> None:
        """`candidates` are codes of the model, by default all; `given`: their probabilities sum to 1."""
        self._model = model
        self._candidates = candidates
        self._given = given

    def identify(self, texts: Texts, rows: Rows) -> Identified:
        """Return the most probable candidate for some of the texts; on a tie the first one."""
        found = [self.best(string_of(texts, row)) for row in rows.tolist()]
        return Identified([code for code, _ in found], np.array([share for _, share in found], dtype=np.float64))

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable candidate for a text, and its probability."""
        if self._candidates is None:
            label, probability = self._model.best(text)
            return label.removeprefix(LABEL), probability
        probabilities = self._model.probabilities(text)
        found = [probabilities.get(LABEL + code, 0.0) for code in self._candidates]
        highest = max(found)
        whole = sum(found) if self._given and highest else 1.0
        return self._candidates[found.index(highest)], highest / whole
