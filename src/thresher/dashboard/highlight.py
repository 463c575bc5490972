# SPDX-License-Identifier: Apache-2.0
"""Find the parts of a text that a rule counts, for those rules where they can be pointed at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from thresher.stages.text.rules.lines.line_marks import ELLIPSIS_MARKS
from thresher.stages.text.rules.web.urls import URL
from thresher.stages.text.rules.words.word_counts import COMMON_WORDS

Span = tuple[int, int]
MOST_SPANS = 400
"""Parts of a text that are marked."""
_WORD = re.compile(r"\S+")
_LINE = re.compile(r"[^\n]+")
_BULLET = re.compile(r"^[ \t]*[•‣▶◀◦▪▫■□–*\-][^\n]*", re.MULTILINE)
_ODD = re.compile(r"[^\w\s]+|_+")
_BLANK = re.compile(r"\s{2,}")
_SYMBOL = re.compile(r"#|\.\.\.|…")
_BOILERPLATE = ("terms of use", "privacy policy", "cookie policy", "use of cookies", "use cookies", "lorem ipsum")
_END_MARKS = (".", "!", "?", '"', "”", "'", ")")


def parts_of(text: str, rule: str) -> list[tuple[str, bool]]:
    """Return a text in parts, each with True if the rule counts it."""
    find = _FINDERS.get(rule)
    parts: list[tuple[str, bool]] = []
    done = 0
    for start, end in _merged(find(text))[:MOST_SPANS] if find is not None else ():
        if start > done:
            parts.append((text[done:start], False))
        parts.append((text[start:end], True))
        done = end
    return [*parts, (text[done:], False)] if done < len(text) or not parts else parts


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; those that overlap become one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _matches(pattern: re.Pattern[str]) -> Callable[[str], list[Span]]:
    return lambda text: [match.span() for match in pattern.finditer(text)]


def _lines_that(test: Callable[[str], bool]) -> Callable[[str], list[Span]]:
    return lambda text: [match.span() for match in _LINE.finditer(text) if test(match[0].strip())]


def _repeated_lines(text: str) -> list[Span]:
    seen: set[str] = set()
    found = []
    for match in _LINE.finditer(text):
        line = match[0].strip()
        if line and line in seen:
            found.append(match.span())
        seen.add(line)
    return found


def _repeated_ngrams(text: str, n: int = 5) -> list[Span]:
    """Return the words of n-grams that occur more than once."""
    words = [(match[0], *match.span()) for match in _WORD.finditer(text)]
    grams = [tuple(word for word, _, _ in words[place : place + n]) for place in range(len(words) - n + 1)]
    often = {gram for gram, count in Counter(grams).items() if count > 1}
    return [(words[place][1], words[place + n - 1][2]) for place, gram in enumerate(grams) if gram in often]


def _top_bigram(text: str) -> list[Span]:
    words = [(match[0], *match.span()) for match in _WORD.finditer(text)]
    pairs = [(words[place][0], words[place + 1][0]) for place in range(len(words) - 1)]
    if not pairs:
        return []
    top, count = Counter(pairs).most_common(1)[0]
    return [(words[p][1], words[p + 1][2]) for p, pair in enumerate(pairs) if pair == top] if count > 1 else []


def _words_that(test: Callable[[str], bool]) -> Callable[[str], list[Span]]:
    return lambda text: [match.span() for match in _WORD.finditer(text) if test(match[0])]


_FINDERS: dict[str, Callable[[str], list[Span]]] = {
    "UrlsFilter": _matches(URL),
    "BulletsFilter": _matches(_BULLET),
    "NonAlphaNumericFilter": _matches(_ODD),
    "WhiteSpaceFilter": _matches(_BLANK),
    "SymbolsToWordsFilter": _matches(_SYMBOL),
    "BoilerPlateStringFilter": _lines_that(lambda line: any(phrase in line.lower() for phrase in _BOILERPLATE)),
    "EllipsisFilter": _lines_that(lambda line: line.endswith(tuple(ELLIPSIS_MARKS))),
    "PunctuationFilter": _lines_that(lambda line: bool(line) and not line.endswith(_END_MARKS)),
    "RepeatedLinesFilter": _repeated_lines,
    "RepeatedLinesByCharFilter": _repeated_lines,
    "RepeatingTopNGramsFilter": _top_bigram,
    "RepeatingDuplicateNGramsFilter": _repeated_ngrams,
    "CommonEnglishWordsFilter": _words_that(lambda word: word.lower() in COMMON_WORDS),
    "LongWordFilter": _words_that(lambda word: len(word) > 40),
    "MeanWordLengthFilter": _words_that(lambda word: len(word) > 20),
}
