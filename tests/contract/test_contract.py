# SPDX-License-Identifier: Apache-2.0
"""The contract: every name, flag, default, file and exit code that users, scripts and other tools rely on.

A test that fails here means that something of theirs breaks. Adding is free; a change or a rename needs a line in
CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import thresher
import thresher.llm
import thresher.records
from tests.contract.facts import (
    ACTIONS,
    ATTEMPT_KEYS,
    COMMANDS,
    COUNTS,
    EVENTS,
    EXECUTOR_OPTIONS,
    EXIT_CODES,
    FLAGS,
    LEDGER_KEYS,
    LLM_NAMES,
    METHODS,
    MODIFIERS,
    NAMES,
    OUTPUT_KEYS,
    PLANNED_FLAGS,
    QUARANTINE_KEYS,
    RECORD_NAMES,
    RECORD_SIGNATURES,
    RESULT_PROPERTIES,
    RULES,
    RUN,
    RUN_BY_POSITION,
    RUN_FILES,
    SIGNATURES,
    STAGE_COUNTS,
    STAGE_DEFAULTS,
    WITH_BY_NAME,
    WITH_BY_POSITION,
)
from thresher import errors
from thresher.cli import main as cli
from thresher.cli.arguments import Parser
from thresher.core.arguments.sizes import parse_size
from thresher.core.recipes.recipe import KEYS, OPTIONS
from thresher.core.recipes.stages import SETTINGS
from thresher.core.registry import EXECUTORS, entries, load_executor
from thresher.core.unit import file12, file_stem, unit_id
from thresher.scheduler import actions, events

PROJECT = Path(__file__).parents[2]
GOOD_LINES = b'{"text": "a b c"}\n{"text": "a"}\n'

# -- Python -----------------------------------------------------------------------------------------------------------


def parameters(function: Any) -> str:
    """A signature without types and without `self`."""
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return ", ".join(str(p.replace(annotation=p.empty)) for p in found)


def same_so_far(found: str, promised: str) -> bool:
    """Whether a signature is what was promised; what comes behind it must have a default."""
    added = found.removeprefix(promised).removeprefix(", ")
    return found.startswith(promised) and all("=" in parameter for parameter in added.split(", ") if parameter)


@pytest.mark.parametrize("name", [*NAMES, *RULES, *MODIFIERS])
def test_a_public_name_can_be_imported_from_the_package(name: str) -> None:
    assert getattr(thresher, name).__name__ == name
    assert name in thresher.__all__
    assert name in dir(thresher)


@pytest.mark.parametrize("name", RECORD_NAMES)
def test_what_a_task_type_a_reader_and_a_writer_need_can_be_imported(name: str) -> None:
    assert getattr(thresher.records, name).__name__ == name
    assert sorted(RECORD_NAMES) == dir(thresher.records)


@pytest.mark.parametrize("name", LLM_NAMES)
def test_what_a_stage_needs_that_asks_a_model_can_be_imported(name: str) -> None:
    assert getattr(thresher.llm, name).__name__ == name
    assert sorted(LLM_NAMES) == thresher.llm.__all__


@pytest.mark.parametrize("name", RECORD_SIGNATURES)
def test_what_a_reader_uses_takes_these_arguments(name: str) -> None:
    assert same_so_far(parameters(getattr(thresher.records, name)), RECORD_SIGNATURES[name])


def test_everything_that_recipes_know_can_be_imported_too() -> None:
    assert set(entries()) <= set(thresher.__all__)


def test_a_name_that_is_not_public_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Pipelne'\. Did you mean 'Pipeline'\?"):
        _ = thresher.Pipelne


@pytest.mark.parametrize("name", SIGNATURES)
def test_constructors_and_functions_take_these_arguments(name: str) -> None:
    assert same_so_far(parameters(getattr(thresher, name)), SIGNATURES[name])


@pytest.mark.parametrize(("owner", "method"), [(owner, method) for owner in METHODS for method in METHODS[owner]])
def test_methods_take_these_arguments(owner: str, method: str) -> None:
    assert same_so_far(parameters(getattr(getattr(thresher, owner), method)), METHODS[owner][method])


def test_document_batch_takes_data_and_a_name() -> None:
    assert list(inspect.signature(thresher.DocumentBatch).parameters)[:2] == ["data", "dataset_name"]
    assert isinstance(inspect.getattr_static(thresher.DocumentBatch, "columns"), property)


def test_tasks_have_read_only_facts() -> None:
    for name in ("task_id", "num_items", "nbytes"):
        assert inspect.getattr_static(thresher.Task, name).fset is None
    assert thresher.Task(task_id="mine").task_id == ""
    assert thresher.Task().num_items == 1


def test_a_stage_has_these_attributes() -> None:
    stage = thresher.ProcessingStage
    assert {name: getattr(stage, name) for name in STAGE_DEFAULTS} == STAGE_DEFAULTS
    assert stage.resources == thresher.Resources(cpus=1.0)
    found = inspect.signature(stage.with_).parameters
    assert list(found)[1:] == [*WITH_BY_POSITION, *WITH_BY_NAME]
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in WITH_BY_NAME)


def test_the_decorator_makes_an_instance() -> None:
    @thresher.processing_stage(name="shorten", batch_size=2)
    def shorten(task: thresher.Task) -> thresher.Task:
        return task

    assert isinstance(shorten, thresher.ProcessingStage)
    assert (shorten.name, shorten.batch_size) == ("shorten", 2)


def test_a_pipeline_is_run_with_these_options() -> None:
    found = inspect.signature(thresher.Pipeline.run).parameters
    assert list(found)[1:4] == RUN_BY_POSITION
    assert all(found[name].default is None for name in RUN_BY_POSITION)
    assert {name: found[name].default for name in RUN} == RUN
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in RUN)


@pytest.mark.parametrize("name", RESULT_PROPERTIES)
def test_a_result_has_these_facts(name: str) -> None:
    assert isinstance(inspect.getattr_static(thresher.RunResult, name), property)


@pytest.mark.parametrize("name", EXECUTORS)
def test_executors_take_these_options(name: str) -> None:
    assert EXECUTOR_OPTIONS[name] <= set(load_executor(name).options)


@pytest.mark.parametrize("executor", [thresher.LocalExecutor, thresher.SerialExecutor])
def test_executors_take_options_as_keywords_or_as_config(executor: Any) -> None:
    assert executor(execution_mode="batch").limits() == executor(config={"execution_mode": "batch"}).limits()
    with pytest.raises(errors.UsageError, match=r"unknown option 'exection_mode'\. Did you mean 'execution_mode'\?"):
        executor(exection_mode="batch")


# -- ids, names, sizes ------------------------------------------------------------------------------------------------


def test_ids_depend_on_the_relative_path_alone() -> None:
    assert file12("a/b.jsonl") == "f74d49bc32cd"
    assert unit_id("a/b.jsonl", 7) == f"{file12('a/b.jsonl')}-000007"


def test_the_stem_of_an_output_is_the_name_without_extensions_made_safe() -> None:
    assert file_stem("folder/My file (1).jsonl.gz") == "My_file__1_"
    assert len(file_stem("x" * 100)) == 60


def test_sizes_are_decimal_unless_they_say_i() -> None:
    assert parse_size("64MB") == 64 * 10**6
    assert parse_size("64MiB") == 64 * 2**20


# -- command line -----------------------------------------------------------------------------------------------------


def test_scripts_for_another_curator_are_run_by_these_names() -> None:
    from thresher.compat.nemo import client, finder

    assert (finder.ENABLED, finder.REPLACES, client.EXECUTOR) == (
        "THRESHER_COMPAT",
        "THRESHER_COMPAT_REPLACE",
        "THRESHER_COMPAT_EXECUTOR",
    )
    assert (finder.ORIGINAL, finder.ALIAS) == ("nemo_curator", "thresher.compat.nemo_curator")


def test_every_command_is_there() -> None:
    assert list(cli.COMMANDS) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_these_flags(command: str) -> None:
    module = __import__(f"thresher.cli.commands.{command.replace('-', '_')}", fromlist=["add_arguments"])
    parser = Parser(prog=command, description="")
    module.add_arguments(parser)
    usage = parser.format_help()
    assert all(
        f"{flag} " in usage or f"{flag}]" in usage or f"{flag}\n" in usage for flag in ["--help", *FLAGS[command]]
    )
    assert PLANNED_FLAGS.get(command, set()) <= set(module.PLANNED_FLAGS)


@pytest.mark.parametrize("name", EXIT_CODES)
def test_an_error_has_this_exit_code(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, thresher.ThresherError)
    assert error.exit_code == EXIT_CODES[name]


def test_signals_have_the_exit_codes_of_the_shell() -> None:
    assert (cli.INTERRUPTED, cli.TERMINATED) == (130, 143)


def test_executors_are_named_like_this() -> None:
    assert list(EXECUTORS) == ["local", "serial", "ray", "actor-pool", "ray-data", "xenna"]


def test_the_version_is_told_in_one_place() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["version"] == thresher.__version__
    assert project["scripts"]["thresher"] == "thresher.cli.main:main"


# -- recipes ----------------------------------------------------------------------------------------------------------


def test_a_recipe_has_these_keys() -> None:
    assert set(KEYS) == {"name", "description", "params", "executor", "options", "stages", "outlets"}
    assert {"max_errors", "keep_scores", "dropped_to"} <= set(OPTIONS)
    assert set(SETTINGS) == {
        "name",
        "resources",
        "batch_size",
        "num_workers",
        "timeout_s",
        "max_attempts",
        "drops_to",
    }


def test_the_recipe_of_the_contract_loads() -> None:
    recipe = thresher.load_recipe(
        """
        name: english                                  # required; letters, digits, - and _
        description: what it is for
        params: {input_path: ???, output_path: ???, min_words: 50}       # ??? must be given as key=value
        executor: {name: local, workers: 2, memory: 4GB}                 # or just a name; the command line wins
        options: {max_errors: 5%, keep_scores: false, dropped_to: null}
        stages:
          - JsonlReader: {file_paths: "${input_path}", blocksize: 64MB}
          - WordCountFilter: {min_words: "${min_words}"}
          - ScoreFilter: {filter_obj: [{UrlsFilter: {}}, {RepeatedLinesFilter: {}}], text_field: text}
          - JsonlWriter: {path: "${output_path}"}
        """,
        {"input_path": "in", "output_path": "out", "WordCountFilter.min_words": 80, "executor.workers": 4},
    )
    assert [stage.name for stage in recipe.stages] == ["JsonlReader", "WordCountFilter", "ScoreFilter", "JsonlWriter"]
    assert recipe.executor["workers"] == 4


# -- run folder -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, thresher.RunResult]:
    """A small run with a drop and a broken line: its output folder and its result."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "in").mkdir()
    (folder / "in" / "part.one.jsonl").write_bytes(GOOD_LINES + b"broken\n")
    pipeline = thresher.Pipeline(
        "contract",
        stages=[
            thresher.JsonlReader(str(folder / "in")),
            thresher.ScoreFilter(thresher.WordCountFilter(min_words=2)),
            thresher.JsonlWriter(str(folder / "out")),
        ],
    )
    result = pipeline.run(thresher.SerialExecutor(), dropped_to=str(folder / "dropped"), progress="none")
    return folder / "out", result


def test_a_result_equals_its_report_and_obeys_the_law_of_counts(finished: tuple[Path, thresher.RunResult]) -> None:
    out, result = finished
    assert result.to_dict() == json.loads((out / "_thresher" / "report.json").read_text())
    assert set(result.counts) == COUNTS
    assert result.counts == {"read": 3, "created": 0, "merged": 0, "written": 1, "dropped": 1, "quarantined": 1}
    assert all(set(stage) >= STAGE_COUNTS for stage in result.stages)
    assert result.drop_reasons == {"ScoreFilter/WordCountFilter": 1}
    assert (result.status, result.units_total, result.units_resumed) == ("finished", 1, 0)
    assert [type(task).__name__ for task in result] == ["FileGroupTask"]


def test_the_output_is_named_after_source_and_unit(finished: tuple[Path, thresher.RunResult]) -> None:
    out, result = finished
    name = f"part-{file12('part.one.jsonl')}-000000.jsonl"
    assert [Path(path).name for path in result.output_paths] == [name]
    assert (out / name).read_bytes() == b'{"text": "a b c"}\n'
    dropped = json.loads((out.parent / "dropped" / name).read_text())
    assert list(dropped) == ["text", "_dropped"]
    assert set(dropped["_dropped"]) == {"stage", "rule", "score", "threshold", "id"}


def test_the_run_folder_holds_these_files(finished: tuple[Path, thresher.RunResult]) -> None:
    run = finished[0] / "_thresher"
    assert {path.name for path in run.iterdir()} >= RUN_FILES
    assert (run / "events" / "001").is_dir()
    assert not (run / "tmp").exists() or not any((run / "tmp").iterdir())


def test_the_ledger_and_the_manifest_have_these_keys(finished: tuple[Path, thresher.RunResult]) -> None:
    run = finished[0] / "_thresher"
    (line,) = [json.loads(line) for file in (run / "ledger").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert set(line) >= LEDGER_KEYS
    assert set(line["outputs"][0]) >= OUTPUT_KEYS
    assert line["unit"] == unit_id("part.one.jsonl", 0)
    (listed,) = [json.loads(line) for line in (run / "manifest.jsonl").read_text().splitlines()]
    assert set(listed) >= OUTPUT_KEYS | {"units"}


def test_quarantined_records_are_told_like_this(finished: tuple[Path, thresher.RunResult]) -> None:
    (file,) = (finished[0] / "_thresher" / "quarantine").glob("*.jsonl")
    (line,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert set(line) >= QUARANTINE_KEYS
    assert line["id"] == f"{file12('part.one.jsonl')}:{len(GOOD_LINES)}"
    assert line["record"] == "broken"


def test_run_json_tells_what_every_attempt_was(finished: tuple[Path, thresher.RunResult]) -> None:
    facts = json.loads((finished[0] / "_thresher" / "run.json").read_text())
    assert {"run_id", "name", "fingerprint", "versions", "attempts"} <= set(facts)
    assert facts["attempts"][0].keys() >= ATTEMPT_KEYS
    assert facts["attempts"][0]["exit_code"] == 0


# -- events -----------------------------------------------------------------------------------------------------------


def test_events_and_actions_are_named_like_this() -> None:
    assert all(inspect.isclass(getattr(events, name)) for name in EVENTS)
    assert all(inspect.isclass(getattr(actions, name)) for name in ACTIONS)


def test_the_log_begins_with_a_start_line_and_numbers_the_rest(finished: tuple[Path, thresher.RunResult]) -> None:
    from thresher.observe.event_log import read_log

    first, *rest = [json.loads(line) for line in read_log(finished[0] / "_thresher" / "events" / "001")]
    assert first["n"] == 0
    assert "start" in first
    assert [line["n"] for line in rest] == list(range(1, len(rest) + 1))
    assert all("t" in line and ("event" in line) != ("action" in line) for line in rest)
    assert {line["event"] for line in rest if "event" in line} >= {"WorkerReady", "TaskDone", "UnitCommitted"}
