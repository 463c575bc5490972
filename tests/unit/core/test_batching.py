# SPDX-License-Identifier: Apache-2.0
"""Sizes of calls: halved where memory runs out, remembered, growing again slowly."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.batching import MIN_PATIENCE, FittingSize, InferenceBatcher
from thresher.errors import UsageError
from thresher.stage_errors import is_out_of_memory

pytestmark = pytest.mark.usefixtures("small_heap")


class TorchLikeOutOfMemoryError(RuntimeError):
    """Named and worded like torch's, without torch."""


TorchLikeOutOfMemoryError.__name__ = "OutOfMemoryError"


class OnnxLikeFail(Exception):
    """A stand-in for what ONNX Runtime raises, whose errors are no RuntimeErrors."""


OnnxLikeFail.__module__ = "onnxruntime.capi.onnxruntime_pybind11_state"


class FakeModel:
    """A stand-in for a model on an accelerator: passes of more than `room` items run out of memory."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.passes: list[int] = []

    def score(self, items: Sequence[int]) -> list[int]:
        """Twice each item."""
        self.passes.append(len(items))
        if len(items) > self.room:
            raise TorchLikeOutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return [2 * item for item in items]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        TorchLikeOutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
        OnnxLikeFail("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 4294967296"),
    ],
    ids=str,
)
def test_errors_of_libraries_that_ran_out_of_memory_are_known(error: Exception) -> None:
    assert is_out_of_memory(error)
    wrapped = ValueError("the model failed")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a document about an out of memory error"),
        RuntimeError("shapes differ"),
        OSError(errno.ENOSPC, "full"),
    ],
    ids=str,
)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)


@given(
    st.lists(st.integers(), max_size=200),
    st.integers(min_value=1, max_value=64),
    st.integers(min_value=1, max_value=64),
)
def test_every_item_gets_its_own_result_whatever_fits(items: list[int], size: int, room: int) -> None:
    model = FakeModel(room)
    batcher = InferenceBatcher(size)
    assert batcher.run(model.score, items) == [2 * item for item in items]
    assert all(taken <= size for taken in model.passes)


def test_the_size_that_works_is_kept_for_the_next_call() -> None:
    model = FakeModel(room=10)
    batcher = InferenceBatcher(64)
    batcher.run(model.score, list(range(100)))
    assert batcher.size == 8
    model.passes.clear()
    batcher.run(model.score, list(range(100)))
    assert max(model.passes) == 8


def test_the_size_grows_again_slowly_and_never_beyond_what_was_asked() -> None:
    model = FakeModel(room=10)
    batcher = InferenceBatcher(16)
    batcher.run(model.score, list(range(16)))
    assert batcher.size == 8
    model.room = 1000
    batcher.run(model.score, list(range(8 * 2 * MIN_PATIENCE)))
    assert batcher.size == 10
    batcher.run(model.score, list(range(10_000)))
    assert batcher.size == 16


def test_an_item_that_does_not_fit_alone_raises_what_the_model_raised() -> None:
    model = FakeModel(room=0)
    with pytest.raises(TorchLikeOutOfMemoryError):
        InferenceBatcher(4).run(model.score, [1, 2, 3])
    assert model.passes == [3, 1]


def test_other_errors_of_the_model_are_not_tried_again() -> None:
    calls = []

    def forward(items: Sequence[int]) -> list[int]:
        calls.append(len(items))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        InferenceBatcher(4).run(forward, [1, 2, 3])
    assert calls == [3]


def test_a_model_that_gives_too_few_results_is_told_so() -> None:
    with pytest.raises(ValueError, match="got 3 items and gave 2 results"):
        InferenceBatcher(4).run(lambda items: items[1:], [1, 2, 3])


@pytest.mark.parametrize("size", [0, -1, True, 1.5, "8"])
def test_a_size_that_is_none_is_refused_by_name(size: object) -> None:
    with pytest.raises(UsageError, match="model_inference_batch_size"):
        InferenceBatcher(size)  # type: ignore[arg-type]  # the point of the test


@given(st.lists(st.tuples(st.booleans(), st.integers(min_value=1, max_value=10**6)), max_size=100))
def test_a_limit_is_at_least_one_and_below_what_failed_last(calls: list[tuple[bool, int]]) -> None:
    fits = FittingSize()
    for worked, size in calls:
        if worked:
            fits.worked(size)
        else:
            fits.ran_out(size)
            assert fits.limit is not None
            assert fits.limit <= max(1, size // 2)
        assert fits.limit is None or fits.limit >= 1
