# SPDX-License-Identifier: Apache-2.0
"""What each modifier does, by example."""

from __future__ import annotations

import re
import sys
from typing import Any

import ftfy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import MissingPackageError, UsageError
from thresher.stages.text.modifiers.boilerplate_string import BoilerPlateStringModifier
from thresher.stages.text.modifiers.fasttext_label import FastTextLabelModifier
from thresher.stages.text.modifiers.line_remover import LineRemover
from thresher.stages.text.modifiers.markdown_remover import MarkdownRemover, QuotationRemover
from thresher.stages.text.modifiers.slicer import Slicer
from thresher.stages.text.modifiers.unicode_reformatter import UnicodeNormalizer, UnicodeReformatter
from thresher.stages.text.modifiers.url_remover import UrlRemover


def test_addresses_are_taken_out_up_to_the_next_white_space() -> None:
    remove = UrlRemover().modify_document
    assert remove("see http://a.org/b?c=d, HTTPS://x and WWW.y.com!\nend") == "see   and \nend"
    assert remove("no http and no www here") == "no http and no www here"


@given(st.text(alphabet="hHtTpPsSſwW:/.a \n\u2003", max_size=30))
def test_it_does_what_the_usual_pattern_does(text: str) -> None:
    text = text.replace("a", "http").replace("/", "://").replace("t", "www")
    expected = re.sub(r"https?://\S+|www\.\S+", "", text, flags=re.IGNORECASE)
    assert UrlRemover().modify_document(text) == expected


class TestMarkdown:
    remove = staticmethod(MarkdownRemover().modify_document)

    def test_pairs_of_marks_go(self) -> None:
        assert self.remove("**bold** *italic* _under_ plain") == "bold italic under plain"

    def test_of_a_link_the_address_stays(self) -> None:
        assert self.remove("a [word](http://x.org) b [c](d)") == "a http://x.org b d"

    def test_a_mark_without_its_other_half_stays(self) -> None:
        assert self.remove("2 * 3\nsnake_case\n[x] (y)\n[a](b") == "2 * 3\nsnake_case\n[x] (y)\n[a](b"

    def test_lines_are_looked_at_one_by_one(self) -> None:
        assert self.remove("*a\nb*") == "*a\nb*"

    @given(st.text(alphabet="ab*_[]() \n", max_size=40))
    def test_it_does_what_the_usual_patterns_do(self, text: str) -> None:
        expected = []
        for line in text.split("\n"):
            for pattern in (r"\*\*(.*?)\*\*", r"\*(.*?)\*", r"_(.*?)_", r"\[.*?\]\((.*?)\)"):
                line = re.sub(pattern, r"\1", line)
            expected.append(line)
        assert self.remove(text) == "\n".join(expected)


class TestQuotation:
    remove = staticmethod(QuotationRemover().modify_document)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('"quoted"', "quoted"),
            ('"a\nb"', "a\nb"),
            ('"a"\nb"', '"a"\nb"'),
            ('"', '"'),
            ('""', '""'),
            ('" "', " "),
            ('"open', '"open'),
            (' "a" ', ' "a" '),
        ],
    )
    def test_marks_around_a_whole_text_go(self, text: str, expected: str) -> None:
        assert self.remove(text) == expected


def test_lines_equal_to_a_pattern_are_taken_out() -> None:
    remove = LineRemover(["Read more", ""]).modify_document
    assert remove("a\nRead more\n\nRead more about it\nb") == "a\nRead more about it\nb"
    assert remove("Read more") == ""


class TestBoilerplate:
    remove = staticmethod(BoilerPlateStringModifier().modify_document)

    def test_a_block_at_the_top_or_at_the_bottom_goes(self) -> None:
        assert self.remove("We use cookies.\n\nText.\n\nMore.") == "Text.\n\nMore."
        assert self.remove("Text.\n\nSee our Privacy Policy\n\nTerms of Use") == "Text."

    def test_anywhere_else_it_stays(self) -> None:
        for text in ("A\n\nterms of use\n\nB", "terms of use\n\nA\n\nterms of use", "terms of use", "A\n\nB"):
            assert self.remove(text) == text

    def test_placeholder_text_empties_the_document(self) -> None:
        assert self.remove("A\n\nLorem ipsum dolor") == ""

    def test_without_the_option_any_such_paragraph_empties_it(self) -> None:
        assert (
            BoilerPlateStringModifier(remove_if_at_top_or_bottom=False).modify_document("A\n\nuse cookies\n\nB") == ""
        )

    def test_a_kelvin_sign_is_a_k(self) -> None:
        assert self.remove("Our cookie policy\n\nText".replace("k", "\u212a")) == "Text"


class TestSlicer:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({}, "one two three"),
            ({"strip": False}, " one two three "),
            ({"left": 5, "right": -7}, "two"),
            ({"left": "two"}, "two three"),
            ({"left": "two", "include_left": False}, "three"),
            ({"right": "e"}, "one two three"),
            ({"right": "t", "include_right": False}, "one two"),
            ({"left": "four"}, ""),
            ({"right": "four"}, ""),
            ({"left": None, "right": None}, "one two three"),
        ],
    )
    def test_it_keeps_a_stretch(self, arguments: dict[str, Any], expected: str) -> None:
        assert Slicer(**arguments).modify_document(" one two three ") == expected


def test_a_training_line_is_one_line_with_one_label() -> None:
    assert FastTextLabelModifier("__label__hq").modify_document("a\nb __label__lq c") == "__label__hq a b  lq c"


def test_normal_forms() -> None:
    assert UnicodeNormalizer().modify_document("e\u0301") == "é"
    assert UnicodeNormalizer("NFD").modify_document("é") == "e\u0301"
    assert UnicodeNormalizer("NFKC").modify_document("ﬁ²") == "fi2"


class TestUnicodeReformatter:
    def test_it_repairs_and_changes_nothing_legal(self) -> None:
        repair = UnicodeReformatter().modify_document
        assert repair("schÃ¶n &amp; gut\x00 \x1b[31mred") == "schön & gut red"
        assert repair("“ﬁne” Ａ\r\n") == "“ﬁne” Ａ\r\n"

    def test_options_are_those_of_ftfy(self) -> None:
        repair = UnicodeReformatter(uncurl_quotes=True, fix_latin_ligatures=True, fix_line_breaks=True)
        assert repair.modify_document("“ﬁne”\r\n") == '"fine"\n'
        assert UnicodeReformatter(config={"uncurl_quotes": False}).modify_document("“a” Ａ") == "“a” A"

    @given(
        st.lists(
            st.sampled_from(
                ["plain", "<b>", "&amp;", "schÃ¶n", "é", "\r", "\x00", "\x1b[1m", "ﬁ", "\u2028", "\ud83d", "\n", " "]
            )
        ),
        st.sampled_from(["auto", True, False]),
        st.booleans(),
    )
    def test_lines_that_are_left_out_make_no_difference(self, parts: list[str], html: Any, more: bool) -> None:
        text = "".join(parts)
        modifier = UnicodeReformatter(
            unescape_html=html, fix_line_breaks=more, fix_latin_ligatures=more, max_decode_length=7
        )
        config = ftfy.TextFixerConfig(**modifier.options, explain=False)
        assert modifier.modify_document(text) == ftfy.fix_text(text, config)

    def test_a_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "ftfy", None)
        with pytest.raises(MissingPackageError, match=r"pip install 'thresher\[ftfy\]'"):
            UnicodeReformatter().load_model()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UnicodeNormalizer("NFX"), "not a normal form; there is NFC"),  # type: ignore[arg-type]
        (lambda: UnicodeReformatter(normalization="x"), "not a normal form"),  # type: ignore[arg-type]
        (lambda: UnicodeReformatter(unescape_html="yes"), "not 'auto', True or False"),  # type: ignore[arg-type]
        (lambda: UnicodeReformatter(config=3), "neither a TextFixerConfig nor a dict"),
        (lambda: UnicodeReformatter(config={"colour": 1}).load_model(), "this ftfy knows unescape_html"),
        (lambda: LineRemover("abc"), "is not a list of lines"),  # type: ignore[arg-type]
        (lambda: LineRemover(["a\nb"]), "contains a line feed"),
        (lambda: Slicer(left=1.5), "Slicer.left: 1.5"),  # type: ignore[arg-type]
        (lambda: FastTextLabelModifier("two words"), "is not a label"),
    ],
)
def test_a_wrong_parameter_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
