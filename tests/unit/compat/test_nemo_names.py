# SPDX-License-Identifier: Apache-2.0
"""The names of NeMo Curator: what stands for them, how their arguments become ours, what an unknown one says."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import thresher
from tests.compat_names import nemo_names
from thresher.compat.nemo.argument_table import ARGUMENTS
from thresher.compat.nemo.hints import HINTS
from thresher.compat.nemo.names import MODULES
from thresher.compat.nemo.table import load_target
from thresher.core.arguments.parameters import parameters_of
from thresher.errors import NotMappedError, ParameterTypeError, UsageError
from thresher.workflows import WORKFLOWS

TARGETS = sorted({target for names in MODULES.values() for target in names.values()})
pytestmark = pytest.mark.usefixtures("nemo_names")
__all__ = ["nemo_names"]
HEAVY = ("numpy", "pandas", "pyarrow", "numba", "ray", "torch", "transformers")


def nemo(module: str) -> Any:
    return importlib.import_module(f"nemo_curator.{module}")


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_of_the_table_can_be_loaded(target: str) -> None:
    assert callable(load_target(target))


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_of_the_table_can_be_imported_under_both_packages(module: str) -> None:
    ours = module.replace("nemo_curator", "thresher.compat.nemo_curator", 1)
    for name in (module, ours):
        assert set(dir(importlib.import_module(name))) >= set(MODULES[module])


def test_both_packages_hold_the_same_classes() -> None:
    from thresher.compat.nemo_curator.stages.text.io import JsonlReader  # type: ignore[import-not-found]  # by the finder

    assert nemo("stages.text.io.reader.jsonl").JsonlReader is JsonlReader
    assert nemo("stages.text.filters.heuristic").WordCountFilter is thresher.WordCountFilter
    assert nemo("backends.experimental.ray_data").RayDataExecutor.made is thresher.RayDataExecutor


def test_importing_names_loads_nothing_heavy() -> None:
    code = (
        "import sys, thresher.compat.nemo_curator, nemo_curator.stages.text.filters.heuristic.string, "
        "nemo_curator.stages.text.io.reader, nemo_curator.backends.xenna; "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_name_that_is_not_there_says_what_there_is_instead() -> None:
    with pytest.raises(
        NotMappedError, match=r"stages\.audio\.common\.ManifestReader.*task type and stages of your own"
    ):
        from nemo_curator.stages.audio.common import ManifestReader  # noqa: F401
    with pytest.raises(NotMappedError, match=r"nemo_curator\.Sequential.*Instead: Pipeline\(name, stages"):
        from nemo_curator import Sequential  # noqa: F401
    with pytest.raises(NotMappedError, match="Did you mean 'WordCountFilter'"):
        from nemo_curator.stages.text.filters import WordsCountFilter  # noqa: F401


def test_scripts_that_try_an_import_go_on_without_it() -> None:
    assert issubclass(NotMappedError, ImportError)
    assert not hasattr(nemo("stages.text.io"), "__path_of_something__")


def test_a_module_that_neither_has_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"nemo_curator\.stagez"):
        importlib.import_module("nemo_curator.stagez.text")


def test_every_class_with_other_arguments_is_in_the_table_and_every_hint_has_an_answer() -> None:
    names = {name for listed in MODULES.values() for name in listed}
    assert set(ARGUMENTS) <= names
    assert all(hint.reason and hint.instead for hint in HINTS.values())


# -- arguments --------------------------------------------------------------------------------------------------------


def test_a_reader_takes_the_arguments_of_theirs() -> None:
    reader = nemo("stages.text.io").JsonlReader(
        file_paths="data",
        files_per_partition=2,
        blocksize=None,
        fields=["id", "text"],
        read_kwargs={"lines": True, "dtype_backend": "pyarrow", "storage_options": {"anon": True}},
        task_type="document",
        file_extensions=[".jsonl"],
        name="read",
    )
    assert type(reader) is thresher.JsonlReader
    assert (reader.name, reader.files_per_partition, reader.fields) == ("read", 2, ["id", "text"])
    assert reader.storage_options == {"anon": True}
    assert reader.blocksize == thresher.JsonlReader("data").blocksize


def test_a_writer_takes_the_arguments_of_theirs() -> None:
    kwargs = {"force_ascii": False, "orient": "records", "compression": "gzip"}
    writer = nemo("stages.text.io.writer").JsonlWriter(
        "out", mode="ignore", write_kwargs=kwargs, file_extension="jsonl"
    )
    assert (writer.path, writer.mode, writer.compression) == ("out", "append", "gz")
    assert nemo("stages.text.io.writer").JsonlWriter("out").mode == "error"


@pytest.mark.parametrize(
    ("endings", "paths"),
    [
        ([".jsonl", ".json"], "data"),
        ([".jsonl"], ["data/**/*.jsonl"]),
        ([".jsonl.gz", ".jsonl"], ["data/**/*.jsonl.gz", "data/**/*.jsonl"]),
    ],
)
def test_other_endings_than_the_usual_ones_choose_files(endings: list[str], paths: Any) -> None:
    assert nemo("stages.text.io").JsonlReader("data", file_extensions=endings).file_paths == paths


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("JsonlReader", {"file_paths": "a", "read_kwargs": {"nrows": 5}}, "'nrows' has no counterpart.*`limit`"),
        ("JsonlReader", {"file_paths": "a", "_generate_ids": True}, "record ids are made of file and position"),
        ("JsonlReader", {"file_paths": "a", "task_type": "image"}, "docs/writing-a-task.md"),
        ("JsonlWriter", {"path": "a", "file_extension": "json"}, "files end in .jsonl"),
        ("JsonlReader", {"file_paths": "a", "fieldz": []}, "has no parameter 'fieldz'"),
    ],
)
def test_an_argument_that_would_change_the_result_is_refused(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterTypeError, match=message):
        getattr(nemo("stages.text.io"), name)(**arguments)


def test_readers_of_groups_of_files_refuse_the_same_arguments() -> None:
    stage = nemo("stages.text.io.reader.jsonl").JsonlReaderStage
    assert stage(read_kwargs={"lines": True, "storage_options": {"anon": True}}).storage_options == {"anon": True}
    with pytest.raises(ParameterTypeError, match="'nrows' has no counterpart"):
        stage(read_kwargs={"nrows": 3})


def test_a_stage_is_named_by_its_argument() -> None:
    filters = nemo("stages.text.filters")
    stage = filters.ScoreFilter(filters.WordCountFilter(min_words=3), score_field="words", name="long", verbose=True)
    assert type(stage) is thresher.ScoreFilter
    assert (stage.name, stage.score_field) == ("long", "words")


def test_what_stands_for_a_class_can_be_asked_subclassed_joined_and_sent_to_workers() -> None:
    reader = nemo("stages.text.io").JsonlReader
    assert isinstance(reader("data"), reader)
    assert not isinstance(3, reader)
    assert issubclass(type("Own", (thresher.JsonlReader,), {}), reader)

    class Own(reader):  # type: ignore[misc, valid-type]  # what stands for a class
        """A reader of the user."""

    assert issubclass(Own, thresher.JsonlReader)
    assert reader | None == thresher.JsonlReader | None
    assert pickle.loads(pickle.dumps(reader)) is reader
    assert reader.__name__ == "JsonlReader"


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_every_name_that_arguments_get_is_a_parameter_of_ours(name: str) -> None:
    target = next(names[name] for names in MODULES.values() if name in names)
    made, table = load_target(target), ARGUMENTS[name]
    known = set(parameters_of(made)) | {"config"}
    assert {ours for names in table.opened.values() for ours in names.values()} - {"", "?"} <= known
    assert set(table.defaults) | set(table.extensions.values()) <= known
    if "Classifier" not in name:  # they share one table
        assert set(table.renamed.values()) <= known


def test_workflows_take_arguments_in_their_order_and_forget_about_memory_of_gpus(tmp_path: Path) -> None:
    fuzzy = nemo("stages.deduplication.fuzzy.workflow").FuzzyDeduplicationWorkflow
    made = fuzzy("cache", str(tmp_path), "in", bands_per_iteration=2, use_64_bit_hash=True, rmm_pool_size="auto")
    assert (made.cache_path, made.input_path, made.perform_removal) == ("cache", "in", False)
    assert made.output_path == f"{tmp_path}/FuzzyDuplicateIds"
    assert fuzzy("cache", "out", "in", perform_removal=True).output_path == "out"


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [
        ({"metadata_cols": ["cosine_dist_to_cent"]}, ("easy", None)),
        ({"metadata_cols": ["cosine_dist_to_cent"], "ascending": False}, ("hard", None)),
        ({"metadata_cols": [], "strategy": "random"}, ("random", None)),
        ({"metadata_cols": ["score"], "ascending": [False]}, ("best", "score")),
    ],
)
def test_a_ranking_strategy_says_which_document_stays(ranking: dict[str, Any], expected: tuple[str, str]) -> None:
    semantic = nemo("stages.deduplication.semantic")
    strategy = semantic.RankingStrategy(**ranking)
    made = semantic.SemanticDeduplicationWorkflow("in", "out", 10, ranking_strategy=strategy)
    assert (made.which_to_keep, made.keep_by) == expected
    assert made.n_clusters == 10


def test_a_ranking_that_cannot_be_said_here_is_refused() -> None:
    semantic = nemo("stages.deduplication.semantic")
    with pytest.raises(UsageError, match="one column whose largest value stays"):
        semantic.SemanticDeduplicationWorkflow(
            "in", "out", 10, ranking_strategy=semantic.RankingStrategy(["a", "b"], [True, False])
        )


def test_all_workflows_that_share_a_name_are_in_the_table() -> None:
    own = {"BloomDeduplicationWorkflow", "DeduplicationIndexWorkflow", "LineDeduplicationWorkflow"}
    assert {*WORKFLOWS} - own - {"SubstringDeduplicationWorkflow"} <= set(TARGETS)


# -- functions and figures --------------------------------------------------------------------------------------------


def test_files_of_a_folder_are_listed_with_those_below_it_on_request(tmp_path: Path) -> None:
    listing = nemo("utils.file_utils").get_all_file_paths_under
    (tmp_path / "below").mkdir()
    for name in ("b.jsonl", "a.jsonl", "c.txt", "below/d.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert listing(str(tmp_path), keep_extensions=".jsonl") == [f"{tmp_path}/a.jsonl", f"{tmp_path}/b.jsonl"]
    assert len(listing(str(tmp_path), recurse_subdirectories=True)) == 4
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    sized = nemo("utils.file_utils").get_all_file_paths_and_size_under(str(tmp_path), keep_extensions=[".jsonl"])
    assert sized == [(f"{tmp_path}/b.jsonl", 3), (f"{tmp_path}/a.jsonl", 6)]


def test_texts_are_cut_as_rules_cut_them() -> None:
    functions = nemo("stages.text.utils.text_utils")
    assert functions.get_sentences("a\n \nb") == ["a", "b"]
    assert functions.get_paragraphs("a\n\nb\nc") == ["a", "b\nc"]
    assert functions.get_ngrams(["a", "b", "c"], 2) == [("a", "b"), ("b", "c")]


def test_figures_of_a_stage_add_up() -> None:
    stats = nemo("utils.performance_utils").StagePerfStats
    one = stats("s", process_time=1.5, num_items_processed=2, custom_metrics={"a": 1.0})
    both = sum([one, stats("s", process_time=0.5, custom_metrics={"b": 2.0})])
    assert dict(both.items())["process_time"] == 2.0
    assert dict(both.items())["custom.b"] == 2.0
    timer = nemo("utils.performance_utils").StageTimer(thresher.ScoreFilter(thresher.UrlsFilter()))
    with timer.time_process(3):
        pass
    assert timer.log_stats()[1].num_items_processed == 3


def test_tasks_alone_have_no_figures() -> None:
    with pytest.raises(TypeError, match=r"what Pipeline\.run\(\) or the run\(\) of a workflow returned"):
        nemo("tasks.utils").TaskPerfUtils.collect_stage_metrics([thresher.EmptyTask()])


def test_a_stage_class_is_found_by_its_name() -> None:
    base = nemo("stages.base")

    class OwnOfThisTest(base.ProcessingStage):  # type: ignore[misc, name-defined]  # of the finder
        """A stage of the user."""

    assert base.get_stage_class("OwnOfThisTest") is OwnOfThisTest
    assert base.get_stage_class("JsonlReader") is thresher.JsonlReader
    with pytest.raises(UsageError, match="Did you mean 'OwnOfThisTest'"):
        base.get_stage_class("OwnOfThisTset")


class Recorder:
    """An executor on an engine that counts accelerators and not their memory; keeps the pipeline that it is given."""

    cannot: ClassVar[dict[str, str]] = {"resources.gpu_memory_gb": "it counts devices"}

    def execute(self, pipeline: Any, options: Any) -> None:
        self.given = pipeline


@pytest.mark.parametrize(("memory_gb", "share"), [(10, 0.4), (0.1, 0.1), (48, 1.0)])
def test_memory_of_an_accelerator_becomes_a_share_where_an_engine_counts_devices(
    memory_gb: float, share: float
) -> None:
    stage = thresher.ScoreFilter(thresher.UrlsFilter()).with_(resources=thresher.Resources(gpu_memory_gb=memory_gb))
    pipeline = nemo("pipeline").Pipeline("shares", stages=[stage])
    executor = Recorder()
    pipeline.run(executor)
    assert executor.given.stages[0].resources == thresher.Resources(gpus=share)
    assert pipeline.stages[0].resources.gpu_memory_gb == memory_gb


def test_every_task_is_one_of_theirs() -> None:
    task = nemo("tasks").Task
    assert isinstance(thresher.DocumentBatch([]), task)
    assert issubclass(thresher.FileGroupTask, task)
    assert not isinstance(3, task)


def test_specs_for_other_schedulers_are_accepted_and_attempts_are_kept() -> None:
    base = nemo("stages.base")

    class Own(base.ProcessingStage):  # type: ignore[misc, name-defined]  # of the finder
        """A stage of the user."""

    spec = {"num_run_attempts_python": 5, "slots_per_actor": 4}
    assert Own().with_(batch_size=2, xenna_stage_spec=spec, ray_stage_spec=None).max_attempts == 5
    assert Own().get_config()["batch_size"] == 1


# -- installing -------------------------------------------------------------------------------------------------------


def run_python(code: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder that holds a package `nemo_curator` of somebody else."""
    import os

    package = tmp_path / "installed" / "nemo_curator"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("MADE_BY = 'somebody else'\n")
    path = os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, "THRESHER_COMPAT": "", "THRESHER_COMPAT_REPLACE": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_nemo_curator_wins_unless_asked_otherwise(tmp_path: Path) -> None:
    code = "import thresher, nemo_curator; print(getattr(nemo_curator, 'MADE_BY', 'thresher'))"
    wanted = {"THRESHER_COMPAT": "nemo_curator"}
    assert run_python(code, tmp_path, **wanted).stdout == "somebody else\n"
    assert run_python(code, tmp_path, **wanted, THRESHER_COMPAT_REPLACE="1").stderr.count("Thresher has nothing") == 1
    replacing = "import thresher.compat.nemo_curator, nemo_curator.pipeline as p; print(p.Pipeline.__module__)"
    assert run_python(replacing, tmp_path, THRESHER_COMPAT_REPLACE="1").stdout == "thresher.compat.nemo.pipeline\n"


def test_replacing_what_is_imported_already_is_refused(tmp_path: Path) -> None:
    code = "import nemo_curator, thresher.compat.nemo.finder as f; f.install(replace=True)"
    assert "already imported and cannot be replaced" in run_python(code, tmp_path).stderr


def test_another_value_of_the_variable_is_refused(tmp_path: Path) -> None:
    ended = run_python("import thresher", tmp_path, THRESHER_COMPAT="nemo")
    assert "THRESHER_COMPAT='nemo' in the environment is not one of: nemo_curator" in ended.stderr
