# SPDX-License-Identifier: Apache-2.0
"""Sentences without a model: a sentence ends with a word that ends with a mark such as `.`, `!`, `?` or `。`.

Closing quotation marks and brackets behind the mark do not matter. A full stop ends no sentence behind another one
(an ellipsis) or behind a single ASCII letter (initials: `J. S. Bach`, `U.S.`). There is no list of abbreviations.
"""

from __future__ import annotations

import re
import string
from itertools import pairwise

from thresher.kernels.punctuation import TERMINAL_PUNCTUATION

CLOSERS = "\"')]}”’»"
"""What may stand behind the mark that ends a sentence."""
_WORD = re.compile(r"\S+")


def ends_sentence(word: str) -> bool:
    """Whether a sentence ends with this word."""
    word = word.rstrip(CLOSERS)
    if word[-1:] not in TERMINAL_PUNCTUATION:
        return False
    if not word.endswith(".") or len(word) == 1:
        return True
    before = word[-2]
    if before == ".":
        return False
    if before not in string.ascii_letters:
        return True
    return len(word) > 2 and (word[-3] in string.ascii_letters or not word[-3].isascii())


def count_sentences(line: str) -> int:
    """How many sentences a line has: one, and one more for each that ends before its last word."""
    return 1 + sum(map(ends_sentence, line.split()[:-1]))


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, with the white space between them."""
    cuts = [0, *(word.end() for word in _WORD.finditer(text) if ends_sentence(word.group())), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if end > start]
