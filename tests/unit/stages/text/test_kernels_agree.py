# SPDX-License-Identifier: Apache-2.0
"""Every rule that kernels work out gives the scores and decisions of its plain definition, whatever the text."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.stages.text.rules.all_rules import COUNTED
from tests.unit.stages.text.rules.texts import DATA, FILES, all_texts, real_texts, texts
from thresher.kernels.counts.text_counts import PADDING, Counts, Texts
from thresher.stages.text.judging.rule import CountRule

HOSTILE = Path(os.environ.get("THRESHER_HOSTILE_DATA", DATA.parent / "hostile"))
CLOSE = 1e-9


def counts_of(documents: Sequence[str]) -> Counts:
    """The documents in one buffer, with something in front of them and between them."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in documents]
    starts, place = [], 3
    for data in encoded:
        starts.append(place)
        place += len(data) + 1
    buffer = np.full(place + PADDING, ord("#"), dtype=np.uint8)
    for start, data in zip(starts, encoded, strict=True):
        buffer[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    ends = [start + len(data) for start, data in zip(starts, encoded, strict=True)]
    return Counts(Texts(buffer, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)))


def assert_agrees(rule: CountRule, counts: Counts, documents: Sequence[str]) -> None:
    """Score and decision of every document."""
    wanted = rule.counts()
    assert wanted is not None
    rows = np.arange(len(documents), dtype=np.int64)
    counts.fill(wanted, rows)
    found = rule.score_counts({count: counts[count][rows] for count in wanted})
    low, high = rule.allowed()
    for text, score in zip(documents, found.tolist(), strict=True):
        plain = rule.score_document(text)
        shown = f"{rule.name} {vars(rule)} on {text[:200]!r}"
        assert type(score) is type(plain), shown
        assert abs(score - plain) <= CLOSE, shown
        assert (low <= score <= high) is rule.keep_document(plain), shown


PIECES = [
    *["the", "of", "and", "a", "b", "word", "Word", "#", "##", "#a#", "...", "…", "[...]", "(...)", "[…]", "-»"],
    *[
        "read more",
        "READ MORE..",
        "privacy policy",
        "Use of Cookies",
        "cookie policy".replace("k", "\u212a"),
        "lorem ipsum",
        "LOREM\u0130psum",
    ],
    *[
        "•",
        "‣ ",
        "⦿",
        "⟨",
        "⟩",
        "{",
        ")",
        "1",
        "²",
        "١",
        "é",
        "ß",
        "中",
        "ा",
        "\U0001f642",
        "\U00010400",
        "\u0301",
        "\ufffd",
    ],
    *[
        "\n",
        "\n",
        "\n\n",
        "\n\n\n",
        "\r\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x1f",
        "\x85",
        "\xa0",
        "\u1680",
        "\u2003",
        "\u2028",
    ],
    *[" ", " ", " ", "  ", "\t", "\b", "\0", "\u200b", "\u180e", "\ufeff", "\u3000", "\ud800", "\udfff"],
    *[
        "http://",
        "https://",
        "://",
        "http",
        "porn",
        "a.b/c?d=e",
        "%41",
        "%4",
        "%",
        ";",
        "'",
        '"',
        ".",
        "?",
        "!",
        ",",
        "~",
    ],
]
made = st.one_of(
    texts,
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.lists(st.sampled_from(["a", "b", "ab", "the", "-", "é"]), max_size=80).map(" ".join),
    st.lists(st.sampled_from(["x y", "x  y", "•x.", " x", "", "\r", "longer line of text"]), max_size=30).map(
        "\n".join
    ),
    st.lists(st.sampled_from(PIECES), max_size=12).map(lambda parts: "".join(parts) * 25),
)


@pytest.mark.parametrize("name", COUNTED)
def test_on_made_texts(name: str) -> None:
    rule = COUNTED[name]

    @settings(max_examples=120, deadline=None)
    @given(st.lists(made, min_size=1, max_size=4))
    @example([""])
    @example([" ", "\n", "a", "\0", "the\0 the"])
    @example(["a b" * 30, "a" * 64, "a" * 63 + " ", "é" * 40, "\n" * 65])
    @example(["http://a" + "b" * 70 + "porn", "x" * 60 + "https://c"])
    def check(documents: list[str]) -> None:
        assert_agrees(rule, counts_of(documents), documents)

    check()


def test_on_every_code_point() -> None:
    points = [chr(point) for point in range(0x110000)]
    documents = ["".join(points[first : first + 256]) for first in range(0, len(points), 256)]
    documents += [" ".join(points[first : first + 64]) for first in range(0, 0x3100, 64)]
    counts = counts_of(documents)
    for name, rule in COUNTED.items():
        if "NGrams" not in name or name.endswith("-2"):
            assert_agrees(rule, counts, documents)


def test_on_real_texts() -> None:
    documents = [text for text in real_texts(25) if len(text) < 60_000]
    assert len(documents) > 100
    counts = counts_of(documents)
    for rule in COUNTED.values():
        assert_agrees(rule, counts, documents)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("file", FILES)
def test_on_all_real_texts(file: str) -> None:
    documents = all_texts(file)
    while some := list(itertools.islice(documents, 400)):
        counts = counts_of(some)
        for rule in COUNTED.values():
            assert_agrees(rule, counts, some)


def test_on_weird_texts() -> None:
    path = HOSTILE / "weird_text.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"the hostile collection is not at {HOSTILE}; set THRESHER_HOSTILE_DATA to its folder")
    lines = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().splitlines()
    documents = [json.loads(line)["text"] for line in lines if line.strip()]
    counts = counts_of(documents)
    for rule in COUNTED.values():
        assert_agrees(rule, counts, documents)


@pytest.mark.slow
def test_on_a_very_long_text() -> None:
    documents = ["the quick brown fox, jumps over • it…\n" * 260_000, "x" * 10_000_000, "é " * 3_000_000]
    counts = counts_of(documents)
    for name in ("WordCountFilter", "RepeatedLinesFilter", "AlphaFilter", "UrlsFilter", "BoilerPlateStringFilter"):
        assert_agrees(COUNTED[name], counts, documents)
    for name in ("RepeatingTopNGramsFilter-2", "RepeatingDuplicateNGramsFilter-5"):
        assert_agrees(COUNTED[name], counts, documents)


def test_counts_may_be_asked_for_some_documents_first() -> None:
    documents = ["the cat\nand the dog", "", "a b a b a b", "x"]
    counts = counts_of(documents)
    for rule in COUNTED.values():
        wanted = rule.counts()
        assert wanted is not None
        counts.fill(wanted, np.array([2, 0], dtype=np.int64))
        assert_agrees(rule, counts, documents)
