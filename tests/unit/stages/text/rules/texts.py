# SPDX-License-Identifier: Apache-2.0
"""Texts that rules are tried on: made ones that are full of traps, and real ones."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import strategies as st

WHITE_SPACE = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
"""Code points at which `str.split` splits."""
NO_WHITE_SPACE = "\u200b\u180e\ufeff\x08\x00"
"""Code points that look like white space and are none."""

PIECES = [
    *WHITE_SPACE,
    *NO_WHITE_SPACE,
    *["\n", "\n\n", "\r\n", " ", "  "],
    *["word", "é", "中文", "🙂", "?", "!", ",", ".", ";", "-", "0", "Aa9"],
    *[
        "http://",
        "https://",
        "HTTP://",
        "http",
        "://",
        "example.org/a?b=c",
        "%41",
        "#x",
        "~",
        "ä",
        '"',
        "$-_@.&+!*(),",
        "[x]",
    ],
]

texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
"""Any text, and texts that are made of what is easily counted wrongly."""

DATA = Path(os.environ.get("THRESHER_TEXT_DATA", Path(__file__).parents[6] / "shared" / "data" / "text"))
FILES = (
    "books.jsonl.zst",
    "code.jsonl.zst",
    "dictionary.jsonl.zst",
    "fortunes.jsonl.zst",
    "handbook.jsonl.gz",
    "manpages.jsonl.zst",
    "mixed-sample.parquet",
    "noise.jsonl.zst",
    "wiki.jsonl.zst",
)
SHARDS = ("books", "manpages", "fortunes", "noise", "wiki", "dictionary", "code")


def real_texts(per_shard: int = 150) -> Iterator[str]:
    """The first documents of every shard of the text collection; the test is skipped where it is not at hand."""
    for shard in SHARDS:
        yield from itertools.islice(all_texts(f"{shard}.jsonl.zst"), per_shard)


def all_texts(file: str) -> Iterator[str]:
    """All documents of a file of the text collection."""
    if not DATA.is_dir():
        pytest.skip(f"the text collection is not at {DATA}; set THRESHER_TEXT_DATA to its folder")
    path = DATA / file
    if path.suffix == ".parquet":
        yield from pq.read_table(path, columns=["text"])["text"].to_pylist()
        return
    open_text = zstandard.open if path.suffix == ".zst" else gzip.open
    with open_text(path, "rt", encoding="utf-8") as lines:
        yield from (json.loads(line)["text"] for line in lines)
