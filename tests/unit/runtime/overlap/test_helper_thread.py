# SPDX-License-Identifier: Apache-2.0
"""A second thread serves a worker while its stage computes, and at no other time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thresher.core.function_stage import FunctionStage
from thresher.core.tally import context_of
from thresher.core.task import Task
from thresher.runtime.overlap import helper_thread
from thresher.runtime.overlap.helper_thread import HelperThread, helped_by
from thresher.runtime.worker.call import call, prepare


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def call_stage(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call something as a stage is called in a worker with a helper thread."""
    assert helper_thread.helper is not None
    return helper_thread.helper.call(function, argument)


def test_errands_are_done_while_the_stage_computes(pipe: tuple[int, int]) -> None:
    done = threading.Event()
    with helped_by(HelperThread(done.set, pipe[0])):
        assert call_stage(lambda _: done.wait(100), None), "the stage waits for the errand"


def test_a_message_that_comes_while_the_stage_computes_is_seen_to(pipe: tuple[int, int]) -> None:
    seen: list[bytes] = []
    came = threading.Event()

    def errands() -> None:
        os.set_blocking(pipe[0], False)
        try:
            seen.append(os.read(pipe[0], 10))
            came.set()
        except BlockingIOError:
            pass

    def stage(_: object) -> bool:
        os.write(pipe[1], b"news")
        return came.wait(100)

    with helped_by(HelperThread(errands, pipe[0])):
        assert call_stage(stage, None)
    assert seen == [b"news"]


def test_no_errand_runs_while_the_worker_is_at_its_desk(pipe: tuple[int, int]) -> None:
    errands_done = 0

    def errands() -> None:
        nonlocal errands_done
        errands_done += 1

    with helped_by(HelperThread(errands, pipe[0])):
        os.write(pipe[1], b"x")  # there is always a message
        for _ in range(200):
            call_stage(lambda _: None, None)
            before = errands_done
            for _ in range(1000):
                assert errands_done == before


def test_what_goes_wrong_in_an_errand_is_raised_in_the_worker(pipe: tuple[int, int]) -> None:
    failed = threading.Event()

    def errands() -> None:
        failed.set()
        raise ConnectionError("the driver is gone")

    with helped_by(HelperThread(errands, pipe[0])), pytest.raises(ConnectionError, match="the driver is gone"):
        call_stage(lambda _: failed.wait(100), None)


def test_an_error_of_the_stage_reaches_the_worker(pipe: tuple[int, int]) -> None:
    def stage(_: object) -> None:
        raise ValueError("odd")

    with helped_by(HelperThread(lambda: None, pipe[0])):
        with pytest.raises(ValueError, match="odd"):
            call_stage(stage, None)
        assert call_stage(abs, -1) == 1, "and the next call works"


@pytest.mark.parametrize("is_helped", [True, False])
def test_a_stage_is_called_with_a_helper_or_without(pipe: tuple[int, int], is_helped: bool) -> None:
    task = Task()
    one = prepare(context_of(FunctionStage(lambda given: given)), [task])
    with helped_by(HelperThread(lambda: None, pipe[0])) if is_helped else contextlib.nullcontext():
        call(one)
    assert one.is_made
    assert one.made is task
