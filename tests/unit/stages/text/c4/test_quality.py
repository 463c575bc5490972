# SPDX-License-Identifier: Apache-2.0
"""C4: which lines of a text are left, which documents are dropped, and that the kernel agrees with the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from tests.unit.kernels.texts import as_texts, hard_texts, made_up_texts, real_texts
from thresher.core.documents.batch import DocumentBatch
from thresher.kernels.counts.text_counts import Counts
from thresher.kernels.edits.c4_trim import UNDECIDED, trim
from thresher.stages.text.c4.quality import REASONS, C4QualityFilter, count_sentences, split_sentences

GOOD = "This is a line. It has two sentences."
FIVE = "\n".join([GOOD, GOOD, GOOD])
SETTINGS: list[dict[str, Any]] = [
    {},
    {"min_num_sentences": 1, "min_words_per_line": 1, "max_word_length": 6},
    {"min_num_sentences": -1, "filter_no_terminal_punct": False, "min_words_per_line": 1},
    {"min_num_sentences": 2, "remove_citations": False, "filter_policy": False, "max_word_length": -1},
    {
        "min_num_sentences": 0,
        "filter_javascript": False,
        "filter_curly_bracket": False,
        "filter_lorem_ipsum": False,
        "min_words_per_line": -1,
    },
]
PIECES = [
    *[
        "a",
        "b c",
        "the",
        ".",
        "!",
        "?",
        '"',
        "'",
        "...",
        "…",
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\r\n",
        "\x0b",
        "\x1f",
        "\x85",
    ],
    *[
        "\u2028",
        "\xa0",
        "\u3000",
        "é",
        "中",
        "。",
        "\x00",
        "[1]",
        "[edit]",
        "[citation needed]",
        "[",
        "[٣]",
        "[é]",
        "]",
    ],
    *["[]", "{", "}", "lorem ipsum", "Lorem Ipsum", "javascript", "JAVA[1]SCRIPT", "terms of use", "Privacy Policy"],
    *["cookie policy", "uses cookies", "use of cookies", "use cookies", "COO\u212aIE policy", "İ", ".)", ".”", "J."],
    *["U.S.", "É.", "x" * 9, "é" * 6, "\ud800", "One two three. Four five six.\n", "Hello there world.\n"],
]
made = st.one_of(hard_texts, st.lists(st.sampled_from(PIECES), max_size=60).map("".join))


def texts_left(batch: DocumentBatch) -> list[Any]:
    return batch.values("text")


def reasons(batch: DocumentBatch) -> list[tuple[str, list[Any], Any, Any]]:
    return [(d.rule, d.batch.values("text"), d.scores, d.threshold) for d in batch._dropped]


def trimmed(text: str, **parameters: Any) -> str | None:
    return C4QualityFilter(**{"min_num_sentences": 1, **parameters}).trim_document(text).text


def test_lines_that_do_not_look_like_prose_are_left_out() -> None:
    long_word = "x" * 1001
    lines = [
        "Home | About | Contact",
        f"  {GOOD}\t",
        "Too short.",
        "It goes on...",
        "Please enable JavaScript to see this page.",
        "By going on you accept our Privacy Policy.",
        f"A word of {long_word} is too long.",
        'He said "so it is"',
        "",
    ]
    assert trimmed("\r\n".join(lines)) == f'{GOOD}\nHe said "so it is"'


def test_citations_are_taken_out_before_a_line_is_judged() -> None:
    assert trimmed("The city has two rivers.[1][23] [edit]\nIt was founded[citation needed] in 900.[٣]") == (
        "It was founded in 900."
    )  # the space that is left behind the first line makes it end like no sentence
    assert trimmed("Java[1]Script is named here too.", filter_javascript=True) is None
    assert trimmed("[1] What stands first is a space.") == "What stands first is a space."
    assert trimmed("It stays as it is.[1]", remove_citations=False) is None


@pytest.mark.parametrize(
    ("text", "reason", "scores", "threshold"),
    [
        (f"{FIVE}\nSome Lorem ipsum dolor sit.", "lorem_ipsum", None, None),
        (f"{FIVE}\nfunction main() {{ return; }} is code.", "curly_bracket", None, None),
        (f"{GOOD}\n{GOOD}\nlorem ipsum", "too_few_sentences", [4], {"min_num_sentences": 5}),
        ("", "too_few_sentences", [0], {"min_num_sentences": 5}),
    ],
)
def test_documents_are_dropped_with_a_reason_and_keep_their_text(
    text: str, reason: str, scores: Any, threshold: Any
) -> None:
    kept = C4QualityFilter().process(batch_of([{"text": FIVE}, {"text": text}]))
    assert texts_left(kept) == [FIVE]
    assert reasons(kept) == [(reason, [text], scores, threshold)]


def test_only_changed_texts_are_written_anew() -> None:
    batch = batch_of([{"id": 1, "text": FIVE}, {"id": 2, "text": f"menu\n{FIVE}"}, {"id": 3, "text": "x"}, {"id": 4}])
    kept = C4QualityFilter().process(batch)
    assert written(kept) == [{"id": 1, "text": FIVE}, {"id": 2, "text": FIVE}]
    assert kept._changed["text"] is not None
    assert kept._changed["text"].tolist() == [False, True]
    assert [failed.error for failed in kept._failed] == ["field-missing"]


def test_a_batch_in_which_nothing_changes_stays_untouched() -> None:
    kept = C4QualityFilter().process(batch_of([{"text": FIVE}, {"text": "no"}]))
    assert kept.untouched


def test_what_the_kernel_leaves_open_is_asked_of_the_definition() -> None:
    unclear = f"{FIVE}\nOur COO\u212aIE policy is this.\nIt has[٣] a digit."
    others = [f"menu\n{FIVE}", unclear, f"{GOOD}", f"{FIVE}\nmenu", unclear]
    kept = C4QualityFilter().process(batch_of([{"text": text} for text in others]))
    assert texts_left(kept) == [FIVE, f"{FIVE}\nIt has a digit.", FIVE, f"{FIVE}\nIt has a digit."]


def test_every_decimal_digit_makes_a_citation() -> None:
    digits = [chr(point) for point in range(0x110000) if chr(point).isdecimal()]
    texts = [f"It has[{digit}] a mark." for digit in [*digits, "é", "中", "1é", "é1", "١٢", "²"]]
    stage = C4QualityFilter(min_num_sentences=1)
    assert_trims_alike(stage, texts)
    kept = stage.process(batch_of([{"text": text} for text in texts]))
    assert texts_left(kept) == [stage.trim_document(text).text for text in texts]


def test_sentences_may_be_judged_in_place_of_lines() -> None:
    text = "This is a sentence. No! And this is\nanother one. Without an end"
    assert trimmed(text, split_paragraph=False) == "This is a sentence. And this is\nanother one."


@pytest.mark.parametrize("parameters", SETTINGS, ids=range(len(SETTINGS)))
def test_the_kernel_agrees_with_the_definition(parameters: dict[str, Any]) -> None:
    @settings(max_examples=250, deadline=None)
    @given(st.lists(made, min_size=1, max_size=4))
    @example(["", "\n", ".", "a b c.", "a b c.[1]", "[1] a b c. ", "[1]", " [edit] a b c.\u3000[1]\n[2]"])
    def check(texts: list[str]) -> None:
        assert_trims_alike(C4QualityFilter(**parameters), texts)

    check()


def test_the_kernel_agrees_on_long_and_on_real_texts() -> None:
    texts = [*made_up_texts(7, 150), *(text for text in real_texts(60) if len(text) < 200_000)]
    for parameters in SETTINGS:
        assert_trims_alike(C4QualityFilter(**parameters), texts)


def assert_trims_alike(stage: C4QualityFilter, texts: list[str]) -> None:
    how = stage.trimming()
    assert how is not None
    found = trim(Counts(as_texts(texts)).work, np.arange(len(texts)), how)
    for row, text in enumerate(texts):
        if found.outcome[row] == UNDECIDED:
            assert not text.isascii()
            continue
        wanted = stage.trim_document(text)
        assert ("", *REASONS)[found.outcome[row]] == wanted.reason, text
        assert found.sentences[row] == wanted.sentences, text
        if wanted.text is not None:
            new = found.data[found.starts[row] : found.ends[row]].tobytes().decode("utf-8", "surrogatepass")
            assert new == wanted.text
            assert bool(found.changed[row]) is (new != text)


@pytest.mark.parametrize(
    "parameters", [{"split_paragraph": False}, {"filter_no_terminal_punct": False, "min_words_per_line": 0}]
)
def test_settings_that_the_kernel_does_not_know_give_the_same_batches(parameters: dict[str, Any]) -> None:
    stage = C4QualityFilter(**parameters)
    assert stage.trimming() is None
    kept = stage.process(batch_of([{"text": FIVE}, {"text": "x"}]))
    assert texts_left(kept) == [stage.trim_document(FIVE).text]
    assert [rule for rule, *_ in reasons(kept)] == ["too_few_sentences"]


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("One. Two! Three?", 3),
        ("One. Two", 2),
        ("no end", 1),
        ("", 1),
        ('He said "Go." She went.', 2),
        ("(It is so.) And so on.", 2),
        ("Wait... what?", 1),
        ("J. S. Bach lived in the U.S. for years.", 1),
        ("It cost 3.5 euros. Then 4. Then more.", 3),
        ("Él. Otra vez.", 2),
        ("一。 二！ 三", 3),
    ],
)
def test_sentences_end_with_a_mark_at_the_end_of_a_word(line: str, sentences: int) -> None:
    assert count_sentences(line) == sentences
    if line:
        assert len(split_sentences(line)) == sentences
        assert "".join(split_sentences(line)) == line
