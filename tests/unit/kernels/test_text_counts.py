# SPDX-License-Identifier: Apache-2.0
"""Every count that a kernel yields is the one that plain Python finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.kernels.plain_counts import GROUPS
from tests.unit.kernels.texts import as_texts, counted, group_counts, hard_texts, made_up_texts, real_texts
from thresher.kernels.counts import COUNTS
from thresher.kernels.counts.text_counts import Counts

EVERY_GROUP = pytest.mark.parametrize("group", GROUPS)
SPACING = [0, 1, 2, 3, 58, 59, 60, 61, 62, 63, 64, 65, 127, 128]


def check_counts(group: str, texts: list[str]) -> None:
    """The counts of a group for texts that lie one behind the other are those of plain Python."""
    names = COUNTS[group]
    for text, found in zip(texts, counted(texts, *names), strict=True):
        assert dict(zip(names, found, strict=True)) == GROUPS[group](text), repr(text[:200])


def test_plain_python_knows_every_count() -> None:
    assert {group: set(GROUPS[group]("")) for group in GROUPS} == {group: set(COUNTS[group]) for group in GROUPS}


@EVERY_GROUP
def test_texts_without_words(group: str) -> None:
    check_counts(group, ["", " ", "\n", "\n\n", "\n\n\n", "\u3000", "\x85\xa0", "\0", "\ud800", "a", "é", "中", "😀"])


@EVERY_GROUP
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts=st.lists(hard_texts, min_size=1, max_size=4))
def test_made_up_texts(group: str, texts: list[str]) -> None:
    check_counts(group, texts)


@EVERY_GROUP
def test_long_made_up_texts(group: str) -> None:
    check_counts(group, made_up_texts(seed=5, number=300))


@EVERY_GROUP
def test_what_lies_across_the_edge_of_a_block_is_found(group: str) -> None:
    pieces = [
        "\u3000",
        "\xa0x",
        "…",
        "⟨a",
        "....",
        "https://porn.a",
        "the\0",
        "#a#",
        "COO\u212aIE policy",
        "lorem ipsum",
    ]
    pieces += ["read more..", "\n\n\n", "terms of use", "😀", "é\n•", "\u2003\u2003", "[…]", "[...]", "-»"]
    check_counts(
        group, ["." * n + piece + tail for n in SPACING for piece in pieces for tail in ("", "x", " \n", "é" * 70)]
    )
    check_counts(group, ["é " * n + piece for n in SPACING for piece in pieces])


@EVERY_GROUP
def test_real_texts(group: str) -> None:
    check_counts(group, real_texts())


@EVERY_GROUP
def test_a_text_of_ten_megabytes(group: str) -> None:
    text = "".join(made_up_texts(seed=8, number=40)) + "x" * 100_000 + "#" * 100_000
    check_counts(group, [text * (10_000_000 // len(text)), "a", "\n" * 1_000_000, " " * 1_000_000])


@EVERY_GROUP
def test_any_bytes_are_counted_without_reading_elsewhere(group: str) -> None:
    """Readers hand over valid text; a kernel that gets anything else still ends, and gives numbers."""
    random = np.random.default_rng(3)
    for size in (1, 2, 3, 63, 64, 65, 1000):
        data = random.integers(0, 256, size=40 * size + 64, dtype=np.uint8)
        texts = as_texts([""])._replace(data=data, starts=np.arange(40) * size, ends=np.arange(1, 41) * size)
        counts = Counts(texts)
        counts.fill([(name, 0) for name in COUNTS[group]], np.arange(40))
        for name in COUNTS[group]:
            assert (counts[name, 0] >= 0).all()
            assert (counts[name, 0] <= size + 1).all()


@EVERY_GROUP
@settings(deadline=None)
@given(order=st.permutations(range(12)), cut=st.integers(1, 11))
def test_texts_may_be_asked_for_in_any_order_and_at_different_times(group: str, order: list[int], cut: int) -> None:
    texts = made_up_texts(seed=2, number=12)
    counts = Counts(as_texts(texts))
    wanted = [(name, 0) for name in COUNTS[group]]
    for rows in (order[:cut], order[cut // 2 :]):
        counts.fill(wanted, np.array(rows))
    for row, text in enumerate(texts):
        expected = GROUPS[group](text)
        if row in order:
            assert {name: int(counts[name, 0][row]) for name in COUNTS[group]} == expected


@EVERY_GROUP
def test_asking_for_no_texts_leaves_all_to_be_counted_later(group: str) -> None:
    counts = Counts(as_texts(["a b"]))
    wanted = [(name, 0) for name in COUNTS[group]]
    counts.fill(wanted, np.arange(0))
    counts.fill(wanted, np.arange(1))
    assert {name: int(counts[name, 0][0]) for name in COUNTS[group]} == GROUPS[group]("a b")


def test_the_buffer_may_be_read_only() -> None:
    assert not as_texts(["a"]).data.flags.writeable
    assert group_counts("a b c", "positions") == {"words": 3, "word_characters": 3}
