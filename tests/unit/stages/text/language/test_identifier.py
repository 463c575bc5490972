# SPDX-License-Identifier: Apache-2.0
"""What the bundled model finds is what py3langid finds, which carries it, and at least as often right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts
from tests.unit.stages.text.language.lid_data import gold
from thresher.stages.text.language.codes import LANGUAGES, code_of
from thresher.stages.text.language.identifier import SHORT, LanguageIdentifier, plain_form
from thresher.stages.text.language.models import load_identifier

langid = pytest.importorskip("py3langid.langid", reason="needs the extra `langid`")
SCRIPTS = "abc déß ÀÉ не слово 漢字かな한국 हिन्दी ไทย العربية 0123 .,!?\n\t e\u0301\u0323 \ud800"


@pytest.fixture(scope="module")
def bundled() -> LanguageIdentifier:
    return load_identifier("LanguageId", None, None, given=True)


@pytest.fixture(scope="module")
def library() -> Any:
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def identified(identifier: LanguageIdentifier, texts: Sequence[str]) -> list[tuple[str, float]]:
    found = identifier.identify(as_texts(texts), np.arange(len(texts), dtype=np.int64))
    return list(zip(found.codes, found.probabilities.tolist(), strict=True))


def is_short(text: str) -> bool:
    return len("".join(text.split())) < SHORT


def assert_same(found: Sequence[tuple[str, float]], texts: Sequence[str], library: Any) -> None:
    """The library has an answer for texts in which it finds nothing, too."""
    for text, (code, probability) in zip(texts, found, strict=True):
        seen = plain_form(text, True) if is_short(text) else text
        if not probability:
            assert (
                langid.visit_counts(library.tk_nextmove, library._rowbase, library.tk_output, library._encode(seen))
                is None
            )
            continue
        expected, certainty = library.classify(seen)
        assert (code, probability) == (expected, pytest.approx(certainty, abs=1e-3)), text


@pytest.mark.parametrize("kind", ["sentences", "short"])
def test_languages_and_probabilities_are_those_of_the_library(
    kind: str, bundled: LanguageIdentifier, library: Any
) -> None:
    texts = [text for text, _ in gold(kind)]
    texts += [text.upper() for text in texts[::9]] + [" ".join(texts[n : n + 40]) for n in range(0, 400, 40)]
    assert_same(identified(bundled, texts), texts, library)


def test_on_any_text(bundled: LanguageIdentifier, library: Any) -> None:
    @settings(max_examples=60)
    @given(st.lists(st.text(st.sampled_from(SCRIPTS), max_size=80) | st.text(max_size=60), min_size=1, max_size=6))
    def check(texts: list[str]) -> None:
        found = identified(bundled, texts)
        near_ties = [n for n, text in enumerate(texts) if _is_near_tie(library, text)]
        kept = [n for n in range(len(texts)) if n not in near_ties]
        assert_same([found[n] for n in kept], [texts[n] for n in kept], library)

    check()


def _is_near_tie(library: Any, text: str) -> bool:
    """Return True if rounding decides between the two best languages."""
    ranked = library.rank(plain_form(text, True) if is_short(text) else text)
    return bool(ranked[0][1] - ranked[1][1] < 1e-4)


@pytest.mark.parametrize("kind", ["sentences", "short"])
def test_it_is_right_at_least_as_often_as_the_library(kind: str, bundled: LanguageIdentifier, library: Any) -> None:
    pairs = gold(kind)
    found = identified(bundled, [text for text, _ in pairs])
    ours = sum(code == language for (code, _), (_, language) in zip(found, pairs, strict=True))
    theirs = sum(library.classify(text)[0] == language for text, language in pairs)
    assert ours >= theirs
    assert ours / len(pairs) > {"sentences": 0.94, "short": 0.73}[kind]


def test_candidates_share_the_whole_probability_or_keep_their_own(bundled: LanguageIdentifier, library: Any) -> None:
    text = "Tänään on kaunis ja lämmin päivä, ja me menemme ulos."
    among = load_identifier("LanguageId", None, ["en", "sr"], given=True)
    plain = load_identifier("LanguageFilter", None, ["en", "sr"], given=False)
    library.set_languages(["en", "sr"])
    try:
        expected, certainty = library.classify(text)
    finally:
        library.set_languages(None)
    assert among.best(text) == (expected, pytest.approx(certainty, abs=1e-3))
    assert plain.best(text)[1] < 1e-3, "it is Finnish"
    assert bundled.best(text)[0] == "fi"


def test_where_batches_are_cut_makes_no_difference(bundled: LanguageIdentifier) -> None:
    texts = [
        f"{text} {number}" for number in range(700) for text in ("Ein Satz auf Deutsch", "ALL CAPITALS", "é e\u0301")
    ]
    whole = identified(bundled, texts)
    assert [bundled.best(text) for text in texts[::37]] == whole[::37]


def test_every_language_of_the_model_has_a_name(library: Any) -> None:
    assert set(library.labels) == set(LANGUAGES)


@pytest.mark.parametrize(
    ("name", "code"),
    [("en", "en"), ("EN", "en"), ("eng", "en"), ("en-GB", "en"), ("deu_Latn", "de"), ("nb", "no"), ("kmr", "ku")],
)
def test_languages_may_be_named_by_other_standards(name: str, code: str) -> None:
    assert code_of(name) == code


def test_a_name_of_no_language_stays_as_it_is() -> None:
    assert code_of("Klingon") == "klingon"
