# SPDX-License-Identifier: Apache-2.0
"""Lists of words by language: what counts as a hit, what happens to documents without a list, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of
from tests.unit.kernels.texts import as_texts, hard_texts
from thresher.errors import ThresherError, UsageError
from thresher.kernels.edits.word_list import texts_with_words, word_list
from thresher.stages.text.c4.bad_words import C4BadWordsFilter

WORDS = ["darn", "heck", "son of a gun", "caché", "a-b", "kiwi", "ki"]


def hits(texts: list[str], **parameters: Any) -> list[str]:
    stage = C4BadWordsFilter({"en": WORDS}, **parameters)
    kept = stage.process(batch_of([{"text": text} for text in texts]))
    return [word for dropped in kept._dropped for word in dropped.scores or ()]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("what the HECK is it", "heck"),
        ("heck", "heck"),
        ("(darn)", "darn"),
        ("a Son of a Gun, he", "son of a gun"),
        ("darned", None),
        ("darn_it", None),
        ("édarn", None),
        ("darnß", None),
        ("\u200bdarn", "darn"),
        ("a CACHÉ of", "caché"),
        ("a\nb a-b", "a-b"),
        ("\u212aiwi", "kiwi"),
        ("hec", None),
        ("", None),
    ],
)
def test_an_entry_counts_where_it_stands_alone(text: str, word: str | None) -> None:
    assert hits(["fine", text]) == ([] if word is None else [word])
    assert C4BadWordsFilter({"en": WORDS}).bad_word(text) == word


def test_the_list_is_that_of_the_document() -> None:
    stage = C4BadWordsFilter({"en": ["gift"], "ja": ["悪い"], "zh": ["性", "坏"]})
    records = [
        {"text": "ein gift", "language": "en"},
        {"text": "とても悪いこと", "language": "ja"},
        {"text": "gift"},
        {"text": "性", "language": "zh"},
        {"text": "悪い", "language": None},
    ]
    kept = stage.process(batch_of(records))
    assert kept.values("text") == ["性", "悪い"]
    (dropped,) = kept._dropped
    assert (dropped.rule, dropped.scores) == ("document_removed_with_badwords", ["gift", "悪い", "gift"])


def test_a_document_without_a_list_is_set_aside_or_kept() -> None:
    records = [{"text": "heck", "language": "de"}, {"text": "heck"}, {"text": "ok"}]
    strict = C4BadWordsFilter({"en": WORDS}).process(batch_of(records))
    assert strict.values("text") == ["ok"]
    (failed,) = strict._failed
    assert failed.error == "language-without-words"
    assert "'de'" in failed.messages[0]
    loose = C4BadWordsFilter({"en": WORDS}, fail_on_missing_language=False).process(batch_of(records))
    assert loose.values("text") == ["heck", "ok"]


def test_a_share_is_kept_and_always_the_same() -> None:
    texts = [f"heck {number}" for number in range(400)]
    dropped = len(hits(texts, keep_fraction=0.25))
    assert 250 < dropped < 350
    stage = C4BadWordsFilter({"en": WORDS}, keep_fraction=0.25)
    alone = [text for text in texts if len(stage.process(batch_of([{"text": text}])))]
    assert alone == stage.process(batch_of([{"text": text} for text in texts])).values("text")
    other = C4BadWordsFilter({"en": WORDS}, keep_fraction=0.25, seed=1)
    assert other.process(batch_of([{"text": text} for text in texts])).values("text") != alone


def test_a_list_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "en"
    path.write_text("Heck\n\n darn \nsm\n", encoding="utf-8")
    stage = cloudpickle.loads(cloudpickle.dumps(C4BadWordsFilter({"en": str(path)})))
    stage.setup()
    assert stage.bad_word("oh heck") == "heck"
    assert stage.bad_word("sm") is None
    with pytest.raises(ThresherError, match="missing"):
        C4BadWordsFilter({"en": str(tmp_path / "missing")}).setup()


def test_no_list_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match=r"write .en: path of a file"):
        C4BadWordsFilter({})
    with pytest.raises(UsageError, match="the list for 'en' is empty"):
        C4BadWordsFilter({"en": [" "]}).setup()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS, *map(str.upper, WORDS), "\u212a", "İ", "é", " ", ".", "_", "x", "-", "\n", "™"]))
)
def test_the_quick_look_misses_nothing(pieces: list[str]) -> None:
    text = "".join(pieces)
    stage = C4BadWordsFilter({"en": WORDS})
    listed = word_list(WORDS)
    assert listed is not None
    found = texts_with_words(as_texts(["x", text, "heck"]), np.arange(3), listed).tolist()
    assert found[0] is False
    assert found[2] is True
    assert found[1] or stage.bad_word(text) is None


@settings(max_examples=100, deadline=None)
@given(hard_texts)
def test_no_text_makes_it_fail(text: str) -> None:
    assert word_list(["é", "x"]) is None
    word = C4BadWordsFilter({"en": ["the", "policy"]}).bad_word(text)
    assert word in (None, "the", "policy")
