# SPDX-License-Identifier: Apache-2.0
"""The least memory of a plan, and chunks that fit it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher import JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage, Resources, Task
from thresher.core.planning.plan import CHUNK_BYTES
from thresher.errors import UsageError
from thresher.runtime.memory import floor as memory_floor_module
from thresher.runtime.memory.floor import CHUNK_SHARE, chunk_bytes, memory_floor


class Model(ProcessingStage[Task, Task]):
    """Asks for memory of its own."""

    name = "model"

    def process(self, task: Task) -> Task:
        return task


def floor_of(*stages: ProcessingStage[Task, Task], workers: int) -> int:
    """What a plan needs on an executor with plenty."""
    executor = LocalExecutor(workers=workers, memory="8GB")
    plan = executor.plan(Pipeline("p", stages=[JsonlReader("in"), *stages, JsonlWriter("out")]))
    return memory_floor(plan, executor.limits())


@pytest.fixture(autouse=True, scope="module")
def input_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A current folder with an input, because a plan looks for it; and a program of a usual size, because it counts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_floor_module, "proportional_bytes", lambda pid: 100 * 10**6)
        patch.chdir(tmp_path_factory.mktemp("floor"))
        Path("in").mkdir()
        yield Path("in")


def test_the_floor_grows_with_workers_and_with_what_stages_ask_for() -> None:
    few, many = floor_of(workers=2), floor_of(workers=16)
    assert few < many < 10 * few
    asking = floor_of(Model().with_(resources=Resources(memory_gb=1), num_workers=2), workers=2)
    assert asking > few + 2 * 10**9


def test_less_than_the_floor_is_refused_with_the_floor_and_what_to_do() -> None:
    executor = LocalExecutor(workers=40, memory="300MB")
    with pytest.raises(UsageError, match="that this plan needs with 40 workers; give at least that, or fewer workers"):
        executor.plan(Pipeline("p", stages=[JsonlReader("in"), JsonlWriter("out")]))


def test_a_program_that_is_large_itself_is_told_that_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalExecutor(workers=2, memory="500MB")
    pipeline = Pipeline("p", stages=[JsonlReader("in"), JsonlWriter("out")])
    monkeypatch.setattr(memory_floor_module, "proportional_bytes", lambda pid: 700 * 10**6)
    with pytest.raises(UsageError, match=r"fewer workers \(this Python process already uses 700.0 MB, which counts\)"):
        executor.plan(pipeline)
    monkeypatch.setattr(memory_floor_module, "proportional_bytes", lambda pid: 30 * 10**6)
    executor.plan(pipeline)


def test_the_floor_itself_is_enough() -> None:
    floor = floor_of(workers=2)
    executor = LocalExecutor(workers=2, memory=floor + 10**7)  # this process may grow a little meanwhile
    plan = executor.plan(Pipeline("p", stages=[JsonlReader("in"), JsonlWriter("out")]))
    assert plan.settings.memory_bytes == floor + 10**7


@given(st.integers(min_value=10**8, max_value=10**12), st.integers(min_value=1, max_value=1000))
def test_chunks_of_all_workers_stay_within_their_share_or_are_as_small_as_they_get(memory: int, workers: int) -> None:
    size = chunk_bytes(memory, workers, CHUNK_BYTES)
    assert 65536 <= size <= CHUNK_BYTES
    assert size == 65536 or size * workers <= memory // CHUNK_SHARE
