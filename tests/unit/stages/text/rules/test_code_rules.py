# SPDX-License-Identifier: Apache-2.0
"""Rules for source files: comments, headers, pages, tables of bounds, tokenizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.stages.text.rules.texts import real_texts
from thresher.errors import InputError, UsageError
from thresher.stages.text.rules.code.comments import GeneralCommentToCodeFilter, PythonCommentToCodeFilter, comments_in
from thresher.stages.text.rules.code.per_extension import PerExtensionFilter
from thresher.stages.text.rules.code.source_files import HTMLBoilerplateFilter, XMLHeaderFilter, text_length
from thresher.stages.text.rules.words.tokens import TokenizerFertilityFilter

# -- comments ---------------------------------------------------------------------------------------------------------

COMMENTS = [
    ("text/x-c", 'a = "// no"; // yes', [" yes"]),
    ("text/x-c", "c = '\"'; /* one\ntwo */ d", [" one\ntwo "]),
    ("text/x-c", 's = "a\\"// no"; // yes', [" yes"]),
    ("text/x-c", "/* open", None),
    ("text/x-c", "don't // yes", [" yes"]),
    ("text/x-go", "`// no\n/*` // yes", [" yes"]),
    ("text/x-javascript", "`\\`// no` // yes", [" yes"]),
    ("text/x-java", "/**/ a", [""]),
    ("text/x-python", "'''# no\n# no''' # yes", [" yes"]),
    ("text/x-python", "x = '#' # yes\n# and", [" yes", " and"]),
    ("text/x-ruby", "=begin\nyes\n=end\n'#' # and", ["\nyes\n", " and"]),
    ("text/x-ruby", "=begin\nopen", None),
    ("text/x-shellscript", "n=$# ${#a} '#' \\# a#b # yes", [" yes"]),
    ("text/html", 'say "<!-- yes -->" <!-- and\n-->', [" yes ", " and\n"]),
    ("text/xml", "<!-- open", None),
]


@pytest.mark.parametrize(("language", "source", "comments"), COMMENTS)
def test_comments_are_found(language: str, source: str, comments: list[str] | None) -> None:
    assert comments_in(source, language) == comments


def test_the_marks_of_a_comment_do_not_count() -> None:
    rule = GeneralCommentToCodeFilter("text/x-c")
    assert rule.score_document("a // b\n// c") == len(" b  c") / 11
    assert not rule.keep_document(rule.score_document("/* open"))


def test_a_language_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match=r"language: 'text/x-cobol' is not one of application/javascript, text/html, "):
        GeneralCommentToCodeFilter("text/x-cobol")


@pytest.mark.parametrize("piece", ['"', '\\"', "'", "`", "/*", "//", "<!--", "'''", "=begin\n", "#", "a\\'"])
def test_hostile_source_takes_linear_time(piece: str) -> None:
    """A search that starts again from every piece would take hours here, and the test would time out."""
    source = piece * 200_000
    for language in ("text/x-c", "text/x-javascript", "text/x-python", "text/x-ruby", "text/x-shellscript", "text/xml"):
        found = comments_in(source, language)
        assert found is None or sum(map(len, found)) <= len(source)


def test_comments_and_docstrings_of_python() -> None:
    source = '"""About."""\n\nasync def f():\n    """Does."""\n    return "# no"  # yes\n'
    found = len("About.\nDoes.") + len("# yes")
    assert PythonCommentToCodeFilter().score_document(source) == found / len(source)


@pytest.mark.parametrize("source", ["def f(:", "'", "\0", "x = '\\d'\ny = (", "-" * 100_000 + "1", "\ud800 = 1"])
def test_what_is_not_python_has_no_comments(source: str) -> None:
    assert PythonCommentToCodeFilter().score_document(source) == 0.0


def test_warnings_about_a_strangers_code_are_not_ours() -> None:
    assert PythonCommentToCodeFilter().score_document("x = '\\d'  # a") > 0


# -- XML and HTML -----------------------------------------------------------------------------------------------------


def test_a_header_of_xml_must_begin_and_end_near_the_top() -> None:
    header = '<?xml version="1.0"?>'
    assert XMLHeaderFilter().score_document(header) == 1
    assert XMLHeaderFilter().score_document(" " * 86 + header) == 1
    assert XMLHeaderFilter().score_document(" " * 87 + header) == 0
    assert not XMLHeaderFilter().keep_document(1)


@pytest.mark.parametrize(
    ("page", "length"),
    [
        ("<p>one &amp; two</p>", len("one & two")),
        ("a<script>if (x < 1) y()</script>b<style>p {}</style>c", 3),
        ("a<!-- no -->b<!doctype html>", 2),
        ("<template><p>no</p></template>yes", 3),
        ("<![CDATA[yes]]>", 3),
        ("<script>never closed <p>text</p>", 0),
        ("no tags", 7),
        ("<ul>\n    <li> a</li>\n</ul>", 4),  # indentation between tags is one character
        ("1 < 2 & 3 > 2", 13),
        ("<p title='a > b'>yes</p>   <p class=it's>yes</p>", 7),
        ("<SCRIPT>no</Script >yes<script src=x />yes", 6),
        ("yes<!-- never closed", 3),
        ("yes<a href='never closed", 3),
        ("<!-->yes<?php no ?>yes", 6),
    ],
)
def test_text_of_a_page(page: str, length: int) -> None:
    assert text_length(page) == length


@pytest.mark.parametrize("piece", ["<", "<!", "<![x[", "&#", "<a ", "<script>", "</", "<!--", "<a b='", "<?", "&#9"])
def test_a_hostile_page_takes_linear_time(piece: str) -> None:
    """A search that starts again from every piece would take hours here, and the test would time out."""
    assert text_length(piece * 300_000) >= 0


def test_a_reference_with_thousands_of_digits_is_text() -> None:
    assert text_length("&#" + "1" * 5000) == 5002


def test_a_page_with_little_text_is_dropped_whatever_its_share() -> None:
    rule = HTMLBoilerplateFilter()
    assert rule.score_document("a" * 99) == 0.0
    assert rule.score_document("a" * 100) == 1.0
    assert rule.keep_document(0.2)
    assert not rule.keep_document(0.19)


# -- a table of bounds ------------------------------------------------------------------------------------------------

TABLE = """language,extension,Include,Long_line_threshold,Alphanum_threshold,Alpha filter
python,py,1,200,0.25,0.5
python,,1,,,
python,pyc,0,,,
c-sharp,cs,1,,,0.1
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "meta.csv"
    path.write_text(TABLE)
    return str(path)


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("letters\n" * 20, 1),
        ("a" * 200, 0),  # the mean is above 100
        ("a" * 200 + "\n" * 9, 1),
        ("a" * 201 + "\n" * 9, 0),
        ("--" * 20 + "aaaa", 0),  # too few letters and digits
        ("1" * 11 + "a" * 10, 0),  # too few letters
        ("", 0),
    ],
)
def test_a_file_must_be_usual_for_its_kind(table: str, text: str, score: int) -> None:
    assert PerExtensionFilter("Python", "py", table).score_document(text) == score


def test_an_empty_cell_is_no_bound_and_a_kind_may_be_unwanted(table: str) -> None:
    assert PerExtensionFilter("python", "", table).score_document("-" * 5000) == 1
    assert PerExtensionFilter("C#", "cs", table).score_document("abc") == 1
    assert PerExtensionFilter("python", "pyc", table).score_document("abc") == 0


def test_bounds_of_the_table_are_reported(table: str) -> None:
    found = PerExtensionFilter("python", "py", table).thresholds()
    assert found == {"longest_line": 200.0, "mean_line": 100, "alphanumeric": 0.25, "alphabetic": 0.5}


def test_what_the_table_does_not_have_is_refused(table: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"extension: .+ has no 'js' for 'python'; it has 'py', '', 'pyc'"):
        PerExtensionFilter("python", "js", table)
    with pytest.raises(UsageError, match=r"lang: 'Ada 95' is not in .+; it is looked for as 'ada-95'"):
        PerExtensionFilter("Ada 95", "ads", table)
    with pytest.raises(InputError, match=r"metadata_file: 'nowhere\.csv' cannot be read"):
        PerExtensionFilter("python", "py", "nowhere.csv")
    (tmp_path / "short.csv").write_text("language,extension\npython,py\n")
    with pytest.raises(InputError, match=r"has no column 'Include', 'Long_line_threshold'"):
        PerExtensionFilter("python", "py", str(tmp_path / "short.csv"))


# -- tokenizers -------------------------------------------------------------------------------------------------------


def test_characters_per_token(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="the extra `tokenizers` is not installed")
    words = [f"{a}{b}{c}" for a in "kstnm" for b in "aeiou" for c in "lrnst"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[n : n + 9]) for n in range(100)]),
        model_prefix=str(tmp_path / "tiny"),
        vocab_size=60,
        model_type="bpe",
        minloglevel=9,
    )
    rule = TokenizerFertilityFilter(str(tmp_path / "tiny.model"), min_char_to_token_ratio=1.1)
    known, unknown = rule.score_document("kal sel tin " * 20), rule.score_document("q w " * 20)
    assert rule.keep_document(known)
    assert known > unknown
    assert rule.score_document("") == -1.0
    assert rule.score_document("\ud800 kal") > 0


def test_a_tokenizer_must_be_named() -> None:
    with pytest.raises(UsageError, match=r"TokenizerFertilityFilter\.path_to_tokenizer: None is not a tokenizer"):
        TokenizerFertilityFilter(None)  # type: ignore[arg-type]


def test_real_code_has_comments() -> None:
    sources = [text for text in real_texts(60) if "def " in text and "import " in text]
    rule = PythonCommentToCodeFilter()
    assert any(rule.keep_document(rule.score_document(source)) for source in sources)
