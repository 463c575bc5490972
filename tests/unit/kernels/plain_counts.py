# SPDX-License-Identifier: Apache-2.0
"""What the counts of texts are, in plain Python. Kernels must find the same."""

from __future__ import annotations

import re
import string
from collections.abc import Callable

import regex

from thresher.kernels.bytes.punctuation import PUNCTUATION
from thresher.kernels.edits.policy_phrases import PLACEHOLDER, POLICY_PHRASES

COMMON = set(string.ascii_letters + string.digits + "\n?!,.")
URL = re.compile(r"https?://(?:[A-Za-z0-9$\-_@.&+/:=?#~!*(),]|%[0-9A-Fa-f]{2})+")
ALPHA = regex.compile("[[:alpha:]]")
BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")
END_MARKS = (".", "?", "!", '"', "'")
ELLIPSIS_MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")
COMMON_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}


def characters(text: str) -> dict[str, int]:
    return {
        "bytes": len(text.encode("utf-8", "surrogatepass")),
        "code_points": len(text),
        "white_space": sum(c in "\t\n\r\b " for c in text),
        "common": sum(c in COMMON for c in text),
        "digits": sum(c in string.digits for c in text),
        "parentheses": sum(c in "{}[]()⟨⟩" for c in text),
        "hashes": text.count("#"),
        "dots3": text.count("..."),
        "ellipses": text.count("…"),
        "curly": text.count("{"),
        "line_feeds": text.count("\n"),
    }


def letters(text: str) -> dict[str, int]:
    return {
        "alphabetic": sum(map(str.isalpha, text)),
        "alphanumeric": sum(map(str.isalnum, text)),
        "alpha_characters": len(ALPHA.findall(text)),
    }


def urls(text: str) -> dict[str, int]:
    found = URL.findall(text)
    return {
        "url_characters": sum(map(len, found)),
        "urls": len(found),
        "porn_urls": sum("porn" in url for url in found),
    }


def positions(text: str) -> dict[str, int]:
    return {"words": len(text.split()), "word_characters": sum(map(len, text.split()))}


def words(text: str) -> dict[str, int]:
    found = text.split()
    return {
        "symbol_words": sum(w in ELLIPSIS_MARKS or len(re.findall("#+", w)) / len(w) > 0.5 for w in found),
        "longest_word": max(map(len, found), default=0),
        "common_words": sum(w in COMMON_WORDS for w in found),
        "stop_words": len(COMMON_WORDS.intersection(found)),
    }


def word_letters(text: str) -> dict[str, int]:
    found = text.split()
    wordy = [w for w in found if any(c not in PUNCTUATION for c in w)]
    return {
        "alpha_words": sum(bool(ALPHA.search(w)) for w in found),
        "isalpha_words": sum(any(map(str.isalpha, w)) for w in found),
        "non_symbol_words": len(wordy),
        "non_symbol_characters": sum(map(len, wordy)),
    }


def lines(text: str) -> dict[str, int]:
    found = [line for line in text.split("\n") if line.strip()]
    return {
        "lines": len(found),
        "distinct_lines": len(set(found)),
        "line_characters": sum(map(len, found)),
        "distinct_line_characters": sum(map(len, set(found))),
        "bullet_lines": sum(line.strip().startswith(BULLETS) for line in found),
        "unpunctuated_lines": sum(not line.strip().endswith(END_MARKS) for line in found),
        "ellipsis_lines": sum(line.strip().lower().endswith(ELLIPSIS_MARKS) for line in found),
    }


def paragraphs(text: str) -> dict[str, int]:
    found = text.split("\n\n")
    return {
        "paragraphs": len(found),
        "distinct_paragraphs": len(set(found)),
        "paragraph_characters": sum(map(len, found)),
        "distinct_paragraph_characters": sum(map(len, set(found))),
    }


def phrases(text: str) -> dict[str, int]:
    found = [paragraph.strip().lower() for paragraph in text.split("\n\n")]
    return {
        "boilerplate_paragraphs": sum(any(phrase in p for phrase in POLICY_PHRASES) for p in found),
        "lorem_ipsum": int(any(PLACEHOLDER in p for p in found)),
    }


GROUPS: dict[str, Callable[[str], dict[str, int]]] = {
    function.__name__: function
    for function in (characters, letters, urls, positions, words, word_letters, lines, paragraphs, phrases)
}
"""The counts of a text by group."""
