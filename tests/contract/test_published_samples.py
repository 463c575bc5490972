# SPDX-License-Identifier: Apache-2.0
"""The samples of NeMo Curator's pages on streaming, memory, executors and resources run here as they are printed there.

Each sample is the code of a page, with stand-ins for the classes that it leaves to the reader. `docs/seeds.md` lists
the statements of these pages and what shows that they hold here.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.compat_names import nemo_names
from tests.contract.ray_rows import OWN_WARNINGS, need_ray
from thresher import LocalExecutor, SerialExecutor
from thresher.core.registry import load_executor
from thresher.errors import PlanError

pytestmark = pytest.mark.usefixtures("nemo_names")
__all__ = ["nemo_names"]

TEXTS = [f"document number {number} of a few" for number in range(12)]
GPU_ROWS = ("local", "ray", "actor-pool", "ray-data", "xenna")


def on(*always: str) -> list[Any]:
    """Return the rows of executors; `make test` runs those of this machine and the named ones."""
    return [
        pytest.param(name, marks=[OWN_WARNINGS, *([] if name in ("local", *always) else [pytest.mark.slow])])
        for name in GPU_ROWS
    ]


STAND_INS = """
from nemo_curator.stages.base import ProcessingStage
from nemo_curator.stages.resources import Resources
from nemo_curator.tasks import DocumentBatch

class StandIn(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, column="seen"):
        super().__init__()
        self.column = column

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.replace(self.column, [len(text.split()) for text in task.values("text")])

class WordCountStage(StandIn): ...
class MyCpuStage(StandIn): ...
class MySingleGpuStage(StandIn): ...
class MyMultiGpuStage(StandIn): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with `input/` and `jsonl_input/` of three files with four documents each."""
    for name in ("input", "jsonl_input"):
        (tmp_path / name).mkdir()
        for number in range(3):
            lines = [json.dumps({"text": text}) for text in TEXTS[number * 4 : number * 4 + 4]]
            (tmp_path / name / f"part{number}.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return a function that runs code on an executor, whichever the code asks for, and gives what it has defined."""

    def run(code: str, executor: str = "", **given: Any) -> dict[str, Any]:
        if executor:
            if executor != "local":
                need_ray(executor)
            monkeypatch.setenv("THRESHER_COMPAT_EXECUTOR", executor)
        names = {"__name__": "published_sample", **given}
        exec(compile(textwrap.dedent(STAND_INS), "stand-ins", "exec"), names)
        exec(compile(textwrap.dedent(code), "sample", "exec"), names)
        return names

    return run


def with_accelerators(name: str) -> Any:
    """Return an executor with two declared accelerators."""
    if name == "local":
        return LocalExecutor(workers=1, gpus=2)
    need_ray(name)  # the Ray of this suite declares two
    return load_executor(name)()


def written(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# -- streaming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", on("ray-data"), scope="module")
def test_streaming_batch_size_of_a_stage(
    folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str
) -> None:
    names = run_sample(
        """
        from nemo_curator.stages.resources import Resources
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.text.io import JsonlReader, JsonlWriter

        # Configure batch size on a stage
        word_count_stage = WordCountStage().with_(batch_size=128)

        results = Pipeline("words", stages=[JsonlReader("input/"), word_count_stage, JsonlWriter("output/")]).run()
        """,
        executor,
    )
    assert names["word_count_stage"].batch_size == 128
    assert [record["seen"] for record in written(folder / "output")] == [6] * 12


# -- memory -----------------------------------------------------------------------------------------------------------

COMPOSITION = """
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.io import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter

pipeline = Pipeline(
    name="my_pipeline",
    description="Process text documents"
)
pipeline.add_stage(JsonlReader(file_paths="input/"))
pipeline.add_stage(JsonlWriter(path="output/"))

# Execute the pipeline
pipeline.run()
"""


@pytest.mark.parametrize("executor", on("ray", "actor-pool"), scope="module")
def test_memory_pipeline_composition(folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str) -> None:
    run_sample(COMPOSITION, executor)
    assert sorted(record["text"] for record in written(folder / "output")) == sorted(TEXTS)


RESOURCES = """
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.resources import Resources
from nemo_curator.stages.text.io import JsonlReader, JsonlWriter

pipeline = Pipeline("resources").add_stage(JsonlReader("input/"))

# CPU-only stage
cpu_only_resources = Resources(cpus=2.0)
pipeline.add_stage(MyCpuStage("cpu").with_(resources=cpu_only_resources))

# GPU stage with memory requirement
single_gpu_resources = Resources(
    cpus=4.0,
    gpu_memory_gb=8.0
)
pipeline.add_stage(MySingleGpuStage("single").with_(resources=single_gpu_resources))

# Multi-GPU stage
multi_gpu_resources = Resources(
    cpus=8.0,
    gpus=2.0
)
pipeline.add_stage(MyMultiGpuStage("multi").with_(resources=multi_gpu_resources))
pipeline.add_stage(JsonlWriter("output/"))
"""


def test_memory_resource_declaration_runs_on_declared_accelerators(
    folder: Path, run_sample: Callable[..., dict[str, Any]]
) -> None:
    """Two stages hold three accelerators between them: half of one, and two whole ones."""
    pipeline = run_sample(RESOURCES)["pipeline"]
    executor = LocalExecutor(workers=1, gpus=[{"memory_gb": 16}] * 3)
    pipeline.run(executor)
    assert {tuple(record) for record in written(folder / "output")} == {("text", "cpu", "single", "multi")}


def test_memory_resource_declaration_is_refused_without_accelerators(
    folder: Path, run_sample: Callable[..., dict[str, Any]]
) -> None:
    with pytest.raises(PlanError, match="gpus=2"):
        run_sample(RESOURCES)["pipeline"].run(LocalExecutor(gpus=0))
    assert not (folder / "output").exists()


@pytest.mark.parametrize("executor", on(), scope="module")
def test_memory_executor_backends(folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str) -> None:
    """Rows of other executors than Xenna take the settings that they have."""
    run_sample(
        COMPOSITION.replace("pipeline.run()", "")
        + """
from nemo_curator.backends.xenna import XennaExecutor

executor = XennaExecutor(config={
    "execution_mode": "streaming",  # or "batch"
    "cpu_allocation_percentage": 0.95,  # Reserve 5% for system
    "autoscale_interval_s": 180,  # Adjust workers every 3 minutes
    "logging_interval": 60  # Log status every minute
})

pipeline.run(executor=executor)
""",
        executor,
    )
    assert len(written(folder / "output")) == 12


def test_memory_batch_processing_of_json_lines_and_parquet(
    folder: Path, run_sample: Callable[..., dict[str, Any]]
) -> None:
    names = run_sample(
        """
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.text.io.reader import JsonlReader
        from nemo_curator.stages.text.io.writer import JsonlWriter, ParquetWriter

        # Read with controlled partition sizes
        reader = JsonlReader(
            file_paths="jsonl_input/",
            files_per_partition=50,  # Process 50 files at a time
            # blocksize="1GB"  # Alternative: control memory usage per data batch
        )
        first = Pipeline("to-parquet", stages=[reader, ParquetWriter("parquet_input/")]).run(serial)

        from nemo_curator.stages.text.io.reader import ParquetReader

        # Read with controlled partition sizes
        reader = ParquetReader(
            file_paths="parquet_input/",
            files_per_partition=50,  # Process 50 files at a time
            # blocksize="1GB"  # Alternative: control memory usage per data batch
        )
        second = Pipeline("back", stages=[reader, JsonlWriter("output/")]).run(serial)
        """,
        serial=SerialExecutor(),
    )
    assert (names["first"].units_total, names["second"].units_total) == (1, 1)
    assert sorted(record["text"] for record in written(folder / "output")) == sorted(TEXTS)


def test_memory_exact_deduplication(folder: Path, run_sample: Callable[..., dict[str, Any]]) -> None:
    """Nothing but the list of duplicates is written, as there; there are two copies of every document."""
    (folder / "input" / "copies").mkdir()
    for path in list((folder / "input").glob("*.jsonl")):
        (folder / "input" / "copies" / path.name).write_bytes(path.read_bytes())
    names = run_sample(
        """
        from nemo_curator.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow

        # Control memory usage in deduplication
        dedup = ExactDeduplicationWorkflow(
            input_path="input/",
            output_path="output/",
            text_field="text",
            input_blocksize="1GB"  # Control memory usage per input block
        )
        result = dedup.run(serial)
        """,
        serial=SerialExecutor(),
    )
    assert names["result"].get_metadata("num_duplicates") == 12
    assert list((folder / "output" / "ExactDuplicateIds").glob("*.parquet"))


def test_memory_classifier_batch_sizes(run_sample: Callable[..., dict[str, Any]]) -> None:
    names = run_sample(
        """
        from nemo_curator.stages.text.classifiers import QualityClassifier

        # Manage classifier memory
        classifier = QualityClassifier(
            model_inference_batch_size=64,  # Smaller batches use less memory (default: 256)
            max_chars=3000  # Limit text length to reduce memory usage (default: 6000)
        )
        """
    )
    assert (names["classifier"].model_inference_batch_size, names["classifier"].max_chars) == (64, 3000)


# -- executors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", on("actor-pool"), scope="module")
def test_executors_basic_usage_pattern(folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str) -> None:
    """The pipeline is defined once, and any executor runs it."""
    chosen = with_accelerators(executor)
    names = run_sample(
        """
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.text.io import JsonlReader, JsonlWriter

        pipeline = Pipeline(name="example_pipeline", description="Curator pipeline")
        pipeline.add_stage(JsonlReader("input/")).add_stage(JsonlWriter("output/"))

        # Choose an executor below and run
        executor = chosen
        results = pipeline.run(executor)
        """,
        chosen=chosen,
    )
    assert names["results"].counts["written"] == 12


def test_executors_fuzzy_deduplication(folder: Path, run_sample: Callable[..., dict[str, Any]]) -> None:
    """One of the documents that differ in a word stays; the workflow needs no accelerator."""
    names = run_sample(
        """
        from nemo_curator.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow

        workflow = FuzzyDeduplicationWorkflow(
            input_path="documents",
            cache_path="cache",
            output_path="output",
            text_field="text",
            perform_removal=True,
            num_bands=20,
            minhashes_per_band=13,
        )
        """
    )
    long = " ".join(f"word{number}" for number in range(300))
    (folder / "documents").mkdir()
    texts = [long, long + " more", "something else " * 30]
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / "documents" / "a.jsonl").write_text("\n".join(lines) + "\n")
    results = names["workflow"].run(SerialExecutor())
    assert results.counts["written"] == 2
    assert [record["text"] for record in written(folder / "output")] == [texts[0], texts[2]]


@pytest.mark.parametrize("executor", on(), scope="module")
def test_executors_ray_data(folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str) -> None:
    names = run_sample(
        COMPOSITION.replace("pipeline.run()", "")
        + """
from nemo_curator.backends.experimental.ray_data import RayDataExecutor

executor = RayDataExecutor()
results = pipeline.run(executor)
""",
        executor,
    )
    assert len(names["results"]) == len(list((folder / "output").glob("*.jsonl")))


@pytest.mark.parametrize("executor", on(), scope="module")
def test_executors_minimal_end_to_end(
    folder: Path,
    run_sample: Callable[..., dict[str, Any]],
    executor: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_sample(
        """
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.backends.xenna import XennaExecutor
        from nemo_curator.stages.text.io import JsonlReader

        # Build your pipeline
        pipeline = Pipeline(name="curator_pipeline")
        pipeline.add_stage(JsonlReader("input/", files_per_partition=1))
        pipeline.add_stage(WordCountStage())

        # Run with Xenna (recommended)
        executor = XennaExecutor(config={"execution_mode": "streaming"})
        results = pipeline.run(executor)

        print(f"Completed with {len(results) if results else 0} output tasks")
        """,
        executor,
    )
    assert "Completed with 3 output tasks" in capsys.readouterr().out


# -- resources --------------------------------------------------------------------------------------------------------

STAGES_WITH_RESOURCES = """
from nemo_curator.stages.core import ProcessingStage
from nemo_curator.stages.function_definitions import processing_stage
from nemo_curator.stages.resources import Resources
from nemo_curator.tasks import DocumentBatch


class TokenizerStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "TokenizerStage"
    resources: Resources = Resources(cpus=1.0)  # CPU-only, no GPU needed

    def __init__(self):
        super().__init__()
        # ... stage logic ...

    def process(self, task):
        return task.replace("tokens", [text.split() for text in task.values("text")])


class ModelStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    name: str = "ModelStage"

    def __init__(self, model_path: str):
        super().__init__()
        # ... stage logic ...
        self.model_path = model_path

    def process(self, task):
        return task.replace("model", [self.model_path] * task.num_items)


@processing_stage(name="custom_filter", resources=Resources(cpus=1))
def custom_filter_stage(task: DocumentBatch) -> DocumentBatch:
    # ... filter logic ...
    return task.take([row for row, text in enumerate(task.values("text")) if " 7 " not in text])


# CPU-only: tokenization, filtering, I/O
@processing_stage(name="tokenizer", resources=Resources(cpus=1))
def tokenizer_stage(task: DocumentBatch) -> DocumentBatch:
    pass


model_stage = ModelStage(model_path="path/to/model").with_(resources=Resources(gpus=1))
"""
PIPELINE = """
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.io import JsonlReader, JsonlWriter

pipeline = Pipeline("mixed")
for stage in (JsonlReader("input/"), TokenizerStage(), custom_filter_stage, model_stage, JsonlWriter("output/")):
    pipeline.add_stage(stage)
"""


@pytest.mark.parametrize("executor", on("ray"), scope="module")
def test_resources_of_stages_and_functions_on_an_accelerator(
    folder: Path, run_sample: Callable[..., dict[str, Any]], executor: str
) -> None:
    pipeline = run_sample(STAGES_WITH_RESOURCES + PIPELINE)["pipeline"]
    result = pipeline.run(with_accelerators(executor))
    assert len(written(folder / "output")) == 11
    assert written(folder / "output")[0]["model"] == "path/to/model"
    assert result.drop_reasons == {"custom_filter/filtered": 1}


def test_resources_a_function_whose_body_is_left_out_drops_its_documents(
    folder: Path, run_sample: Callable[..., dict[str, Any]]
) -> None:
    names = run_sample(STAGES_WITH_RESOURCES + PIPELINE)
    pipeline = names["Pipeline"](
        "nothing", stages=[names["JsonlReader"]("input/"), names["tokenizer_stage"], names["JsonlWriter"]("output/")]
    )
    result = pipeline.run(SerialExecutor())
    assert (result.counts["dropped"], result.counts["written"]) == (12, 0)


FRACTIONS = """
# 4 workers share one GPU via fractional allocation
shared = ModelStage(model_path="path/to/model").with_(resources=Resources(gpus=0.25), name="shared")

# Or reserve a specific amount of GPU memory
reserved = ModelStage(model_path="path/to/model").with_(resources=Resources(gpu_memory_gb=10), name="reserved")
"""


def test_resources_fractions_and_memory_of_an_accelerator(
    folder: Path, run_sample: Callable[..., dict[str, Any]]
) -> None:
    names = run_sample(STAGES_WITH_RESOURCES + PIPELINE + FRACTIONS)
    stages = [names["JsonlReader"]("input/"), names["shared"], names["reserved"], names["JsonlWriter"]("output/")]
    pipeline = names["Pipeline"]("fractions", stages=stages)
    result = pipeline.run(LocalExecutor(workers=1, gpus=[{"memory_gb": 24}]))
    assert result.counts["written"] == 12
    with pytest.raises(PlanError, match="gpu_memory_gb"):
        pipeline.run(LocalExecutor(workers=1, gpus=[{"memory_gb": 8}]), fresh=True)
