# SPDX-License-Identifier: Apache-2.0
"""Every text stage gives an empty batch for an empty batch, whatever its columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.core.json_batches import batch_of
from tests.unit.stages.text.modifiers.test_every_modifier import MODIFIERS
from tests.unit.stages.text.rules.all_rules import COUNTED, PLAIN
from thresher import (
    AddId,
    C4BadWordsFilter,
    C4QualityFilter,
    DocumentBatch,
    DocumentJoiner,
    DocumentSplitter,
    DocumentStatistics,
    EmbeddingCreatorStage,
    ExtractFields,
    Filter,
    FineWebQualityFilter,
    GenerateText,
    GopherQualityFilter,
    GopherRepetitionFilter,
    JudgeText,
    Modify,
    RewriteText,
    SamplerFilter,
    Score,
    ScoreFilter,
    SequenceClassifier,
    Tokenize,
    TranslateText,
    WordCountFilter,
)
from thresher.core.registry import entries
from thresher.core.stage import CompositeStage, ProcessingStage

NOWHERE = {"base_url": "http://127.0.0.1:9/v1", "model": "none"}
"""Nobody is asked about no documents."""
STAGES: dict[str, Callable[[], ProcessingStage[Any, Any]]] = {
    "AddId": lambda: AddId("new"),
    "DocumentJoiner": lambda: DocumentJoiner(),
    "DocumentJoiner-limited": lambda: DocumentJoiner(max_length=5, length_field="n", drop_segment_id_field=False),
    "DocumentSplitter": lambda: DocumentSplitter(","),
    "DocumentStatistics": lambda: DocumentStatistics(),
    "Filter": lambda: Filter(bool, "n"),
    "Modify": lambda: Modify(str.upper),
    "Score": lambda: Score(WordCountFilter(), "words"),
    "ScoreFilter": lambda: ScoreFilter([WordCountFilter(), *PLAIN.values()]),
    "ScoreFilter-compiled": lambda: ScoreFilter(list(COUNTED.values())),
    "ScoreFilter-noted": lambda: ScoreFilter(WordCountFilter(), score_field="words"),
    "Modify-all": lambda: Modify(list(MODIFIERS)),
    "C4BadWordsFilter": lambda: C4BadWordsFilter({"en": ["bad"]}),
    "C4QualityFilter": lambda: C4QualityFilter(),
    "FineWebQualityFilter": lambda: FineWebQualityFilter(),
    "GopherQualityFilter": lambda: GopherQualityFilter(),
    "GopherRepetitionFilter": lambda: GopherRepetitionFilter(),
    "SamplerFilter": lambda: SamplerFilter(0.5),
    "ExtractFields": lambda: ExtractFields(NOWHERE, {"topic": "string", "tags": "array"}),
    "GenerateText": lambda: GenerateText(NOWHERE, "{text}"),
    "JudgeText": lambda: JudgeText(NOWHERE),
    "RewriteText": lambda: RewriteText(NOWHERE, original_field="old"),
    "TranslateText": lambda: TranslateText(NOWHERE, "English"),
}
EMPTY: dict[str, Callable[[], DocumentBatch]] = {
    "no columns": lambda: DocumentBatch([]),
    "columns": lambda: DocumentBatch([{"text": "a", "segment_id": 0, "id": "x", "n": 1}]).take([]),
    "lines": lambda: batch_of([{"text": "a", "segment_id": 0, "id": "x", "n": 1}]).take([]),
}
NEEDS_FILES = {"Decontamination", "LanguageId", "TokenCounter", "TokenEncoder", "UrlBlocklistFilter"}
"""Tested beside the stages themselves."""
TOPICS = str(Path(__file__).parents[4] / "examples" / "topics")
MODELS: dict[str, Callable[[], ProcessingStage[Any, Any]]] = {
    "EmbeddingCreatorStage": lambda: EmbeddingCreatorStage("wordllama"),
    "SequenceClassifier": lambda: SequenceClassifier(TOPICS),
    "Tokenize": lambda: Tokenize(TOPICS),
}
"""The other classifiers are `SequenceClassifier` with another model."""


def test_every_stage_is_here() -> None:
    known = {name for name, entry in entries().items() if entry.kind == "stage" and ".text." in entry.target}
    known -= {name for name in known if name.endswith("Classifier")} - set(MODELS)
    assert {name.split("-")[0] for name in STAGES} == known - NEEDS_FILES - set(MODELS)


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_in_is_nothing_out(stage: str, empty: str) -> None:
    one = STAGES[stage]()
    made = one.process(EMPTY[empty]())
    results = list(made) if isinstance(made, list | Iterator) else [made]
    one.teardown()
    assert [len(result) for result in results] in ([0], [])


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("stage", MODELS)
def test_a_model_is_not_asked_about_nothing(stage: str, empty: str) -> None:
    one, batch = MODELS[stage](), EMPTY[empty]()
    for part in one.decompose() if isinstance(one, CompositeStage) else [one]:
        part.setup()
        made = part.process(batch)
        (batch,) = made if isinstance(made, list) else [made]
        part.teardown()
    assert len(batch) == 0
