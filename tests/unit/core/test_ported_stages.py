# SPDX-License-Identifier: Apache-2.0
"""Stages, tasks and scripts that were written for NeMo Curator run as they are, but for their import lines."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pytest

from thresher import (
    CompositeStage,
    DocumentBatch,
    DocumentFilter,
    DocumentModifier,
    EmptyTask,
    FileGroupTask,
    Filter,
    JsonlReader,
    LocalExecutor,
    Modify,
    Pipeline,
    ProcessingStage,
    Resources,
    RunResult,
    Score,
    ScoreFilter,
    SerialExecutor,
    Task,
    TokenCounter,
    TokenCountFilter,
    WordCountFilter,
    WorkerMetadata,
    processing_stage,
)
from thresher.errors import PlanError, TooManyErrorsError, UnsupportedError, UsageError

RECORDS = [{"text": "one two", "n": 1, "m": 10}, {"text": "three", "n": 2, "m": 20}, {"text": "x", "n": 3, "m": 30}]


def run(*stages: Any, tasks: Any = None, **options: Any) -> RunResult:
    tasks = [DocumentBatch(pd.DataFrame(RECORDS))] if tasks is None else tasks
    pipeline = Pipeline("ported", stages=stages)
    return pipeline.run(SerialExecutor(), tasks, progress="none", **{"ledger": False, **options})


def rows(result: RunResult) -> list[dict[str, Any]]:
    return [record for task in result for record in task.to_pandas().to_dict("records")]  # type: ignore[attr-defined]


class Same(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> Any:
        return task


# -- tasks -----------------------------------------------------------------------------------------------------------


@dataclass
class Sample(Task[list[str]]):
    """A task as the tutorials define them."""

    data: list[str] = field(default_factory=list)
    speed: float = 1.0
    seen: list[str] = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return len(self.data)

    def validate(self) -> bool:
        if not isinstance(self.data, list):
            raise TypeError("data must be a list")
        return True


def test_a_task_type_is_generic_and_may_be_a_dataclass_with_fields_of_its_own() -> None:
    task = Sample(dataset_name="d", data=["a", "b"], speed=2.0, _metadata={"source": "s"}, _stage_perf=[])
    assert (task.dataset_name, task.data, task.speed, task.num_items) == ("d", ["a", "b"], 2.0, 2)
    assert task.metadata == task._metadata == {"source": "s"}
    assert task._stage_perf == []
    assert task.task_id == ""
    assert Sample("d").data == []
    assert pickle.loads(pickle.dumps(task)) == task


def test_a_dataclass_task_is_validated_when_it_is_made() -> None:
    with pytest.raises(TypeError, match="data must be a list"):
        Sample(dataset_name="d", data="a")  # type: ignore[arg-type]  # what the test is about


@dataclass
class Plain(Task):
    """A field with a plain default hides the property of `Task`."""

    data: Any = None


def test_a_dataclass_task_with_a_plain_default_keeps_its_data() -> None:
    task = Plain("d", {"a": bytes(1000)})
    assert task.data["a"] == bytes(1000)
    assert task.nbytes > 1000


def test_the_metadata_of_a_task_has_two_names_and_goes_from_parent_to_child() -> None:
    class Mark(ProcessingStage[Sample, Sample]):
        def process(self, task: Sample) -> Sample:
            task._metadata["marked"] = True
            return Sample(dataset_name=task.dataset_name, data=[*task.data], _stage_perf=task._stage_perf)

    result = run(Mark(), tasks=[Sample(dataset_name="d", data=["a"], _metadata={"source": "s"})])
    assert [(task.dataset_name, task._metadata) for task in result] == [("d", {"source": "s", "marked": True})]


@pytest.mark.parametrize(
    "make",
    [
        lambda frame: DocumentBatch(dataset_name="d", data=frame, _metadata={"a": 1}, _stage_perf=[]),
        lambda frame: DocumentBatch(task_id="t", dataset_name="d", data=frame, _metadata={"a": 1}),
        lambda frame: DocumentBatch("d", frame, _metadata={"a": 1}),
        lambda frame: DocumentBatch(frame, "d", {"a": 1}),
    ],
)
def test_a_batch_takes_its_name_and_data_in_either_order(make: Callable[[Any], DocumentBatch]) -> None:
    batch = make(pd.DataFrame(RECORDS))
    assert (batch.dataset_name, batch.num_items, batch.metadata, batch.task_id) == ("d", 3, {"a": 1}, "")
    assert batch.get_columns() == ["text", "n", "m"]
    assert batch.validate()


@dataclass
class Pages(DocumentBatch):
    language: str = "en"


def test_a_dataclass_of_documents_keeps_its_fields_in_what_is_made_of_it() -> None:
    class French(ProcessingStage[Pages, Pages]):
        def process(self, task: Pages) -> Pages:
            task.language = "fr"
            return task.take([0, 2]).replace("n", [7, 8])

    class Looks(ProcessingStage[Pages, Pages]):
        def process(self, task: Pages) -> Pages:
            return task.replace("language", [task.language] * len(task))

    result = run(French(), Looks(), tasks=[Pages(dataset_name="d", data=pd.DataFrame(RECORDS))])
    assert [(record["n"], record["language"]) for record in rows(result)] == [(7, "fr"), (8, "fr")]
    assert (type(result[0]).__name__, result[0].dataset_name) == ("Pages", "d")


def test_arguments_of_a_task_in_an_order_that_means_something_else_are_refused() -> None:
    with pytest.raises(UsageError, match="metadata is a list, not a dict; name the arguments"):
        Task("d", [1], [], {})  # type: ignore[arg-type]  # what the test is about


def test_a_file_group_keeps_the_settings_of_its_reader() -> None:
    task = FileGroupTask(dataset_name="d", data=["a", "b"], _metadata={"k": 1}, reader_config={"fields": ["text"]})
    assert (task.reader_config, task.metadata, task.num_items) == ({"fields": ["text"]}, {"k": 1}, 2)


def test_records_that_a_first_stage_makes_have_ids_that_differ() -> None:
    class Source(ProcessingStage[EmptyTask, DocumentBatch]):
        def process(self, task: EmptyTask) -> list[DocumentBatch]:
            return [DocumentBatch(RECORDS[:2]), DocumentBatch(RECORDS[2:])]

    class Grouped(ProcessingStage[FileGroupTask, DocumentBatch]):
        batch_size = 2

        def process_batch(self, tasks: list[FileGroupTask]) -> list[DocumentBatch]:
            return [DocumentBatch([{"path": path}]) for task in tasks for path in task.data]

    made = Pipeline("p", stages=[Source()]).run(SerialExecutor(), progress="none", ledger=False)
    assert [batch.ids.strings() for batch in made] == [  # type: ignore[attr-defined]  # batches
        ["task-000000/0:0", "task-000000/0:1"],
        ["task-000000/1:0"],
    ]
    groups = run(Grouped(), tasks=[FileGroupTask(data=["a", "b"]), FileGroupTask(data=["c"])])
    ids = [name for batch in groups for name in batch.ids.strings()]  # type: ignore[attr-defined]  # batches
    assert len(set(ids)) == len(ids) == 3


# -- resources and settings ------------------------------------------------------------------------------------------


def test_resources_by_position_are_cpus_memory_of_an_accelerator_and_accelerators() -> None:
    assert Resources(2.0, 8.0) == Resources(cpus=2.0, gpu_memory_gb=8.0)
    assert Resources(2.0, 0.0, 1.0) == Resources(cpus=2.0, gpus=1.0)
    with pytest.raises(TypeError, match="positional"):
        Resources(2.0, 0.0, 1.0, 4.0)  # type: ignore[misc]  # what the test is about
    with pytest.raises(ValueError, match="not both"):
        Resources(gpus=1.0, gpu_memory_gb=8.0)


class Tuned(Same):
    resources = Resources(cpus=2.0)
    batch_size = 4
    runtime_env: ClassVar[dict[str, Any] | None] = {"env_vars": {"A": "1"}}


def test_none_keeps_what_a_setting_was() -> None:
    stage = Tuned().with_(name=None, resources=None, batch_size=None, runtime_env=None, max_attempts=None)
    assert (stage.name, stage.resources, stage.batch_size, stage.max_attempts) == ("Tuned", Resources(cpus=2.0), 4, 3)
    assert stage.runtime_env == {"env_vars": {"A": "1"}}
    assert stage.with_(num_workers=3).with_(num_workers=None).num_workers() is None
    by_position = stage.with_("other", Resources(cpus=3.0), 2)
    assert (by_position.name, by_position.resources.cpus, by_position.batch_size) == ("other", 3.0, 2)


@dataclass
class Both(CompositeStage[DocumentBatch, DocumentBatch]):
    size: int = 3

    def __post_init__(self) -> None:
        super().__init__()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [Same().with_(name="first"), Same().with_(name="second")]


def test_settings_of_the_stages_inside_a_composite_are_given_by_their_names() -> None:
    composite = Both().with_({"first": {"batch_size": 5}}).with_({"second": {"resources": Resources(cpus=4.0)}})
    first, second = Pipeline("p", stages=[composite]).build()
    assert (first.batch_size, second.batch_size) == (5, 1)
    assert (first.resources.cpus, second.resources.cpus) == (1.0, 4.0)
    assert [stage.batch_size for stage in Pipeline("p", stages=[Both()]).build()] == [1, 1]
    assert run(composite).counts["written"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"firsts": {"batch_size": 5}}, r"there is no stage 'firsts' inside\. Did you mean 'first'\?"),
        ({"first": {"batches": 5}}, "first: .*batches.*; legal settings: name, resources, batch_size"),
        ({"first": 5}, "does not map names of stages to settings"),
        ({"first": {"batch_size": 0}}, "first.batch_size: 0 is not a whole number"),
    ],
)
def test_settings_of_a_composite_that_reach_no_stage_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Pipeline("p", stages=[Both().with_(changes)]).build()


@dataclass
class DataclassStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage as most of the shipped ones are."""

    size: int = 1
    name: str = "a name"
    batch_size: int = 2
    resources: Resources = field(default_factory=lambda: Resources(cpus=1.0))

    def setup_on_node(self, _node_info: Any = None, _worker_metadata: Any = None) -> None:
        pass

    def setup(self, _worker_metadata: WorkerMetadata | None = None) -> None:
        assert _worker_metadata is not None
        assert _worker_metadata.allocation is None

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch(
            dataset_name=task.dataset_name,
            data=task.to_pandas().assign(size=self.size),
            _metadata=task._metadata,
            _stage_perf=task._stage_perf,
        )


def test_a_stage_may_be_a_dataclass_whose_fields_are_settings() -> None:
    stage = DataclassStage(7)
    assert (stage.name, stage.batch_size, stage.with_(batch_size=9).batch_size) == ("a name", 2, 9)
    assert [record["size"] for record in rows(run(stage))] == [7, 7, 7]


# -- calls -----------------------------------------------------------------------------------------------------------


class Batched(Same):
    """What `process` does must never matter where `process_batch` is defined."""

    batch_size = 3

    def process(self, task: DocumentBatch) -> Any:
        raise NotImplementedError("only process_batch")


def batches(count: int) -> list[DocumentBatch]:
    return [DocumentBatch([{"text": f"{number}"}]) for number in range(count)]


def texts(result: RunResult) -> list[str]:
    return [record["text"] for record in rows(result)]


def test_process_batch_is_called_for_one_task_too() -> None:
    class Counts(Batched):
        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            self.count("calls")
            return tasks

    result = run(Counts(), tasks=batches(7))
    assert texts(result) == [str(number) for number in range(7)]
    assert result.stages[0]["user_counts"] == {"calls": 3}


def test_process_batch_may_return_fewer_more_and_nested_tasks_and_none() -> None:
    class Flat(Batched):
        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            return [copy for task in tasks for copy in (task, DocumentBatch([{"text": task.values("text")[0] + "!"}]))]

    class Mixed(Batched):
        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            return [None, [tasks[1], None, DocumentBatch([{"text": "new"}])], [[tasks[2]]]]

    class Aggregated(Batched):
        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            return [DocumentBatch(pd.concat([task.to_pandas() for task in tasks]))]

    class Nothing(Batched):
        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            return []

    assert texts(run(Flat(), tasks=batches(3))) == ["0", "0!", "1", "1!", "2", "2!"]
    mixed = run(Mixed(), tasks=batches(3))
    assert texts(mixed) == ["1", "new", "2"]
    assert (mixed.counts["created"], mixed.counts["dropped"]) == (1, 1)
    assert texts(run(Aggregated(), tasks=batches(3))) == ["0", "1", "2"]
    nothing = run(Nothing(), tasks=batches(3))
    assert (len(nothing), nothing.counts["dropped"]) == (0, 3)


def test_a_task_that_validate_input_refuses_is_quarantined_and_never_processed() -> None:
    class OnlySmall(Same):
        def validate_input(self, task: Task) -> bool:
            return task.num_items < 2

    class OnlySmallBatched(Batched):
        def validate_input(self, task: Task) -> bool:
            return "1" not in task.values("text")  # type: ignore[attr-defined]  # a batch

        def process_batch(self, tasks: list[DocumentBatch]) -> Any:
            return tasks

    class Whole(OnlySmall):
        row_wise = False

    assert run(OnlySmall()).counts["written"] == 3  # cut until the pieces are small enough
    failed = run(OnlySmallBatched(), tasks=batches(3))
    assert texts(failed) == ["0", "2"]
    assert failed.to_dict()["quarantine_reasons"] == {"OnlySmallBatched/InvalidInputError": 1}
    with pytest.raises(TooManyErrorsError, match=r"Whole.validate_input\(\) returned False for DocumentBatch"):
        run(Whole())


def test_validate_input_by_itself_looks_for_what_inputs_names() -> None:
    class Needs(Same):
        def inputs(self) -> tuple[list[str], list[str]]:
            return ["data"], ["text"]

    assert Needs().validate_input(DocumentBatch([{"text": "a"}]))
    assert not Needs().validate_input(DocumentBatch([{"title": "a"}]))


class Either(ProcessingStage[Task, Task]):
    def inputs(self) -> Any:
        return {DocumentBatch: (["data"], ["text"]), Sample: (["speed"], [])}

    def process(self, task: Task) -> Task:
        return task


def test_inputs_may_differ_by_type_of_task() -> None:
    class Child(Sample):
        pass

    assert run(Either(), tasks=[DocumentBatch(RECORDS), Sample("d", ["a"]), Child("d", ["b"])]).counts["read"] == 5
    with pytest.raises(ValueError, match=r"got a FileGroupTask, and its inputs\(\) name DocumentBatch, Sample"):
        run(Either(), tasks=[FileGroupTask(data=["a"])])

    class Files(ProcessingStage[Task, FileGroupTask]):
        def process(self, task: Task) -> FileGroupTask:
            return FileGroupTask(data=["a"])

    with pytest.raises(PlanError, match="Either takes a DocumentBatch or Sample, but Files before it gives"):
        run(Files(), Either(), tasks=[Task()])

    class Untyped(ProcessingStage[Task, Task]):
        def process(self, task: Task) -> Task:
            return FileGroupTask(data=["a"])

    with pytest.raises(TooManyErrorsError, match=r"Either got a FileGroupTask, and its inputs\(\) name"):
        run(Untyped(), Either(), tasks=[Task()])


def test_inputs_that_are_neither_a_pair_nor_a_dict_of_pairs_are_refused() -> None:
    class Wrong(Same):
        def inputs(self) -> Any:
            return ["text"]

    with pytest.raises(UsageError, match=r"Wrong.inputs\(\) returned \['text'\]; return \(attributes, columns\)"):
        run(Wrong())


# -- data frames in place --------------------------------------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> JsonlReader:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return JsonlReader(str(folder))


def from_files(source: JsonlReader, *stages: Any) -> RunResult:
    pipeline = Pipeline("ported", stages=[source, *stages])
    return pipeline.run(SerialExecutor(), progress="none", ledger=False)


def test_what_is_written_to_a_frame_of_the_batch_is_not_lost(source: JsonlReader) -> None:
    @processing_stage(name="in place")
    def in_place(task: DocumentBatch) -> DocumentBatch:
        task.to_pandas()["length"] = task.to_pandas()["text"].str.len()
        return task

    assert [record["length"] for record in rows(from_files(source, in_place))] == [7, 5, 1]
    assert [record["length"] for record in rows(run(in_place))] == [7, 5, 1]


class InFrames(ProcessingStage[DocumentBatch, DocumentBatch]):
    takes_frames = True

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data["length"] = task.data["text"].str.len()
        task.to_pandas()["double"] = 2 * task.data["length"]
        task.data = task.data[task.data["n"] > 1]
        return task


class Looks(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.metadata["type"] = type(task.data).__name__
        return task


@pytest.mark.parametrize("executor", [SerialExecutor, lambda: LocalExecutor(workers=1)])
def test_the_data_of_a_batch_is_a_data_frame_for_a_stage_that_takes_frames(source: JsonlReader, executor: Any) -> None:
    pipeline = Pipeline("ported", stages=[source, Looks(), InFrames(), Looks()])
    result = pipeline.run(executor(), progress="none", ledger=False)
    assert rows(result) == [
        {**RECORDS[1], "length": 5, "double": 10},
        {**RECORDS[2], "length": 1, "double": 2},
    ]
    assert result.drop_reasons == {"InFrames/filtered": 1}
    assert [task.metadata["type"] for task in result] == ["Table"]


def test_code_for_frames_that_gets_an_arrow_table_is_told_what_to_do(source: JsonlReader) -> None:
    @processing_stage(name="in place")
    def in_place(task: DocumentBatch) -> DocumentBatch:
        task.data["length"] = 1
        return task

    with pytest.raises(TooManyErrorsError, match=r"cannot be changed in place: change the frame of to_pandas\(\)"):
        from_files(source, in_place)


# -- values of any type, and several columns -------------------------------------------------------------------------


class Twice(DocumentFilter):
    def score_document(self, n: int) -> int:  # type: ignore[override]  # a number in place of a text
        return 2 * n

    def keep_document(self, score: int) -> bool:
        return score > 2


class Sum(DocumentModifier):
    def modify_document(self, n: int, m: int) -> Any:  # type: ignore[override]  # two columns
        return {"sum": n + m}


class Together(DocumentFilter):
    def score_document(self, n: int, m: int) -> int:  # type: ignore[override]  # two columns
        return n + m

    def keep_document(self, score: int) -> bool:
        return score > 11


def test_scores_rules_and_modifiers_take_numbers(source: JsonlReader) -> None:
    result = from_files(
        source,
        Score(lambda n: n + 0.5, "half", "n"),
        ScoreFilter([Twice(), WordCountFilter(1)], ["n", "text"], ["twice", "words"]),
        Filter([lambda n: n < 9, Twice()], ["n", "m"]),
        Modify([lambda n: n * 10, str.upper], ["n", "text"], [None, "loud"]),
    )
    assert rows(result) == [
        {"text": "three", "n": 20, "m": 20, "half": 2.5, "twice": 4, "words": 1, "loud": "THREE"},
        {"text": "x", "n": 30, "m": 30, "half": 3.5, "twice": 6, "words": 1, "loud": "X"},
    ]
    assert result.drop_reasons == {"ScoreFilter/Twice": 1}


def test_several_columns_come_as_keyword_arguments(source: JsonlReader) -> None:
    result = from_files(
        source,
        Modify(Sum(), [["n", "m"]], "sum"),
        Score(lambda text, n: text * n, "repeated", [["text", "n"]]),
        ScoreFilter(Together(), [["n", "m"]], "both"),
        Filter(lambda n, m: n * m < 90, [["n", "m"]]),
    )
    assert rows(result) == [{**RECORDS[1], "sum": {"sum": 22}, "repeated": "threethree", "both": 22}]
    assert result.drop_reasons == {"ScoreFilter/Together": 1, "Filter/Filter": 1}
    assert Score(Together(), "s", [["n", "m"]]).inputs() == (["data"], ["n", "m"])
    with pytest.raises(UsageError, match="output_fields: name the column for what is made of n, m"):
        Modify(Sum(), [["n", "m"]])


def test_a_value_that_is_missing_reaches_no_function_of_one_column() -> None:
    tasks = [DocumentBatch(pa.table({"n": [1, None, [1], "a"][:2]}))]
    result = run(Score(lambda n: n, "s", "n"), tasks=tasks)
    assert (result.counts["written"], result.to_dict()["quarantine_reasons"]) == (1, {"Score/field-missing": 1})


def test_a_function_of_a_str_gets_strings_alone() -> None:
    def shout(text: str) -> str:
        return text.upper()

    tasks = [DocumentBatch([{"text": "a"}, {"text": 1}, {"text": "b"}])]
    result = run(Modify(shout), tasks=tasks)
    assert (texts(result), result.to_dict()["quarantine_reasons"]) == (["A", "B"], {"Modify/not-a-string": 1})


def test_a_rule_of_any_type_and_one_of_texts_share_a_column_that_holds_both() -> None:
    tasks = [DocumentBatch([{"text": "one two"}, {"text": 5}, {"text": "one"}])]
    result = run(ScoreFilter([Kind(), WordCountFilter(2)], score_field=["kind", "words"]), tasks=tasks)
    assert rows(result) == [{"text": "one two", "kind": "str", "words": 2}]
    assert result.drop_reasons == {"ScoreFilter/WordCountFilter": 1}
    assert result.to_dict()["quarantine_reasons"] == {"ScoreFilter/not-a-string": 1}


class Kind(DocumentFilter):
    def score_document(self, value: Any) -> str:  # type: ignore[override]  # any value
        return type(value).__name__

    def keep_document(self, score: str) -> bool:
        return True


class Hooked(DocumentFilter):
    """A rule that names itself and loads its tokenizer where those of NeMo Curator do."""

    def __init__(self) -> None:
        super().__init__()
        self._name = "my_rule"
        self.tokenizer: Any = None

    def load_tokenizer(self) -> None:
        self.tokenizer = Words()

    def score_document(self, text: str) -> int:
        return len(self.tokenizer.encode(text))

    def keep_document(self, score: int) -> bool:
        return score > 1


def test_a_rule_may_name_itself_and_load_a_tokenizer() -> None:
    result = run(ScoreFilter(Hooked()))
    assert (texts(result), result.drop_reasons) == (["one two"], {"ScoreFilter/my_rule": 2})


def test_a_stage_may_log_metrics_and_times() -> None:
    class Logs(Same):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            with self._time_metric("load"):
                self._log_metric("frames", 12)
            self._log_metrics({"frames": 3.0, "confidence": 0.25})
            return task

    counts = run(Logs()).stages[0]["user_counts"]
    assert counts.pop("load (ms)", 0) >= 0
    assert counts == {"frames": 15, "confidence (thousandths)": 250}


# -- tokenizers ------------------------------------------------------------------------------------------------------


class Words:
    """A tokenizer of one's own."""

    def encode(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]


def test_a_tokenizer_may_be_an_object() -> None:
    result = run(ScoreFilter(TokenCountFilter(Words(), min_tokens=1), score_field="tokens"), TokenCounter(Words()))
    assert [(record["tokens"], record["token_count"]) for record in rows(result)] == [(2, 2), (1, 1), (1, 1)]
    with pytest.raises(UsageError, match=r"TokenCounter.tokenizer: an int is not a tokenizer; give an object with"):
        TokenCounter(3)


def test_a_tokenizer_object_counts_as_its_file_does(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[BOS]": 1, "one": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    made.save(str(tmp_path / "tokenizer.json"))
    for special in (False, True):
        named = TokenCounter(str(tmp_path / "tokenizer.json"), add_special_tokens=special)
        given = TokenCounter(made, add_special_tokens=special)
        assert rows(run(named)) == rows(run(given))
    assert TokenCounter(made).tokenizer.identity != TokenCounter(Words()).tokenizer.identity


# -- pipelines and results -------------------------------------------------------------------------------------------


def test_a_pipeline_takes_its_arguments_by_position() -> None:
    pipeline = Pipeline("p", "what it is for", [Same()], {"workers": 1})
    assert (pipeline.description, pipeline.config) == ("what it is for", {"workers": 1})
    assert "what it is for" in pipeline.describe()
    assert Pipeline("p", None, None, None).stages == []
    pipeline.config = {}
    result = pipeline.run(SerialExecutor(), [DocumentBatch(RECORDS)], progress="none", ledger=False)
    assert result.counts["written"] == 3


def test_the_config_of_a_pipeline_is_for_the_executor_that_it_makes() -> None:
    def start(executor: Any, **config: Any) -> RunResult:
        pipeline = Pipeline("p", stages=[Same()], config=config)
        return pipeline.run(executor, [DocumentBatch(RECORDS)], progress="none", ledger=False)

    assert start("serial", execution_mode="batch").counts["written"] == 3
    with pytest.raises(UsageError, match="unknown option 'batch_mode'"):
        start("serial", batch_mode=True)
    with pytest.raises(UsageError, match=r"Pipeline.config: workers would be ignored.*write SerialExecutor\(config="):
        start(SerialExecutor(), workers=1)


def test_build_checks_a_pipeline_and_leaves_it_as_it_is() -> None:
    pipeline = Pipeline("p", stages=[Both(), Same(), Same()])
    assert [stage.name for stage in pipeline.build()] == ["first", "second", "Same", "Same-2"]
    assert len(pipeline.stages) == 3
    with pytest.raises(ValueError, match="has no stages"):
        Pipeline("p").build()
    with pytest.raises(PlanError, match="JsonlReader is a reader"):
        Pipeline("p", stages=[Same(), JsonlReader("in")]).build()


def test_what_is_wrong_with_arguments_is_a_value_error() -> None:
    assert issubclass(PlanError, ValueError)
    assert issubclass(UnsupportedError, ValueError)
    with pytest.raises(ValueError, match="has no stages"):
        Pipeline("p").run(SerialExecutor())
    with pytest.raises(TypeError, match="'text' is not a stage"):
        Pipeline("p").add_stage("text")


def test_a_result_is_used_like_a_list_of_tasks() -> None:
    result = run(Same(), tasks=batches(3))
    assert len(result) == 3
    assert result[0] is result[0]
    assert result[-1] is result[2]
    assert result[:2] == [result[0], result[1]]
    assert result == list(result)
    more = [Task("d")]
    assert result + more == [*result, *more]
    assert more + result == [*more, *result]
    assert result.index(result[1]) == 1
    assert result[2] in result
    assert list(reversed(result)) == [result[2], result[1], result[0]]
    for task in result:
        task.metadata["seen"] = True
    assert [task.metadata for task in result] == 3 * [{"seen": True}]
    with pytest.raises(IndexError):
        result[3]


def test_a_result_without_tasks_is_an_empty_list() -> None:
    class Drops(Same):
        def process(self, task: DocumentBatch) -> None:
            return None

    result = run(Drops())
    assert not result
    assert result == []
    assert result.counts["dropped"] == 3


class Touch(ProcessingStage[Sample, Sample]):
    """Does its work beside the pipeline, as a writer of one's own does."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, task: Sample) -> Sample:
        path = Path(self.folder, task.data[0])
        if path.name == "2" and not Path(self.folder, "repaired").exists():
            raise RuntimeError("out of order")
        path.write_text(path.read_text() + "x" if path.exists() else "x")
        return task


@pytest.mark.parametrize("executor", [SerialExecutor, lambda: LocalExecutor(workers=1)])
def test_a_checkpoint_leaves_out_what_is_done_also_without_a_writer(tmp_path: Path, executor: Any) -> None:
    done = tmp_path / "done"
    done.mkdir()
    tasks = [Sample("d", [str(number)]) for number in range(4)]

    def start(checkpoint: Any, **options: Any) -> RunResult:
        pipeline = Pipeline("p", stages=[Touch(str(done))])
        return pipeline.run(executor(), tasks, checkpoint, progress="none", **options)

    with pytest.raises(TooManyErrorsError):
        start(tmp_path / "state", max_errors=0)
    (done / "repaired").touch()
    again = start(tmp_path / "state", max_errors="100%")
    assert again.run_dir == str(tmp_path / "state" / "_thresher")
    assert [path.read_text() for path in sorted(done.glob("[0-9]"))] in (["x", "x"], ["x", "x", "x"], 4 * ["x"])
    last = start(tmp_path / "state", max_errors="100%")
    assert (last.status, len(last)) == ("nothing-to-do", 0)
    with pytest.raises(UsageError, match="not both"):
        start(tmp_path / "state", run_dir="other")
