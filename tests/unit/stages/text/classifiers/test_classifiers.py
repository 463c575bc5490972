# SPDX-License-Identifier: Apache-2.0
"""Classifiers give what a plain loop over the model gives, one text at a time and without padding."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.core.json_batches import batch_of_lines
from tests.unit.models.tiny_models import (
    HEADS,
    TEXTS,
    needs_torch,
    save_custom_head,
    save_guard,
    save_labels,
    save_language_model,
    save_regression,
    save_several_heads,
)
from thresher import (
    AegisClassifier,
    ContentTypeClassifier,
    DocumentBatch,
    DomainClassifier,
    FineMathClassifier,
    FineWebEduClassifier,
    InstructionDataGuardClassifier,
    PromptTaskComplexityClassifier,
    QualityClassifier,
    SequenceClassifier,
)
from thresher.errors import InputError, UsageError
from thresher.stages.text.classifiers.safety import label_of

needs_torch()
QUALITY = ["High", "Medium", "Low"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@functools.cache
def quality(folder: Path) -> Any:
    return save_custom_head(folder / "quality", QUALITY)


def ids_of(folder: Path, text: str, max_length: int = 512) -> Any:
    """The ids of a text as a batch of one, without padding."""
    import tokenizers
    import torch

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(max_length)
    return torch.tensor([tokenizer.encode(text).ids])


def run(stage: Any, texts: list[str]) -> DocumentBatch:
    """The documents behind the stages that a classifier consists of."""
    batch = DocumentBatch([{"text": text} for text in texts])
    for part in stage.decompose():
        part.setup()
        (batch,) = part.process_batch([batch])
    return batch


def logits_of(model: Any, folder: Path) -> np.ndarray[Any, Any]:
    """The logits of a DeBERTa with a head on the first token, text by text."""
    import torch

    with torch.inference_mode():
        return np.concatenate(
            [model["fc"](model["model"](ids_of(folder, text)).last_hidden_state[:, 0]).numpy() for text in TEXTS]
        )


def test_quality_domain_and_content_are_the_best_labels_of_a_head_on_the_first_token(folder: Path) -> None:
    logits = logits_of(quality(folder), folder / "quality")
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = [QUALITY[place] for place in logits.argmax(axis=1)]
    assert len(set(expected)) > 1
    for kind, column in (
        (QualityClassifier, "quality_pred"),
        (DomainClassifier, "domain_pred"),
        (ContentTypeClassifier, "content_pred"),
    ):
        found = run(kind(model=str(folder / "quality"), score_field="p", all_scores_field="all"), TEXTS)
        assert found.columns == ["text", column, "p", "all"]
        assert found.values(column) == expected
        np.testing.assert_allclose(found.values("p"), probabilities.max(axis=1), atol=1e-4)
        np.testing.assert_allclose(found.values("all"), probabilities, atol=1e-4)


@pytest.mark.parametrize("most", [1, 2, 256])
@pytest.mark.parametrize("sort", [True, False])
def test_neither_the_size_of_forward_passes_nor_sorting_changes_results(folder: Path, most: int, sort: bool) -> None:
    quality(folder)
    stage = functools.partial(QualityClassifier, model=str(folder / "quality"), score_field="p")
    expected = run(stage(), TEXTS)
    found = run(stage(model_inference_batch_size=most, sort_by_length=sort), TEXTS)
    assert found.values("quality_pred") == expected.values("quality_pred")
    np.testing.assert_allclose(found.values("p"), expected.values("p"), atol=1e-5)


def test_documents_with_other_labels_are_dropped_under_the_label_that_they_have(folder: Path) -> None:
    quality(folder)
    labels = run(QualityClassifier(model=str(folder / "quality")), TEXTS).values("quality_pred")
    wanted = labels[0]
    found = run(QualityClassifier(model=str(folder / "quality"), filter_by=[wanted]), TEXTS)
    assert found.values("text") == [text for text, label in zip(TEXTS, labels, strict=True) if label == wanted]
    dropped = {one.rule: one.batch.num_items for one in found.take_dropped()}
    assert dropped == {label: labels.count(label) for label in set(labels) if label != wanted}


def test_labels_that_the_model_lacks_are_refused_before_the_run(folder: Path) -> None:
    quality(folder)
    _, stage = QualityClassifier(model=str(folder / "quality"), filter_by=["Hihg"]).decompose()
    (problem,) = stage.check_before_run()
    assert problem == (
        "QualityClassifier.filter_by: 'Hihg' is no label of the model. Did you mean 'High'? Labels: High, Medium, Low"
    )
    with pytest.raises(UsageError, match="is one label; give a list"):
        QualityClassifier(filter_by="High")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(UsageError, match="model_inference_batch_size"):
        QualityClassifier(model_inference_batch_size="64")  # type: ignore[arg-type]  # what is refused


def test_a_checkpoint_that_only_names_a_well_known_base_model_gets_its_configuration(tmp_path: Path) -> None:
    import json

    from thresher.models.architectures.backbone import configuration
    from thresher.models.loading.folder import ModelFolder

    (tmp_path / "config.json").write_text(
        json.dumps({"base_model": "microsoft/DeBERTa-v3-base", "id2label": {"0": "a"}})
    )
    config = configuration(ModelFolder(str(tmp_path), "x"))
    assert (config.model_type, config.hidden_size, config.vocab_size) == ("deberta-v2", 768, 128100)
    (tmp_path / "config.json").write_text(json.dumps({"base_model": "somebody/else"}))
    with pytest.raises(InputError, match="has no model_type, and its base_model 'somebody/else' is not one of"):
        configuration(ModelFolder(str(tmp_path), "x"))


def test_grades_are_the_output_of_a_regression_as_number_whole_number_and_label(folder: Path) -> None:
    import torch

    where = folder / "regression"
    model = save_regression(where)
    with torch.inference_mode():
        expected = np.array([model(input_ids=ids_of(where, text)).logits.item() for text in TEXTS])
    found = run(FineWebEduClassifier(model=str(where)), TEXTS)
    np.testing.assert_allclose(found.values("fineweb-edu-score-float"), expected.clip(0, 5), atol=1e-4)
    assert found.values("fineweb-edu-score-int") == [round(max(0, min(value, 5))) for value in expected]
    labels = ["high_quality" if value >= 2.5 else "low_quality" for value in expected]
    assert found.values("fineweb-edu-score-label") == labels
    assert len(set(labels)) == 2
    kept = run(FineWebEduClassifier(model=str(where), filter_by=["high_quality"]), TEXTS)
    assert len(kept) == labels.count("high_quality")
    (dropped,) = kept.take_dropped()
    assert dropped.rule == "low_quality"
    assert all(score < 2.5 for score in dropped.scores or [])
    generic = run(SequenceClassifier(model=str(where), kind="grade", max_length=512), TEXTS)
    np.testing.assert_allclose(generic.values("score"), expected, atol=1e-4)
    assert generic.columns == ["text", "label", "score", "score_int"]


def test_mathematics_is_graded_by_the_middle_of_a_text(folder: Path) -> None:
    where = folder / "math"
    save_regression(where)
    text = "blue " * 30 + "the cat sat " + "blue " * 30
    middle = text[(len(text) - 12) // 2 :][:12]
    found = run(FineMathClassifier(model=str(where), center_crop_chars=12), [text, middle])
    assert abs(found.values("finemath_scores")[0] - found.values("finemath_scores")[1]) < 1e-5
    assert found.columns == ["text", "finemath_scores", "finemath_int_scores"]


def test_prompts_get_their_task_types_and_the_weighted_means_of_each_head(folder: Path) -> None:
    import torch

    where = folder / "prompts"
    model = save_several_heads(where)
    found = run(PromptTaskComplexityClassifier(model=str(where)), TEXTS)
    for row, text in enumerate(TEXTS):
        with torch.inference_mode():
            mean = model["backbone"](ids_of(where, text)).last_hidden_state.mean(dim=1)
            heads = {name: torch.softmax(model[f"head_{n}"]["fc"](mean)[0], 0).numpy() for n, name in enumerate(HEADS)}
        record = {name: found.values(name)[row] for name in found.columns}
        order = np.argsort(-heads["task_type"])
        assert record["task_type_1"] == f"type {order[0]}"
        assert record["task_type_2"] == ("NA" if heads["task_type"][order[1]] < 0.0995 else f"type {order[1]}")
        assert abs(record["task_type_prob"] - heads["task_type"][order[0]]) < 1e-3
        for name, size in HEADS.items():
            if name != "task_type":
                expected = float(heads[name] @ np.arange(size)) / max(1, size - 1)
                assert abs(record[name] - expected) < 1.01e-4 or (record[name] == 0.0 and expected < 0.0501)
        parts = [(0.35, "creativity_scope"), (0.25, "reasoning"), (0.15, "constraint_ct"), (0.15, "domain_knowledge")]
        parts += [(0.05, "contextual_knowledge"), (0.05, "number_of_few_shots")]
        assert abs(record["prompt_complexity_score"] - sum(weight * record[name] for weight, name in parts)) < 1e-4


def test_aegis_reads_the_answer_of_a_language_model_with_its_adapter(folder: Path) -> None:
    pytest.importorskip("peft", reason="needs the extra `transformers`")
    import tokenizers
    import torch

    model = save_language_model(folder / "llama", folder / "lora")
    stage = AegisClassifier(
        model=str(folder / "llama"),
        aegis_variant=str(folder / "lora"),
        prompt="the dog {text} ran",
        max_new_tokens=5,
        keep_raw_output=True,
        filter_by=["unknown"],
    )
    found = run(stage, TEXTS)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "llama" / "tokenizer.json"))
    expected = []
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(f"the dog {text} ran").ids])
        made = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False, pad_token_id=0
        )
        expected.append(tokenizer.decode(made[0, ids.shape[1] :].tolist(), skip_special_tokens=True))
    assert found.values("_aegis_raw_pred") == expected
    assert len(set(expected)) > 1
    assert found.values("aegis_pred") == ["unknown"] * len(TEXTS)


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("safe", "safe"),
        (" Safe \n", "safe"),
        ("unsafe\nO3", "O3"),
        ("unsafe\nO13,O2", "O13"),
        ("unsafe", "unknown"),
        ("unsafe\nO14", "unknown"),
        ("O1", "unknown"),
        ("", "unknown"),
    ],
)
def test_answers_become_labels(answer: str, label: str) -> None:
    assert label_of(answer) == label


def test_poison_is_what_a_network_sees_in_the_last_state_of_a_language_model(folder: Path) -> None:
    import torch

    where = folder / "plain-llama"
    model, guard = save_language_model(where), save_guard(folder / "guard")
    texts = [text for text in TEXTS if text]
    expected = []
    with torch.inference_mode():
        for text in texts:
            state = model(ids_of(where, text, 4096), output_hidden_states=True).hidden_states[-1][:, -1]
            value = torch.nn.functional.normalize(state, dim=-1)
            for name in ("input_layer", "hidden_layer_0", "hidden_layer_1"):
                value = torch.relu(guard[name](value))
            expected.append(torch.sigmoid(guard["hidden_layer_2"](value)).item())
    stage = functools.partial(
        InstructionDataGuardClassifier, model=str(where), adapter=None, guard=str(folder / "guard")
    )
    found = run(stage(), texts)
    np.testing.assert_allclose(found.values("instruction_data_guard_poisoning_score"), expected, atol=1e-4)
    assert found.values("is_poisoned") == [value >= 0.5 for value in expected]
    clean = run(stage(filter_by=[False]), texts)
    assert len(clean) == sum(value < 0.5 for value in expected)


def test_labels_of_any_model_for_sequences(folder: Path) -> None:
    import torch

    where = folder / "any"
    labels = ["yes", "no", "perhaps"]
    model = save_labels(where, labels)
    with torch.inference_mode():
        expected = [labels[model(input_ids=ids_of(where, text, 48)).logits.argmax().item()] for text in TEXTS]
    found = run(SequenceClassifier(model=str(where), label_field="answer"), TEXTS)
    assert found.values("answer") == expected


def test_tokens_are_kept_if_wanted_and_made_once_for_several_models(folder: Path) -> None:
    quality(folder)
    where = str(folder / "quality")
    kept = run(QualityClassifier(model=where, keep_tokens=True), TEXTS)
    assert str(kept.column("input_ids").type) == "list<item: uint16>"
    assert kept.values("input_ids")[1] == ids_of(folder / "quality", "dog")[0].tolist()
    again = QualityClassifier(model=where, label_field="again", use_existing_tokens=True)
    (stage,) = again.decompose()
    stage.setup()
    (found,) = stage.process_batch([kept])
    assert found.values("again") == found.values("quality_pred")
    assert "input_ids" not in found.columns


def test_records_without_tokens_or_text_are_set_aside_and_lines_keep_their_bytes(folder: Path) -> None:
    quality(folder)
    batch = batch_of_lines([b'{"text": "dog",  "n": 1}', b'{"text": 5}', b'{"text": "blue cat", "n": 2}'])
    for part in QualityClassifier(model=str(folder / "quality")).decompose():
        (batch,) = part.process_batch([batch])
    lines = [bytes(line) for line in batch.json_lines()]
    assert [line.startswith(b'{"text": "dog",  "n": 1, "quality_pred": "') for line in lines] == [True, False]
    assert [one.error for one in batch.take_failed()] == ["not-a-string"]
    (stage,) = QualityClassifier(model=str(folder / "quality"), use_existing_tokens=True).decompose()
    given = pa.table({"text": ["a", "b", "c"], "input_ids": [[1, 5, 2], None, [1, None]]})
    (left,) = stage.process_batch([DocumentBatch(given)])
    assert left.values("text") == ["a"]
    assert [(one.error, len(one.messages)) for one in left.take_failed()] == [("no-tokens", 2)]
