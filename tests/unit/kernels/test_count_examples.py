# SPDX-License-Identifier: Apache-2.0
"""What the counts mean, by example."""

from __future__ import annotations

import pytest

from tests.unit.kernels.texts import counted


def count(name: str, text: str) -> int:
    return counted([text], name)[0][0]


@pytest.mark.parametrize(
    ("text", "words", "characters"),
    [
        ("", 0, 0),
        (" \n\t ", 0, 0),
        ("one", 1, 3),
        (" two\u3000words\x1f", 2, 8),
        ("no\u200bspace here", 2, 12),
        ("né 中文", 2, 4),
        ("\ud800 \x00", 2, 2),
    ],
)
def test_words_lie_between_white_space_of_unicode(text: str, words: int, characters: int) -> None:
    assert counted([text], "words", "word_characters") == [(words, characters)]


@pytest.mark.parametrize(
    ("text", "groups"), [("..", 0), ("...", 1), (".....", 1), ("......", 2), ("... ...", 2), ("." * 200, 66)]
)
def test_three_dots_are_counted_without_overlap(text: str, groups: int) -> None:
    assert count("dots3", text) == groups


@pytest.mark.parametrize(
    ("text", "urls", "characters"),
    [
        ("see http://a.b/c, ok", 1, 13),
        ("https://", 0, 0),
        ("HTTPS://a", 0, 0),
        ("https://é", 0, 0),
        ("http://a<b>http://c", 2, 16),
        ("http://a%2Fb http://a%2", 2, 20),
        ("http://http://a", 1, 15),
    ],
)
def test_an_address_ends_at_the_first_byte_that_cannot_be_in_it(text: str, urls: int, characters: int) -> None:
    assert counted([text], "urls", "url_characters") == [(urls, characters)]


def test_pornography_is_looked_for_in_addresses_only() -> None:
    assert count("porn_urls", "porn http://a.b http://porn.a http://b/PORN") == 1


@pytest.mark.parametrize(
    ("word", "is_symbol"),
    [
        ("...", True),
        ("[…]", True),
        ("-»", True),
        ("....", False),
        ("#", True),
        ("##", False),
        ("#a#", True),
        ("#é#", True),
        ("#a", False),
        ("#ab#", False),
        ("###a#", False),
    ],
)
def test_a_symbol_is_an_ellipsis_or_mostly_runs_of_hashes(word: str, is_symbol: bool) -> None:
    assert count("symbol_words", f"a {word} b") == is_symbol


def test_common_words_are_counted_each_time_and_stop_words_once() -> None:
    text = "the the The with that, be\0 be"
    assert counted([text], "common_words", "stop_words") == [(4, 3)]


def test_the_longest_word_is_measured_in_code_points() -> None:
    assert count("longest_word", "abcde 日本語 ééééé\u3000xx") == 5


def test_only_a_line_feed_ends_a_line_and_blank_lines_do_not_count() -> None:
    text = "a\r\n\n \u2028 \nb\x0bc\x85d\nb\x0bc\x85d"
    assert counted([text], "lines", "distinct_lines", "line_characters") == [(3, 2, 12)]


def test_lines_that_differ_in_white_space_differ() -> None:
    assert counted(["a\n a\na "], "lines", "distinct_lines") == [(3, 3)]


@pytest.mark.parametrize(
    ("line", "bullet", "unpunctuated", "ellipsis"),
    [
        ("plain", 0, 1, 0),
        ("  • item. ", 1, 0, 0),
        ("- item", 0, 1, 0),
        ("so...", 0, 0, 1),
        ("so…\r", 0, 1, 1),
        ("so (...)", 0, 1, 1),
        ("Read More", 0, 1, 1),
        ("READ more..", 0, 0, 1),
        ("read  more", 0, 1, 0),
        ("read\nmore", 0, 2, 0),
        ('he said "no"', 0, 0, 0),
        ("he said “no”", 0, 1, 0),
    ],
)
def test_how_a_line_begins_and_ends(line: str, bullet: int, unpunctuated: int, ellipsis: int) -> None:
    found = counted([line], "bullet_lines", "unpunctuated_lines", "ellipsis_lines")
    assert found == [(bullet, unpunctuated, ellipsis)]


@pytest.mark.parametrize(
    ("text", "paragraphs", "distinct"),
    [("", 1, 1), ("a\nb", 1, 1), ("a\n\na", 2, 1), ("a\n\n\na", 2, 2), ("\n\n\n\n", 3, 1), ("a\n \na", 1, 1)],
)
def test_two_line_feeds_in_a_row_end_a_paragraph(text: str, paragraphs: int, distinct: int) -> None:
    assert counted([text], "paragraphs", "distinct_paragraphs") == [(paragraphs, distinct)]


def test_a_paragraph_with_two_phrases_counts_once() -> None:
    text = "Privacy Policy and Terms of Use\n\nnothing\nhere\n\nThis site uses COO\u212aIES.\n\nterms of\nuse"
    assert counted([text], "boilerplate_paragraphs", "lorem_ipsum") == [(2, 0)]


def test_placeholder_text_is_found_anywhere_in_any_case() -> None:
    assert [count("lorem_ipsum", text) for text in ("so LOREM Ipsum, dolor", "lorem\nipsum", "lorem")] == [1, 0, 0]
