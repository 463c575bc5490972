# SPDX-License-Identifier: Apache-2.0
"""What an executor cannot honour is refused before work, or left out where the user asked for that; never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from thresher import JsonlWriter, Pipeline, ProcessingStage, Resources, SerialExecutor, Task
from thresher.core.arguments.options import RunOptions, merge_options
from thresher.core.recipes.executors import (
    RUN_SETTINGS,
    STAGE_SETTINGS,
    honoured_by,
    honoured_stages,
    make_executor,
    unmet_settings,
)
from thresher.core.registry import EXECUTORS, EXTRAS, load_executor, require_package
from thresher.core.stage import OrderedStage
from thresher.errors import MissingPackageError, UnsupportedError


class Same(ProcessingStage[Task, Task]):
    name = "same"

    def process(self, task: Task) -> Task:
        return task


class Sorted(OrderedStage[Task, Task]):
    name = "sorted"


class Picky:
    """An executor that honours next to nothing."""

    name = "picky"
    options = ()
    cannot: ClassVar[Mapping[str, str]] = dict.fromkeys([*STAGE_SETTINGS, *RUN_SETTINGS], "it is picky")


ASKING: dict[str, ProcessingStage[Any, Any]] = {
    "timeout_s": Same().with_(timeout_s=3.0),
    "runtime_env": Same().with_(runtime_env={"pip": ["emoji"]}),
    "num_workers": Same().with_(num_workers=2),
    "resources.gpus": Same().with_(resources=Resources(gpus=0.5)),
    "resources.gpu_memory_gb": Same().with_(resources=Resources(gpu_memory_gb=8)),
    "resources.memory_gb": Same().with_(resources=Resources(memory_gb=4)),
    "resources.custom": Same().with_(resources=Resources(custom={"licence": 1})),
    "ordered": Sorted(),
    "standard_stream": JsonlWriter("-"),
    "target_file_size": JsonlWriter("out", target_file_size="1GB"),
}
WAIVABLE = {"timeout_s", "runtime_env", "resources.memory_gb", "resources.custom"}


def test_a_stage_that_asks_for_nothing_is_honoured_by_the_pickiest_executor() -> None:
    stages = [Same(), JsonlWriter("out")]
    assert honoured_stages(stages, RunOptions(), Picky()) == stages


@pytest.mark.parametrize("key", STAGE_SETTINGS)
def test_a_setting_of_a_stage_is_refused_with_stage_value_reason_and_a_way_out(key: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        honoured_stages([ASKING[key]], RunOptions(), Picky())
    text = str(caught.value)
    assert text.startswith(f"executor 'picky' does not honour {ASKING[key].name}")
    assert ": it is picky; " in text
    assert "Leave the setting out" in text
    assert ("--allow-unsupported" in text) == (key in WAIVABLE)
    assert caught.value.exit_code == 2


def test_the_value_stands_in_the_message_and_all_faults_come_at_once() -> None:
    stages = [Same().with_(name="a", timeout_s=3.0), Same().with_(name="b", resources=Resources(custom={"licence": 1}))]
    with pytest.raises(UnsupportedError) as caught:
        honoured_stages(stages, RunOptions(), Picky())
    assert "\n  a.timeout_s=3.0: it is picky; it is honoured by: local" in str(caught.value)
    assert "\n  b.resources.custom={'licence': 1}: it is picky; it is honoured by: local, serial" in str(caught.value)


@pytest.mark.parametrize("key", sorted(WAIVABLE))
def test_what_a_run_may_do_without_is_told_and_left_out_when_the_user_allows_it(key: str) -> None:
    told: list[str] = []
    [left] = honoured_stages([ASKING[key]], RunOptions(), Picky(), told.append)
    assert unmet_settings([left], RunOptions(), Picky.cannot) == []
    assert len(told) == 1
    assert told[0].startswith(f"executor 'picky' does not honour same.{key}=")
    assert told[0].endswith("it is picky; the run goes on without it")
    assert unmet_settings([ASKING[key]], RunOptions(), Picky.cannot), "the stage of the caller stays as it is"


@pytest.mark.parametrize("key", sorted(set(STAGE_SETTINGS) - WAIVABLE))
def test_what_would_change_the_result_is_refused_even_if_the_user_allows_it(key: str) -> None:
    with pytest.raises(UnsupportedError):
        honoured_stages([ASKING[key]], RunOptions(), Picky(), print)


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("initial_tasks", RunOptions(initial_tasks=(Task(),))),
        ("dropped_to", RunOptions(dropped_to="there")),
        ("keep_scores", RunOptions(keep_scores=True)),
    ],
)
def test_an_option_of_a_run_is_refused_too(key: str, options: RunOptions) -> None:
    with pytest.raises(UnsupportedError, match=rf"'picky' does not honour {key}: it is picky"):
        honoured_stages([Same()], options, Picky(), print)


def test_the_options_of_an_executor_are_refused_with_the_reason_also_one_value_of_them() -> None:
    cannot = {"memory": "it keeps no account", "execution_mode=batch": "it only streams"}
    legal = ("execution_mode",)
    assert merge_options("Picky", {"execution_mode": "streaming"}, None, legal, cannot) == {
        "execution_mode": "streaming"
    }
    with pytest.raises(UnsupportedError, match="Picky does not honour execution_mode='batch': it only streams"):
        merge_options("Picky", {"execution_mode": "batch"}, None, legal, cannot)
    with pytest.raises(UnsupportedError, match="Picky does not honour memory='4GB': it keeps no account"):
        merge_options("Picky", {}, {"memory": "4GB"}, legal, cannot)


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_declares_what_it_cannot_in_known_words(name: str) -> None:
    executor = load_executor(name)
    options = {option for other in EXECUTORS for option in load_executor(other).options}
    for key, reason in executor.cannot.items():
        assert key in STAGE_SETTINGS or key in RUN_SETTINGS or key.partition("=")[0] in options, key
        assert reason, key
        assert not reason.endswith("."), "it stands in the middle of a sentence"
        assert key not in executor.options, "an option is honoured or it is not"


def test_those_who_honour_a_setting_are_named() -> None:
    assert "serial" not in honoured_by("timeout_s")
    assert honoured_by("timeout_s")[0] == "local"
    assert "local" not in honoured_by("runtime_env")
    assert honoured_by("no such option") == []


@pytest.mark.parametrize("name", ["local", "serial"])
def test_an_environment_of_its_own_for_a_stage_is_refused_on_one_machine(name: str) -> None:
    pipeline = Pipeline("p", stages=[Same().with_(runtime_env={"pip": ["emoji"]})])
    options = RunOptions(initial_tasks=(Task(),))
    with pytest.raises(UnsupportedError, match=r"does not honour same\.runtime_env=\{'pip': \['emoji'\]\}"):
        make_executor(name, {}).plan(pipeline, options)
    told: list[str] = []
    plan = make_executor(name, {}, told.append).plan(pipeline, options)
    assert plan.stages[0].runtime_env is None
    assert len(told) == 1


def test_a_run_without_the_setting_that_was_left_out_goes_through() -> None:
    executor = SerialExecutor()
    told: list[str] = []
    executor.warn_unsupported = told.append
    pipeline = Pipeline("p", stages=[Same().with_(timeout_s=1.0)])
    result = pipeline.run(executor, initial_tasks=[Task(data=1)], ledger=False, progress="none")
    assert len(result) == 1
    assert told == [
        (
            "executor 'serial' does not honour same.timeout_s=1.0: it has no second process that could end a call; "
            "the run goes on without it"
        )
    ]


def test_a_missing_package_says_which_extra_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for module, extra in EXTRAS.items():
        with pytest.raises(MissingPackageError, match=rf"executor 'x' needs .*: pip install 'thresher\[{extra}\]'"):
            require_package(module, "executor 'x'")
