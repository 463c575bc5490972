# SPDX-License-Identifier: Apache-2.0
"""Scripts for NeMo Curator run as they are: unchanged, with modules of their own, with what they write the same as that
of a script for Thresher."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from thresher import JsonlReader, JsonlWriter, Pipeline, ScoreFilter, SerialExecutor, WordCountFilter

HELPER = """\
from dataclasses import dataclass
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.filters import DocumentFilter
from nemo_curator.tasks import DocumentBatch, FailedTask, NoneTask


@dataclass
class AddLength(ProcessingStage[DocumentBatch, DocumentBatch]):
    field: str = "length"
    name: str = "add_length"
    resources: Resources = Resources(cpus=1.0)
    batch_size: int = 2

    def inputs(self):
        return ["data"], ["text"]

    def outputs(self):
        return ["data"], [self.field]

    def process(self, task):
        self._log_metric("batches", 1)
        with self._time_metric("pandas"):
            frame = task.to_pandas()
            frame[self.field] = frame["text"].str.len()
        return DocumentBatch(task_id=task.task_id, dataset_name=task.dataset_name, data=frame)


class OddLength(DocumentFilter):
    def __init__(self):
        super().__init__()
        self._name = "odd_length"

    def score_document(self, text):
        return len(text) % 2

    def keep_document(self, score):
        return score == 1


class Choosy(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, answer):
        self.answer = answer

    def process(self, task):
        return {"none": NoneTask(), "failed": FailedTask(), "same": task}[self.answer]
"""
SCRIPT = """\
import argparse
from nemo_curator.backends.xenna import XennaExecutor
from nemo_curator.core.client import RayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import ScoreFilter
from nemo_curator.stages.text.filters.heuristic.string import WordCountFilter
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter
from nemo_curator.stages.text.modifiers import Modify, UrlRemover
from nemo_curator.tasks.utils import TaskPerfUtils
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.function_decorators import processing_stage
from nemo_curator.tasks import DocumentBatch
from helper import AddLength, OddLength


class Mark(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task):
        return task.replace("mark", [MARK] * task.num_items)


@processing_stage(name="check", resources={"cpus": 1.0})
def check(task: DocumentBatch) -> DocumentBatch:
    assert set(task.values("mark")) <= {MARK}
    return task


MARK = "seen"


def main(args):
    client = RayClient(num_cpus=2)
    client.start()
    pipeline = Pipeline(name="ported", description="Filters and measures texts.")
    pipeline.add_stage(JsonlReader(file_paths=args.input, files_per_partition=1, fields=["id", "text"]))
    pipeline.add_stage(ScoreFilter(WordCountFilter(min_words=10), text_field="text", score_field="words", name="long"))
    pipeline.add_stage(Modify(UrlRemover(), input_fields="text"))
    pipeline.add_stage(ScoreFilter(OddLength()))
    pipeline.add_stage(Mark())
    pipeline.add_stage(check)
    pipeline.add_stage(AddLength().with_(batch_size=1, ray_stage_spec={"max_workers": 4}))
    pipeline.add_stage(JsonlWriter(path=args.output, write_kwargs={"force_ascii": False}))
    print(pipeline.describe())
    tasks = pipeline.run(XennaExecutor(config={"execution_mode": "streaming", "logging_interval": 60}))
    client.stop()
    figures = TaskPerfUtils.aggregate_task_metrics(tasks, prefix="run")
    print("tasks", len(tasks), "items", figures["run_add_length_num_items_processed_sum"])
    print("batches", TaskPerfUtils.get_aggregated_stage_stat(tasks, "add", "custom.batches"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input")
    parser.add_argument("--output")
    main(parser.parse_args())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script, a module of its own, and three files of input."""
    (tmp_path / "input").mkdir()
    for number in range(3):
        texts = [f"document {number} {n} " + "word " * n for n in range(40)]
        lines = [json.dumps({"id": f"{number}-{n}", "text": text}) for n, text in enumerate(texts)]
        (tmp_path / "input" / f"part{number}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def run_script(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def records_in(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


ARGUMENTS = ("script.py", "--input", "input", "--output", "output")


def test_a_script_runs_unchanged_and_its_workers_import_its_modules(folder: Path) -> None:
    ended = run_script(folder, "-m", "thresher.compat", "--executor", "local", *ARGUMENTS)
    assert ended.returncode == 0, ended.stderr
    kept = records_in(folder / "output")
    assert f"items {len(kept)}.0" in ended.stdout
    assert "tasks 3" in ended.stdout
    assert "batches 3.0" in ended.stdout
    assert all(len(str(record["text"])) == record["length"] and record["length"] % 2 for record in kept)  # type: ignore[operator]  # a number
    assert {len(str(record["text"]).split()) >= 10 for record in kept} == {True}
    assert list(kept[0]) == ["id", "text", "words", "mark", "length"]


def test_one_variable_in_the_environment_is_enough(folder: Path) -> None:
    """The script imports nothing of Thresher; a line `import thresher` in front, or a site hook, loads the finder."""
    settings = {"THRESHER_COMPAT": "nemo_curator", "THRESHER_COMPAT_EXECUTOR": "serial"}
    first = "import sys, runpy, thresher; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    ended = run_script(folder, "-c", first, *ARGUMENTS, **settings)
    assert ended.returncode == 0, ended.stderr
    assert len(records_in(folder / "output")) > 0


@pytest.mark.slow
def test_the_executor_that_a_script_asks_for_writes_the_same_bytes(folder: Path) -> None:
    run_script(folder, "-m", "thresher.compat", "--executor", "serial", *ARGUMENTS)
    written = {path.name: path.read_bytes() for path in (folder / "output").glob("*.jsonl")}
    ended = run_script(folder, "-m", "thresher.compat", *ARGUMENTS[:-1], "output-of-xenna")
    assert ended.returncode == 0, ended.stderr
    assert written == {path.name: path.read_bytes() for path in (folder / "output-of-xenna").glob("*.jsonl")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py: there is no such script"),
        (["--executor", "dask", "script.py"], "'dask' is not an executor"),
        (["--other", "script.py"], "'--other' is not a flag of thresher.compat"),
        ([], "name the script"),
    ],
)
def test_a_wrong_command_is_refused(folder: Path, arguments: list[str], message: str) -> None:
    ended = run_script(folder, "-m", "thresher.compat", *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr


STAGES = """\
import sys
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.file_partitioning import FilePartitioningStage
from nemo_curator.stages.text.io.reader.jsonl import JsonlReaderStage
from nemo_curator.stages.text.io.writer import JsonlWriter
from helper import Choosy

pipeline = Pipeline("parts")
pipeline.add_stage(FilePartitioningStage(file_paths="input", files_per_partition=2, limit=None))
pipeline.add_stage(JsonlReaderStage(fields=["id", "text"], read_kwargs={"lines": True}))
pipeline.add_stage(Choosy(sys.argv[1]))
pipeline.add_stage(JsonlWriter("parts"))
result = pipeline.run(max_errors="100%")
assert result.to_dict()["executor"] == "serial"
print(len(result), result.counts["written"], result.counts["quarantined"])
"""


@pytest.mark.parametrize(
    ("answer", "printed"),
    [("same", "2 120 0"), ("none", "0 0 0"), ("failed", "0 0 120")],
)
def test_files_are_grouped_and_read_in_two_stages_and_sentinels_drop_or_fail(
    folder: Path, answer: str, printed: str
) -> None:
    (folder / "parts.py").write_text(STAGES)
    ended = run_script(folder, "-m", "thresher.compat", "--executor", "serial", "parts.py", answer)
    assert (ended.returncode, ended.stdout.strip()) == (0, printed), ended.stderr


OWN_TASKS = """\
from dataclasses import field

import pandas as pd

from nemo_curator.backends.base import NodeInfo, WorkerMetadata
from nemo_curator.core.client import SlurmRayClient
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.tasks import EmptyTask, Task


class Sentences(Task[pd.DataFrame]):
    data: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def num_items(self) -> int:
        return len(self.data)

    def validate(self) -> bool:
        return True


class Create(ProcessingStage[EmptyTask, Sentences]):
    name: str = "Create"

    def __init__(self, tasks: int):
        self.tasks = tasks

    def inputs(self):
        return [], []

    def outputs(self):
        return ["data"], ["sentence"]

    def process(self, _: EmptyTask) -> list[Sentences]:
        frames = [pd.DataFrame({"sentence": [f"sentence {n}", "another one"]}) for n in range(self.tasks)]
        return [Sentences(data=frame, dataset_name="sample") for frame in frames]


class Count(ProcessingStage[Sentences, Sentences]):
    name: str = "Count"
    resources: Resources = Resources(cpus=1.0)

    def process(self, task: Sentences) -> Sentences:
        task.data["words"] = task.data["sentence"].str.split().str.len()
        return task


class Model(ProcessingStage[Sentences, Sentences]):
    name: str = "Model"
    resources: Resources = Resources(cpus=1.0, gpu_memory_gb=10.0)

    def __init__(self, batch_size: int):
        self.batch_size = batch_size

    def setup_on_node(self, node_info: NodeInfo, _: WorkerMetadata) -> None:
        assert node_info.node_id

    def setup(self, _: WorkerMetadata) -> None:
        self.model = len

    def process_batch(self, tasks: list[Sentences]) -> list[Sentences]:
        made = []
        for task in tasks:
            frame = task.data.copy()
            frame["length"] = [self.model(text) for text in frame["sentence"]]
            made.append(Sentences(data=frame, dataset_name=task.dataset_name))
        return made

    def process(self, task: Sentences) -> Sentences:
        return self.process_batch([task])[0]


client = SlurmRayClient()
client.start()
pipeline = Pipeline(name="own_tasks", description="tasks of a type of the script's own")
pipeline.add_stage(Create(tasks=7)).add_stage(Count()).add_stage(Model(batch_size=2))
results = pipeline.run()
print(len(results), sorted(results[0].data.columns), isinstance(results[0], Task))
client.stop()
"""


@pytest.mark.parametrize("executor", ["serial", pytest.param("actor-pool", marks=pytest.mark.slow)])
def test_tasks_of_the_scripts_own_type_travel(folder: Path, executor: str) -> None:
    (folder / "own_tasks.py").write_text(
        OWN_TASKS.replace("SlurmRayClient()", "SlurmRayClient(num_cpus=2, num_gpus=1)")
    )
    ended = run_script(folder, "-m", "thresher.compat", "--executor", executor, "own_tasks.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().endswith("7 ['length', 'sentence', 'words'] True")


DOWNLOADS = """\
import os
import shutil

from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.download import (
    DocumentDownloader,
    DocumentDownloadExtractStage,
    DocumentExtractor,
    DocumentIterator,
    URLGenerator,
)
from nemo_curator.stages.text.io.writer import JsonlWriter


class Urls(URLGenerator):
    def generate_urls(self):
        return [f"far://stories/{name}.txt" for name in ("one", "two", "missing", "later")]


class Copy(DocumentDownloader):
    def _get_output_filename(self, url):
        return os.path.basename(url)

    def _download_to_path(self, url, path):
        if "missing" in url:
            return False, "not there"
        shutil.copy(os.path.join("far", os.path.basename(url)), path)
        return True, None


class Stories(DocumentIterator):
    def __init__(self):
        super().__init__()

    def iterate(self, file_path):
        with open(file_path) as file:
            for line in file:
                yield {"raw": line.strip()}

    def output_columns(self):
        return ["raw"]


class Upper(DocumentExtractor):
    def extract(self, record):
        return {"text": record["raw"].upper()} if record["raw"] else None

    def input_columns(self):
        return ["raw"]

    def output_columns(self):
        return ["text"]


class StoryStage(DocumentDownloadExtractStage):
    def __init__(self, folder):
        self.name = "stories"
        super().__init__(
            url_generator=Urls(), downloader=Copy(folder), iterator=Stories(), extractor=Upper(), url_limit=3
        )


pipeline = Pipeline("stories", stages=[StoryStage("raw"), JsonlWriter("stories")])
result = pipeline.run(max_errors="100%")
print(result.counts["written"], result.counts["quarantined"], len(result))
"""


def test_a_download_that_a_script_describes_is_fetched_url_by_url(folder: Path) -> None:
    """One of three URLs fails: it is quarantined, and the others are written; a second run fetches nothing again."""
    (folder / "far").mkdir()
    for name in ("one", "two", "later"):
        (folder / "far" / f"{name}.txt").write_text(f"{name} a\n\n{name} b\n")
    (folder / "download.py").write_text(DOWNLOADS)
    command = ("-m", "thresher.compat", "--executor", "serial", "download.py")
    ended = run_script(folder, *command)
    assert (ended.returncode, ended.stdout.strip()) == (0, "4 1 2"), ended.stderr
    assert records_in(folder / "stories") == [
        {"text": f"{name.upper()} {letter}", "file_name": f"{name}.txt"} for name in ("one", "two") for letter in "AB"
    ]
    assert sorted(path.name for path in (folder / "raw").iterdir()) == ["one.txt", "two.txt"]
    shutil.rmtree(folder / "far")
    assert "4 1 2" in run_script(folder, *command).stdout


DUPLICATES = """\
from nemo_curator.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from nemo_curator.stages.text.deduplication import TextDuplicatesRemovalWorkflow

ExactDeduplicationWorkflow(
    input_path="input", output_path="found", input_filetype="jsonl", text_field="text", perform_removal=False,
    input_blocksize="1GiB", assign_id=True, rmm_pool_size="auto",
).run()
TextDuplicatesRemovalWorkflow(
    input_path="input", ids_to_remove_path="found/ExactDuplicateIds", output_path="unique", input_filetype="jsonl",
    output_filetype="jsonl", id_field="_curator_dedup_id", duplicate_id_field="_curator_dedup_id",
    id_generator_path="found/exact_id_generator.json",
).run()
"""


def test_duplicates_are_listed_and_removed_in_two_runs(folder: Path) -> None:
    first = (folder / "input" / "part0.jsonl").read_text()
    (folder / "input" / "part9.jsonl").write_text(first)
    (folder / "dedup.py").write_text(DUPLICATES)
    ended = run_script(folder, "-m", "thresher.compat", "dedup.py")
    assert ended.returncode == 0, ended.stderr
    assert len(records_in(folder / "unique")) == 120
    assert sum(pq.read_metadata(path).num_rows for path in (folder / "found").rglob("*.parquet")) >= 40


def test_a_configuration_of_theirs_writes_what_a_recipe_writes(folder: Path) -> None:
    text = "nemo_curator.stages.text"
    config = {
        "input_path": "???",
        "output_path": "???",
        "stages": [
            {
                "_target_": f"{text}.io.reader.JsonlReader",
                "file_paths": "${input_path}",
                "blocksize": None,
                "files_per_partition": 1,
            },
            {
                "_target_": f"{text}.filters.score_filter.ScoreFilter",
                "filter_obj": {"_target_": f"{text}.filters.heuristic.string.WordCountFilter", "min_words": 20},
            },
            {"_target_": f"{text}.io.writer.JsonlWriter", "path": "${output_path}"},
        ],
    }
    (folder / "theirs.yaml").write_text(yaml.safe_dump(config))
    command = ("-m", "thresher", "run", "theirs.yaml", "input_path=input", "output_path=by-config")
    ended = run_script(folder, *command, "--executor", "serial", "--quiet")
    assert ended.returncode == 0, ended.stderr
    stages = [
        JsonlReader(str(folder / "input"), files_per_partition=1),
        ScoreFilter(WordCountFilter(min_words=20)),
        JsonlWriter(str(folder / "own")),
    ]
    Pipeline("own", stages=stages).run(SerialExecutor(), progress="none")
    written = {path.name: path.read_bytes() for path in (folder / "by-config").glob("*.jsonl")}
    assert written == {path.name: path.read_bytes() for path in (folder / "own").glob("*.jsonl")}
    assert len(written) == 3


IN_PLACE = """\
from dataclasses import dataclass, field

import pandas as pd
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.function_decorators import processing_stage
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.tasks import DocumentBatch, Task


@dataclass
class Sample(Task[pd.DataFrame]):
    data: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def num_items(self) -> int:
        return len(self.data)

    def validate(self) -> bool:
        return True


class Length(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "length"
    resources = Resources(1.0, 0.0, 0.0)

    def process(self, batch):
        batch.data["length"] = batch.data["text"].str.len()
        return batch


@processing_stage(name="double")
def double(batch: DocumentBatch) -> DocumentBatch:
    batch.data["double"] = 2 * batch.data["length"]
    return batch


@processing_stage(name="mark")
def mark(task: Sample) -> Sample:
    task.data["marked"] = True
    return task


results = Pipeline("frames", "d", [JsonlReader(file_paths="in"), Length().with_(batch_size=2), double]).run()
print([record for task in results for record in task.to_pandas().to_dict("records")])
(sample,) = Pipeline(name="samples", stages=[mark]).run(None, [Sample(dataset_name="d", data=pd.DataFrame({"a": [1]}))])
print(sample.data.to_dict("records"))
"""


def test_what_a_script_writes_to_data_frames_in_place_is_kept(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "abc"}\n')
    (tmp_path / "script.py").write_text(IN_PLACE)
    command = [sys.executable, "-m", "thresher.compat", "script.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["[{'text': 'abc', 'length': 3, 'double': 6}]", "[{'a': 1, 'marked': True}]"]
