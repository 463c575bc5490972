# SPDX-License-Identifier: Apache-2.0
"""The Python samples that users of other curators know, with our import names: they fix the shape of the API."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    Resources,
    SerialExecutor,
    processing_stage,
)
from thresher.errors import PlanError

TEXTS = [f"document number {number}" for number in range(12)]


class WordCountStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds the number of words."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Returns a batch of its own making, as authors do."""
        frame = task.to_pandas()
        frame["words"] = frame["text"].str.split().str.len()
        return DocumentBatch(data=frame, dataset_name=task.dataset_name, task_id=task.task_id)


class TokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "TokenizerStage"
    resources: Resources = Resources(cpus=1.0)  # CPU-only, no GPU needed

    def __init__(self) -> None:
        super().__init__()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.replace("tokens", [text.split() for text in task.values("text")])


class ModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "ModelStage"

    def __init__(self, model_path: str) -> None:
        super().__init__()
        self.model_path = model_path

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.replace("model", [self.model_path] * task.num_items)


@processing_stage(name="custom_filter", resources=Resources(cpus=1))
def custom_filter_stage(task: DocumentBatch) -> DocumentBatch:
    return task.take([row for row, text in enumerate(task.values("text")) if not text.endswith("7")])


@processing_stage(name="tokenizer", resources=Resources(cpus=1))
def tokenizer_stage(task: DocumentBatch) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with `input/`: three files of four documents."""
    (tmp_path / "input").mkdir()
    for number in range(3):
        lines = [json.dumps({"text": text}) for text in TEXTS[number * 4 : number * 4 + 4]]
        (tmp_path / "input" / f"part{number}.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output_of(folder: Path) -> list[dict[str, object]]:
    files = sorted((folder / "output").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def texts_in(folder: Path) -> list[object]:
    return sorted(record["text"] for record in output_of(folder))  # type: ignore[type-var]  # texts are strings


def test_a_pipeline_from_reader_to_writer_runs_without_more_ado(folder: Path) -> None:
    pipeline = Pipeline(name="my_pipeline", description="Process text documents")
    pipeline.add_stage(JsonlReader(file_paths="input/"))
    pipeline.add_stage(JsonlWriter(path="output/"))
    pipeline.run()
    assert texts_in(folder) == sorted(TEXTS)


def test_batch_size_is_set_on_a_stage() -> None:
    word_count_stage = WordCountStage().with_(batch_size=128)
    assert word_count_stage.batch_size == 128
    assert WordCountStage().batch_size == 1


def test_a_stage_with_several_tasks_per_call_runs(folder: Path) -> None:
    pipeline = Pipeline(name="words")
    pipeline.add_stage(JsonlReader(file_paths="input/", files_per_partition=1))
    pipeline.add_stage(WordCountStage().with_(batch_size=128))
    pipeline.add_stage(JsonlWriter(path="output/"))
    pipeline.run(executor=SerialExecutor())
    assert [record["words"] for record in output_of(folder)] == [3] * 12


def test_resources_are_declared_for_cpus_one_gpu_and_several() -> None:
    cpu_only_resources = Resources(cpus=2.0)
    single_gpu_resources = Resources(cpus=4.0, gpu_memory_gb=8.0)
    multi_gpu_resources = Resources(cpus=8.0, gpus=2.0)
    pipeline = Pipeline("resources")
    pipeline.add_stage(TokenizerStage().with_(resources=cpu_only_resources))
    pipeline.add_stage(ModelStage("m").with_(name="single", resources=single_gpu_resources))
    pipeline.add_stage(ModelStage("m").with_(name="multi", resources=multi_gpu_resources))
    assert [stage.resources.requires_gpu for stage in pipeline.stages] == [False, True, True]
    assert pipeline.stages[1].resources.gpu_memory_gb == 8.0
    assert pipeline.stages[2].resources.gpus == 2.0


def test_fractions_and_memory_of_an_accelerator_are_legal() -> None:
    model_stage = ModelStage(model_path="path/to/model").with_(resources=Resources(gpus=0.25))
    assert model_stage.resources.gpus == 0.25
    model_stage = ModelStage(model_path="path/to/model").with_(resources=Resources(gpu_memory_gb=10))
    assert model_stage.resources.gpu_memory_gb == 10


def test_an_executor_takes_its_settings_as_a_config(folder: Path) -> None:
    executor = LocalExecutor(
        config={
            "execution_mode": "streaming",  # or "batch"
            "cpu_allocation_percentage": 0.95,
            "autoscale_interval_s": 180,
            "logging_interval": 60,
        }
    )
    pipeline = Pipeline("configured", stages=[JsonlReader("input/"), JsonlWriter("output/")])
    result = pipeline.run(executor=executor)
    assert result.counts["written"] == 12


def test_a_stage_on_an_accelerator_is_refused_where_there_are_none(folder: Path) -> None:
    model_stage = ModelStage(model_path="path/to/model").with_(resources=Resources(gpus=1))
    pipeline = Pipeline("model", stages=[JsonlReader("input/"), model_stage, JsonlWriter("output/")])
    with pytest.raises(PlanError, match="gpus=1"):
        pipeline.run()
    assert not (folder / "output").exists()


def test_stages_and_functions_run_in_one_pipeline(folder: Path) -> None:
    model_stage = ModelStage(model_path="path/to/model").with_(resources=Resources(gpus=1))
    pipeline = Pipeline("mixed")
    pipeline.add_stage(JsonlReader(file_paths="input/"))
    pipeline.add_stage(TokenizerStage())
    pipeline.add_stage(custom_filter_stage)
    pipeline.add_stage(model_stage)
    pipeline.add_stage(JsonlWriter(path="output/"))
    result = pipeline.run(executor=LocalExecutor(workers=1, gpus=1))
    assert texts_in(folder) == sorted(set(TEXTS) - {"document number 7"})
    assert output_of(folder)[0] == {
        "text": "document number 0",
        "tokens": ["document", "number", "0"],
        "model": "path/to/model",
    }
    assert result.drop_reasons == {"custom_filter/filtered": 1}


def test_a_function_that_returns_nothing_drops_its_documents(folder: Path) -> None:
    pipeline = Pipeline("nothing", stages=[JsonlReader("input/"), tokenizer_stage, JsonlWriter("output/")])
    result = pipeline.run(executor=SerialExecutor())
    assert output_of(folder) == []
    assert (result.counts["dropped"], result.counts["written"]) == (12, 0)


def test_files_are_grouped_by_number_or_size(folder: Path) -> None:
    reader = JsonlReader(file_paths="input/", files_per_partition=50)
    pipeline = Pipeline("grouped", stages=[reader, ParquetWriter("parquet_input/")])
    assert pipeline.run(executor=SerialExecutor()).units_total == 1
    again = ParquetReader(file_paths="parquet_input/", files_per_partition=50)
    result = Pipeline("back", stages=[again, JsonlWriter("output/")]).run(executor=SerialExecutor())
    assert result.counts["written"] == 12
    assert sorted(str(record["text"]) for record in output_of(folder)) == sorted(TEXTS)
    assert sum(pq.read_metadata(file).num_rows for file in (folder / "parquet_input").glob("*.parquet")) == 12
