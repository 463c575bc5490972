# SPDX-License-Identifier: Apache-2.0
"""What holds for every modifier: it takes any text, its test over bytes misses no text that it would change, and its
kernel, where it has one, changes texts as it does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of
from tests.unit.stages.text.modifiers.any_text import any_text, check_byte_test, check_edits
from thresher.core.registry import entries
from thresher.stages.text.document_modifier import DocumentModifier
from thresher.stages.text.modifiers.boilerplate_string import BoilerPlateStringModifier
from thresher.stages.text.modifiers.fasttext_label import FastTextLabelModifier
from thresher.stages.text.modifiers.line_remover import LineRemover, NewlineNormalizer
from thresher.stages.text.modifiers.markdown_remover import MarkdownRemover, QuotationRemover
from thresher.stages.text.modifiers.pii_redactor import PiiRedactor
from thresher.stages.text.modifiers.slicer import Slicer
from thresher.stages.text.modifiers.unicode_reformatter import UnicodeNormalizer, UnicodeReformatter
from thresher.stages.text.modifiers.url_remover import UrlRemover
from thresher.stages.text.modify import Modify

MODIFIERS = [
    BoilerPlateStringModifier(),
    BoilerPlateStringModifier(remove_if_at_top_or_bottom=False),
    FastTextLabelModifier("__label__hq"),
    LineRemover(["", "a", "Read more", "é"]),
    MarkdownRemover(),
    NewlineNormalizer(),
    PiiRedactor(),
    PiiRedactor(kinds=["email"], replacements={"email": ""}),
    PiiRedactor(kinds=["ip"]),
    PiiRedactor(kinds=["email", "ip"]),
    QuotationRemover(),
    Slicer(1, -1),
    Slicer("a", "b", include_left=False, include_right=False),
    UnicodeNormalizer("NFC"),
    UnicodeNormalizer("NFKD"),
    UnicodeReformatter(),
    UnicodeReformatter(
        fix_latin_ligatures=True,
        fix_character_width=True,
        uncurl_quotes=True,
        fix_line_breaks=True,
        normalization="NFKC",
    ),
    UrlRemover(),
]
DATA = os.path.join(os.path.dirname(__file__), "../../../../../../shared/data/text")


def test_every_modifier_is_here() -> None:
    known = {name for name, entry in entries().items() if entry.kind == "modifier"}
    assert {type(modifier).__name__ for modifier in MODIFIERS} == known


@pytest.mark.parametrize("modifier", MODIFIERS, ids=lambda modifier: type(modifier).__name__)
class TestEveryModifier:
    @given(text=any_text)
    @settings(max_examples=150, deadline=None)
    def test_takes_any_text_and_its_byte_test_misses_nothing(self, modifier: DocumentModifier, text: str) -> None:
        assert isinstance(modifier.modify_document(text), str)
        check_byte_test(modifier, [text])
        check_edits(modifier, [text])

    @pytest.mark.parametrize(
        "text", ["", " ", "\n", '"', '""', '"\n"', "\ud800", "\udfff\ud800", "\x00", "[" * 100_000]
    )
    def test_takes_odd_texts(self, modifier: DocumentModifier, text: str) -> None:
        assert isinstance(modifier.modify_document(text), str)
        check_byte_test(modifier, [text, "x", text])
        check_edits(modifier, [text, "x", text])

    def test_its_byte_test_misses_nothing_in_real_texts(self, modifier: DocumentModifier) -> None:
        check_byte_test(modifier, real_texts())

    def test_its_kernel_makes_of_real_texts_what_it_makes_of_them(self, modifier: DocumentModifier) -> None:
        check_edits(modifier, real_texts())

    def test_a_batch_is_changed_as_its_texts_are(self, modifier: DocumentModifier) -> None:
        texts = ["plain", "", '"quoted"', "*a* http://b.org\n\n\n\nc", "é e\u0301 &amp; 8.8.8.8", "Read more\nx"]
        changed = Modify(modifier).process(batch_of([{"text": text, "n": 1} for text in texts]))
        assert changed.values("text") == [modifier.modify_document(text) for text in texts]
        same = [modifier.modify_document(text) == text for text in texts]
        before = [json.dumps({"text": text, "n": 1}).encode() for text in texts]
        assert [
            bytes(line) == line_before for line, line_before in zip(changed.json_lines(), before, strict=True)
        ] == same


_REAL: list[str] = []


def real_texts() -> list[str]:
    """Some hundred texts of the shared samples."""
    if not _REAL:
        if not os.path.isdir(DATA):
            pytest.skip(f"the sample texts are not there: {os.path.normpath(DATA)}")
        _REAL.extend(text for path in sorted(os.listdir(DATA)) for text in _some_texts(os.path.join(DATA, path)))
    return _REAL


def _some_texts(path: str, most: int = 60) -> Iterator[str]:
    from thresher.core.source import ReadContext
    from thresher.stages.io.jsonl.reader import JsonlReader
    from thresher.stages.io.parquet.reader import ParquetReader

    if not path.endswith((".jsonl", ".gz", ".zst", ".parquet")):
        return
    reader = (ParquetReader if path.endswith(".parquet") else JsonlReader)(path, limit=most)
    for unit in reader.list_units():
        for item in reader.read(unit, ReadContext()):
            if item.task is not None:
                batch = reader.parse(item.task)
                yield from [text for text in batch.values("text") if isinstance(text, str)]
        return


@given(texts=st.lists(any_text, max_size=6))
@settings(max_examples=50, deadline=None)
def test_modifiers_look_at_each_text_alone(texts: list[str]) -> None:
    for modifier in MODIFIERS:
        check_byte_test(modifier, texts)
        check_edits(modifier, texts)
