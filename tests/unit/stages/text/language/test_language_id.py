# SPDX-License-Identifier: Apache-2.0
"""LanguageId writes a language and a score for every text, and never drops a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of, written
from tests.unit.models.test_byte_ngram_model import write
from tests.unit.stages.text.language.lid_data import small_fasttext_model
from thresher.core.documents.batch import DocumentBatch
from thresher.core.tally import context_of
from thresher.errors import InputError, MissingPackageError, RunFailedError, UsageError
from thresher.models import byte_ngram_model, fasttext_model
from thresher.stages.text import index_file
from thresher.stages.text.language import models
from thresher.stages.text.language.language_id import LanguageId

pytest.importorskip("py3langid", reason="needs the extra `langid`")
ENGLISH = "This is an English sentence about the weather, which is fine."
GERMAN = "Das ist ein deutscher Satz über das Wetter, und das ist schön."
FINNISH = "Tämä on suomenkielinen lause säästä, ja sää on kaunis tänään."


def languages_of(stage: LanguageId, *texts: str) -> list[tuple[str, float]]:
    made = written(stage.process(batch_of([{"text": text} for text in texts])))
    return [(record["language"], record["language_score"]) for record in made]


def test_it_writes_language_and_score_behind_what_a_record_has() -> None:
    records = [{"id": 1, "text": ENGLISH}, {"id": 2, "text": GERMAN}]
    first, second = written(LanguageId().process(batch_of(records)))
    assert list(first) == ["id", "text", "language", "language_score"]
    assert (first["language"], second["language"]) == ("en", "de")
    assert 0.9 < first["language_score"] <= 1


def test_arrow_columns_are_read_as_lines_are() -> None:
    import pyarrow as pa

    table = pa.table({"body": [ENGLISH, GERMAN, ""]})
    made = LanguageId(text_field="body", language_field="lang", score_field=None).process(DocumentBatch(table))
    assert made.to_pyarrow().to_pydict() == {"body": [ENGLISH, GERMAN, ""], "lang": ["en", "de", "und"]}


def test_texts_that_are_empty_or_too_short_are_undetermined() -> None:
    assert languages_of(LanguageId(), "", " \n\t", "ab", " a b ") == [("und", 0.0)] * 4
    assert languages_of(LanguageId(min_characters=100), ENGLISH) == [("und", 0.0)]
    assert [code for code, _ in languages_of(LanguageId(min_characters=0), "", "ส")] == ["und", "th"]


def test_an_uncertain_language_is_undetermined_and_keeps_its_score() -> None:
    ((code, score),) = languages_of(LanguageId(), "Hotel Internet 2000")
    assert code != "und"
    assert languages_of(LanguageId(min_score=score + 0.001), "Hotel Internet 2000") == [("und", score)]


def test_contents_in_no_language_have_their_own_code() -> None:
    assert (
        languages_of(LanguageId(), "0x7f 3.14 2718 *** 0x80 99 1,234 5678 == 42 ||| 17 2026-11-19 :: 8080")[0][0]
        == "zxx"
    )


def test_candidates_are_the_only_answers() -> None:
    assert [code for code, _ in languages_of(LanguageId(["de", "en"]), ENGLISH, GERMAN, FINNISH)][:2] == ["en", "de"]
    assert languages_of(LanguageId("de"), FINNISH) == [("de", 1.0)]
    assert LanguageId(["eng", "en-GB", "nb"]).languages == ["en", "no"]


def test_records_without_a_text_are_set_aside() -> None:
    made = LanguageId().process(batch_of([{"text": GERMAN}, {"text": 3}, {"other": "x"}, {"text": ENGLISH}]))
    assert [record["language"] for record in written(made)] == ["de", "en"]
    assert len(LanguageId().process(batch_of([{"text": 1}]))) == 0
    assert len(LanguageId().process(batch_of([{"text": ""}]).take([]))) == 0


def test_the_report_has_a_chart_of_the_languages() -> None:
    stage = LanguageId()
    stage.process(batch_of([{"text": text} for text in (ENGLISH, GERMAN, ENGLISH)]))
    assert sorted(context_of(stage).noted.counts.values()) == [1, 2]


# -- models of the user -----------------------------------------------------------------------------------------------


def test_a_fasttext_model_takes_the_place_of_the_bundled_one(tmp_path: Path) -> None:
    path = small_fasttext_model(tmp_path)
    english, german = "the weather is nice", "das Wetter\nist schön"
    found = languages_of(LanguageId(model_path=path), english, german, "")
    assert [code for code, _ in found] == ["eng_Latn", "deu_Latn", "und"]
    assert languages_of(LanguageId("eng_Latn", model_path=path), german) == [("eng_Latn", 1.0)]
    assert LanguageId("eng_Latn", model_path=path).check_before_run() == []
    (problem,) = LanguageId("en", model_path=path).check_before_run()
    assert "LanguageId.languages: the model does not know 'en'" in problem
    with pytest.raises(UsageError, match="does not know 'en'"):
        LanguageId("en", model_path=path).setup()


def test_a_model_of_bytes_takes_the_place_of_the_bundled_one(tmp_path: Path) -> None:
    stage = LanguageId(model_path=write(tmp_path / "mine.npz.xz"), min_characters=0)
    assert [code for code, _ in languages_of(stage, "e" * 30, "x" * 30)] == ["aa", "und"]
    with pytest.raises(UsageError, match=r"LanguageId\.languages: the model does not know 'en'"):
        LanguageId("en", model_path=write(tmp_path / "mine.npz.xz")).setup()


def test_a_file_that_is_no_model_is_refused_before_the_run(tmp_path: Path) -> None:
    (problem,) = LanguageId(model_path=str(tmp_path / "missing.bin")).check_before_run()
    assert "LanguageId.model_path: there is no file" in problem
    (tmp_path / "text.bin").write_text("no model")
    (problem,) = LanguageId(model_path=str(tmp_path / "text.bin")).check_before_run()
    assert "is not a fastText model" in problem
    (tmp_path / "cut.npz.xz").write_bytes(b"\xfd7zXZ\0 and nothing else")
    with pytest.raises(InputError, match="cannot be used as a model of languages"):
        LanguageId(model_path=str(tmp_path / "cut.npz.xz")).setup_on_node()


def test_a_missing_package_is_reported_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(byte_ngram_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"LanguageId needs the package py3langid.*thresher\[langid\]"):
        LanguageId()
    monkeypatch.setattr(fasttext_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"LanguageId needs the package fasttext: .*thresher\[fasttext\]"):
        LanguageId(model_path="lid.176.bin")


def test_workers_share_the_unpacked_model_and_a_damaged_one_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(index_file, "cache_folder", lambda: str(tmp_path))
    models._byte_ngrams.cache_clear()
    path = write(tmp_path / "mine.npz.xz")
    LanguageId(model_path=path).setup_on_node()
    (unpacked,) = tmp_path.glob("languages-*.index")
    before = unpacked.stat().st_mtime_ns
    models._byte_ngrams.cache_clear()
    LanguageId(model_path=path).setup()
    assert unpacked.stat().st_mtime_ns == before, "it was unpacked again"
    unpacked.write_bytes(unpacked.read_bytes().replace(b"\0" * 64, b"\xff" * 64))
    models._byte_ngrams.cache_clear()
    with pytest.raises(RunFailedError, match=r"the unpacked language model in .* is damaged .*delete its files"):
        LanguageId(model_path=path).setup()


# -- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"languages": ["en", "klingon"]}, r"LanguageId\.languages: the model does not know 'klingon'"),
        ({"languages": []}, r"LanguageId\.languages: \[\] is not a list of language codes"),
        ({"languages": [1]}, r"LanguageId\.languages: \[1\] is not a list of language codes"),
        ({"min_score": 1.5}, r"LanguageId\.min_score: 1\.5 is not a probability"),
        ({"min_characters": -1}, r"LanguageId\.min_characters: -1 is not a number of characters"),
        ({"score_field": "language"}, r"LanguageId\.score_field: 'language' is the column of the language"),
    ],
)
def test_wrong_parameters_are_refused_where_they_are_written(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LanguageId(**given)
