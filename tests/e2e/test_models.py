# SPDX-License-Identifier: Apache-2.0
"""Models in pipelines: worker processes load them, tokens travel between processes and are not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.bert_graph import save_graph
from tests.unit.models.tiny_models import TEXTS, WORDS, needs_torch, save_custom_head, save_encoder, save_labels
from thresher import (
    EmbeddingCreatorStage,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    QualityClassifier,
    Resources,
    SemanticDeduplication,
    SerialExecutor,
)
from thresher.cli.main import main

needs_torch()
LABELS = ["High", "Medium", "Low"]
RECIPE = """
name: labels
stages:
  - JsonlReader: {file_paths: INPUT}
  - SequenceClassifier: {model: MODEL, filter_by: [yes, no], resources: {gpus: 0.5}, num_workers: 2}
  - JsonlWriter: {path: OUTPUT}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three files of short texts."""
    folder = tmp_path_factory.mktemp("in")
    for file in range(3):
        texts = [" ".join(WORDS[(file + n * k) % len(WORDS)] for k in range(1 + n % 40)) for n in range(80)]
        lines = [json.dumps({"text": text, "n": n}) for n, text in enumerate([*TEXTS, *texts])]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_processes_label_and_filter_as_one_process_does(source: str, tmp_path: Path) -> None:
    save_custom_head(tmp_path / "model", LABELS)
    found = {}
    for name, executor in {"local": LocalExecutor(workers=2), "serial": SerialExecutor()}.items():
        classifier = QualityClassifier(model=str(tmp_path / "model"), score_field="p", filter_by=["High", "Medium"])
        output, dropped = tmp_path / name, tmp_path / f"{name}-dropped"
        pipeline = Pipeline("q", stages=[JsonlReader(source), classifier, JsonlWriter(str(output))])
        result = pipeline.run(executor, dropped_to=str(dropped), progress="none")
        kept, gone = lines_of(output), lines_of(dropped)
        assert result.counts["read"] == len(kept) + len(gone) == 3 * (80 + len(TEXTS))
        assert result.drop_reasons == {"QualityClassifier/Low": len(gone)}
        assert {tuple(record) for record in kept} == {("text", "n", "quality_pred", "p")}
        assert {(one["_dropped"]["rule"], *one["_dropped"]["threshold"]) for one in gone} == {("Low", "High", "Medium")}
        assert {key for one in gone for key in one} == {"text", "n", "quality_pred", "p", "_dropped"}
        found[name] = kept
    for one, other in zip(found["local"], found["serial"], strict=True):
        assert abs(one.pop("p") - other.pop("p")) < 1e-4
        assert one == other


def test_a_recipe_runs_an_onnx_model_on_declared_accelerators(source: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="builds a graph")
    pytest.importorskip("onnxruntime", reason="needs the extra `models`")
    model = tmp_path / "model"
    save_labels(model, ["yes", "no", "perhaps"])
    save_graph(model, classifies=True)
    recipe = tmp_path / "labels.yaml"
    text = RECIPE.replace("INPUT", source).replace("MODEL", str(model)).replace("OUTPUT", str(tmp_path / "out"))
    recipe.write_text(text.replace("[yes, no]", '["yes", "no"]'))
    assert main(["run", str(recipe), "--gpus", "1", "--quiet"]) == 0
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert set(report["drop_reasons"]) == {"SequenceClassifier/perhaps"}
    assert {record["label"] for record in lines_of(tmp_path / "out")} == {"yes", "no"}


def test_vectors_in_parquet_are_what_semantic_deduplication_compares(source: str, tmp_path: Path) -> None:
    save_encoder(tmp_path / "model")
    encoder = EmbeddingCreatorStage(model=str(tmp_path / "model"), precision="float16", normalize=True)
    made = tmp_path / "vectors"
    pipeline = Pipeline("e", stages=[JsonlReader(source), encoder, ParquetWriter(str(made))])
    written = pipeline.run(SerialExecutor(), progress="none").counts["written"]
    assert written == 3 * (80 + len(TEXTS))
    stages = [
        ParquetReader(str(made)),
        SemanticDeduplication(n_clusters=2, eps=0.0001),
        JsonlWriter(str(tmp_path / "u")),
    ]
    result = Pipeline("u", stages=stages).run(SerialExecutor(), progress="none")
    unique = {record["text"] for record in lines_of(Path(source))}
    assert 0 < result.counts["written"] <= len(unique)


def test_a_model_that_is_not_there_is_refused_before_anything_is_read(source: str, tmp_path: Path) -> None:
    from thresher.errors import ThresherError

    classifier = QualityClassifier(model=str(tmp_path / "none")).with_(resources=Resources(gpus=1))
    pipeline = Pipeline("q", stages=[JsonlReader(source), classifier, JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(ThresherError) as refused:
        pipeline.run(LocalExecutor(workers=1, gpus=1), progress="none")
    assert str(refused.value).startswith(f"QualityClassifier.model: '{tmp_path}/none' does not exist; give a folder")
    assert not (tmp_path / "out").exists()
