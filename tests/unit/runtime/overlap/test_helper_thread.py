# SPDX-License-Identifier: Apache-2.0
"""A second thread serves a worker while its stage computes, and at no other time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from thresher.runtime.overlap.helper_thread import Attendant, attended_by, call_stage


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_errands_are_done_while_the_stage_computes(pipe: tuple[int, int]) -> None:
    done = threading.Event()
    with attended_by(Attendant(done.set, pipe[0])):
        assert call_stage(lambda _: done.wait(10), None), "the stage waits for the errand"


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
        return came.wait(10)

    with attended_by(Attendant(errands, pipe[0])):
        assert call_stage(stage, None)
    assert seen == [b"news"]


def test_no_errand_runs_while_the_worker_is_at_its_desk(pipe: tuple[int, int]) -> None:
    errands_done = 0

    def errands() -> None:
        nonlocal errands_done
        errands_done += 1

    with attended_by(Attendant(errands, pipe[0])):
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

    with attended_by(Attendant(errands, pipe[0])), pytest.raises(ConnectionError, match="the driver is gone"):
        call_stage(lambda _: failed.wait(10), None)


def test_an_error_of_the_stage_reaches_the_worker(pipe: tuple[int, int]) -> None:
    def stage(_: object) -> None:
        raise ValueError("odd")

    with attended_by(Attendant(lambda: None, pipe[0])):
        with pytest.raises(ValueError, match="odd"):
            call_stage(stage, None)
        assert call_stage(abs, -1) == 1, "and the next call works"


def test_without_an_attendant_a_stage_is_just_called() -> None:
    assert call_stage(abs, -2) == 2
