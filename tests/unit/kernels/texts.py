# SPDX-License-Identifier: Apache-2.0
"""Texts for kernels: hard ones made up, real ones from the shared data, and both as kernels take them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import zstandard
from hypothesis import strategies as st

from thresher.kernels.counts import COUNTS
from thresher.kernels.counts.text_counts import PADDING, Counts, Texts

DATA = Path(__file__).parents[4] / "shared" / "data"

WHITE_SPACE = [chr(point) for point in range(0x3001) if chr(point).isspace()]
NEARLY_WHITE = ["\b", "\u200b", "\u180e", "\ufeff", "\u2060", "\x7f", "\x86", "\u00a1", "\u2007\u2030", "\u3001"]
LINE_ENDS = ["\n", "\n\n", "\n\n\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029"]
WORDS = [
    "the",
    "the\0",
    "The",
    "be",
    "to",
    "of",
    "and",
    "that",
    "have",
    "with",
    "withal",
    "a",
    "I",
    "x" * 70,
    "é",
    "café",
    "naïve",
    "中文",
    "日本語",
    "ไทย",
    "עברית",
    "नमस्ते",
    "e\u0301",
    "\u0301",
    "ß",
    "ﬁ",
    "Ⅷ",
    "²",
    "½",
    "①",
    "٣",
    "𝔘𝔫𝔦",
    "😀",
    "👩‍👩‍👧",
    "\ud800",
    "\udfff",
    "\U0010ffff",
    "\0",
    "\0\0",
    "_",
    "-",
    "1",
    "22",
    "1a",
]
SYMBOLS = [
    "#",
    "##",
    "#a#",
    "#é#",
    "#é#é#",
    "a#",
    "#a",
    "###",
    "...",
    "..",
    ".",
    "....",
    "......",
    "[...]",
    "…",
    "(...)",
    "[…]",
    "-»",
    "»",
    "-",
    "(…)",
    "[..]",
    "…é",
    "é…",
    "•",
    "‣",
    "⁃",
    "⁌",
    "⁍",
    "∙",
    "○",
    "●",
    "◘",
    "◦",
    "⦾",
    "⦿",
    "◙",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "⟨",
    "⟩",
    "⟪",
    ".",
    "?",
    "!",
    '"',
    "'",
    "’",
    ",",
    ";",
    "。",
    "？",
    "\u2026.",
    "&",
    "&amp;",
]
PHRASES = [
    "read more",
    "Read More",
    "READ MORE..",
    "bread more",
    "read  more",
    "read\tmore",
    "read more...",
    "ead more",
    "more",
    "terms of use",
    "Terms Of Use",
    "privacy policy",
    "Privacy Policy",
    "cookie policy",
    "uses cookies",
    "use cookies",
    "use of cookies",
    "privacy overview",
    "privacy & cookies policy",
    "privacy and cookies policy",
    "COO\u212aIE policy",
    "uses coo\u212aies",
    "cookİe policy",
    "lorem ipsum",
    "Lorem Ipsum",
    "LOREM IPSUM",
    "lorem\nipsum",
    "cookies",
    "policy",
    "cookie",
    "privacy",
    "terms of us",
    "erms of use",
    "coo\u212ai",
    "\u212ai",
    "o\u212aie policy",
    "lorem ip",
    "looking",
]
URLS = [
    "http://",
    "https://",
    "http://a",
    "https://a.b/c?d=e#f",
    "HTTP://a",
    "httpss://a",
    "shttp://a",
    "https://é",
    "http:/",
    "http://a%2Fb",
    "http://a%2",
    "http://a%zz",
    "https://porn.example/x",
    "http://a/porn",
    "http://PORN",
    "porn",
    "://",
    "http://http://a",
    "http://a<http://b",
    "https://a>",
    "http://%",
    "http://%41",
    "http://a~b",
    "http://a;b",
    "xhttp://y",
    "http:",
    ":",
    "::://",
    "https",
    "http",
]
PIECES = [*WHITE_SPACE, *NEARLY_WHITE, *LINE_ENDS, *WORDS, *SYMBOLS, *PHRASES, *URLS, " ", " ", "\n", "\n\n"]

hard_texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join),
    st.lists(st.sampled_from([*SYMBOLS, *PHRASES, "\n", "\n\n", "  ", ""]), max_size=40).map("\n".join),
    st.lists(st.sampled_from(["a", "é", "…", "\u3000", "\u2003", "\xa0", " ", "\n", "😀"]), max_size=200).map("".join),
    st.text(st.characters(exclude_categories=())),
)
"""Texts with every known trap: all white space and what looks like it, all line ends, NUL, surrogates, marks."""


def as_texts(texts: Sequence[str]) -> Texts:
    """Texts in one buffer, one right behind the other, so that a kernel that reads too far sees the next one."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.array([len(data) for data in encoded], dtype=np.int64)
    ends = np.cumsum(lengths)
    return Texts(np.frombuffer(b"".join(encoded) + bytes(PADDING), dtype=np.uint8), ends - lengths, ends)


def counted(texts: Sequence[str], *names: str) -> list[tuple[int, ...]]:
    """The counts of some names, for each text."""
    counts = Counts(as_texts(texts))
    wanted = [(name, 0) for name in names]
    counts.fill(wanted, np.arange(len(texts)))
    return list(zip(*(counts[count].tolist() for count in wanted), strict=True))


def group_counts(text: str, group: str) -> dict[str, int]:
    """All counts of a group for one text; others stand around it."""
    names = COUNTS[group]
    return dict(zip(names, counted(["a b\n\nlorem ", text, "\u3000#… porn\n"], *names)[1], strict=True))


def made_up_texts(seed: int, number: int) -> list[str]:
    """Texts of many pieces, longer than those that Hypothesis makes."""
    random = Random(seed)
    made = []
    for _ in range(number):
        few = random.sample(PIECES, random.randint(2, 60))
        made.append(random.choice(["", " ", "\n"]).join(random.choices(few, k=random.randint(0, 400))))
    return made


def real_texts(most: int = 100) -> list[str]:
    """The first texts of every file of the shared data, those that are meant to be difficult too."""
    if not DATA.is_dir():
        pytest.skip("the shared data is not here")
    texts = []
    for path in [*sorted((DATA / "text").glob("*.jsonl.*")), DATA / "hostile" / "weird_text.jsonl.zst"]:
        for _, line in zip(range(most), _lines(path), strict=False):
            texts.append(json.loads(line)["text"])
    return texts


def _lines(path: Path) -> Iterator[bytes]:
    if path.suffix == ".gz":
        with gzip.open(path) as file:
            yield from file
    else:
        with zstandard.open(path, "rb") as file:
            rest = b""
            while chunk := file.read(2**20):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
            if rest:
                yield rest
