# SPDX-License-Identifier: Apache-2.0
"""Kernels that change texts as bytes change them as the definitions in Python do, letter for letter."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.text.modifiers.any_text import as_bytes, check_edits
from thresher.stages.text.document_modifier import DocumentModifier, has_edits
from thresher.stages.text.modifiers.line_remover import NewlineNormalizer
from thresher.stages.text.modifiers.pii_redactor import PiiRedactor
from thresher.stages.text.modifiers.url_remover import UrlRemover

MAILS, IPS = PiiRedactor(kinds=["email"]), PiiRedactor(kinds=["ip"])
PIECES: dict[DocumentModifier, list[str]] = {
    NewlineNormalizer(): ["\n", "\n\n", "\r\n", "\r", "a", "é", "\ud800", " "],
    UrlRemover(): [
        *["http://", "https://", "HTTP://", "httpſ://", "http:/", "www.", "WwW.", "ww", "w", "x", ":", "/", ".", "h"],
        *["é", "中", "\ud800", " ", "\n", "\t", "\x1c", "\x85", "\xa0", "\u3000", "\u2028", "\u200b"],
    ],
    MAILS: [
        *["@", "@", "a", "Z", "1", ".", "..", "-", "_", "+", "%", "'", "a@b.co", "x.y@z-1.com", ".com", ".c", ".c1"],
        *["xn--", ".xn--p1ai", "a.b.c.d.e.f.g.h.i.j.k.l.mm", "x" * 62, "x" * 63, "y" * 24, "a" * 60, " ", "\n"],
        *["é", "ÿ", "ɏ", "×", "ɐ", "中", "\ud800"],
    ],
    IPS: [
        *["8.8.8.8", "1.2.3.4", "9.9.9.9", "10.0.0.1", "172.16.0.1", "172.32.9.1", "192.0.2.7", "223.255.255.255"],
        *[
            "01.2.3.4",
            "256.1.1.1",
            "0",
            "1",
            "25",
            "255",
            ".",
            ". Title",
            ".  É",
            ". 1",
            "a",
            "_",
            " ",
            "\n",
            "\x1c",
            "é",
        ],
        *[
            "Section ",
            "SECTION",
            "version ",
            "appendix",
            "chapter ",
            "section.",
            "§ ",
            "§",
            " " * 9,
            "\u3000",
            "中",
            "\xa0\u2028",
            "K",
            "İ",
            "\ud800",
        ],
        *["2001:4860:4860::8888", "::ffff:8.8.8.8", "0:0:0:0:0:FFFF:808:808", "2001:db8::1", "3ab", "ffff", ":", "::"],
    ],
    PiiRedactor(kinds=["email", "ip"]): [
        "a@b.co",
        "8.8.8.8",
        "@",
        ".",
        " ",
        "::",
        "2001:4860:4860::8888",
        "é",
        "\ud800",
    ],
    PiiRedactor(): ["a@b.co", "8.8.8.8", "+1 212 555 0123", "4111111111111111", "AKIA" + "A" * 16, " ", "é", "\ud800"],
}
every = pytest.mark.parametrize("modifier", PIECES, ids=lambda modifier: f"{modifier.name}{PIECES[modifier][0]!r}")


@every
@given(data=st.data())
@settings(max_examples=400, deadline=None)
def test_texts_of_what_it_looks_for_change_as_they_should(modifier: DocumentModifier, data: st.DataObject) -> None:
    pieces = PIECES[modifier]
    few = data.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=6))
    text = st.lists(st.sampled_from(few), max_size=30).map("".join)
    check_edits(modifier, data.draw(st.lists(text, max_size=5)))


@every
@pytest.mark.parametrize("shift", range(0, 130, 3))
def test_texts_change_at_every_place_of_a_block(modifier: DocumentModifier, shift: int) -> None:
    pieces = PIECES[modifier]
    texts = [" " * shift + (piece + other) * 3 + end for piece in pieces[:9] for other in pieces for end in ("", " x")]
    check_edits(modifier, [text[:-1] for text in texts])
    check_edits(modifier, texts)


@every
def test_a_kernel_stays_inside_its_text(modifier: DocumentModifier) -> None:
    for piece in PIECES[modifier]:
        for cut in range(1, len(piece)):
            check_edits(modifier, [piece[:cut], piece[cut:], piece])


@every
def test_more_is_found_than_there_was_room_for(modifier: DocumentModifier) -> None:
    found = {"\n": "\n\n\na", "http://": "www.a ", "@": "a@b.co ", "8.8.8.8": "8.8.8.8 ", "a@b.co": "a@b.co "}
    check_edits(modifier, ["x", found[PIECES[modifier][0]] * 5000, "y"])


@pytest.mark.parametrize(
    ("modifier", "text"),
    [
        (MAILS, "jos\xe9@example.org"),
        (MAILS, "a@m\xfcller.de"),
        (IPS, "8.8.8.8. \xc9tude"),
        (IPS, "x\n1.2.3.4.  \u4e2d"),
    ],
)
def test_what_takes_more_than_ascii_is_left_to_the_definition(modifier: DocumentModifier, text: str) -> None:
    edits = modifier.edits(as_bytes(["plain", text, "8.8.4.4 a@b.org"]))
    assert edits is not None
    assert edits.doubtful.astype(bool).tolist() == [False, True, False]


def test_a_text_with_half_a_surrogate_pair_is_left_to_the_definition() -> None:
    edits = UrlRemover().edits(as_bytes(["\ud800 http://a.org", "\ud800", "http://a.org"]))
    assert edits is not None
    assert edits.doubtful.tolist() == [1, 0, 0]
    assert edits.found[:, 0].tolist() == [2]


def test_a_subclass_that_changes_texts_in_its_own_way_has_no_kernel() -> None:
    class Other(UrlRemover):
        def modify_document(self, text: str) -> str:
            return text.upper()

    assert has_edits(UrlRemover())
    assert not has_edits(Other())
