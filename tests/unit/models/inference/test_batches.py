# SPDX-License-Identifier: Apache-2.0
"""Forward passes: little padding, rows in the order of the texts, halved when memory runs out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.bert_graph import save_graph
from tests.unit.models.tiny_models import needs_torch, save_labels
from thresher.models.inference.batches import Batches
from thresher.models.token_lists import TokenLists

PAD = 9


class Memory:
    """A model whose memory holds so many tokens: it gives the sum, the first id and the number of ids of each text."""

    pad_id = PAD

    def __init__(self, most_tokens: int | None = None, room: int = 10**9, pads_left: bool = False) -> None:
        self.most_tokens = most_tokens
        self.pads_left = pads_left
        self.room = room
        self.passes: list[tuple[int, int]] = []
        self.failed = 0
        self.error: Exception = MemoryError()

    def forward(self, ids: Any, mask: Any) -> Any:
        if ids.size > self.room:
            self.failed += 1
            raise self.error
        assert (ids[mask == 0] == PAD).all()
        self.passes.append(ids.shape)
        first = ids[np.arange(len(ids)), mask.argmax(axis=1)]
        return np.stack([(ids * mask).sum(axis=1), first * mask.max(axis=1), mask.sum(axis=1)], axis=1)

    def free_memory(self) -> None:
        pass


def expected(lists: list[list[int]]) -> list[list[int]]:
    return [[sum(one), one[0] if one else 0, len(one)] for one in lists]


LISTS = st.lists(st.lists(st.integers(1, 8), max_size=12), min_size=1, max_size=30)


@given(
    LISTS,
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 40)),
    st.booleans(),
    st.booleans(),
    st.integers(12, 80),
)
def test_rows_come_back_in_order_whatever_the_size_of_passes_and_of_memory(
    lists: list[list[int]], most: int, tokens: int | None, sort: bool, left: bool, room: int
) -> None:
    model = Memory(tokens, room, left)
    batches = Batches(model, most, sort=sort)
    assert batches.run(TokenLists.of(lists)).tolist() == expected(lists)
    assert all(items <= most for items, _ in model.passes)


def test_texts_of_a_pass_are_about_equally_long_and_padded_to_the_longest() -> None:
    model = Memory()
    Batches(model, 2).run(TokenLists.of([[1], [1] * 8, [1] * 2, [1] * 7]))
    assert model.passes == [(2, 8), (2, 2)]


def test_a_size_that_does_not_fit_is_halved_once_and_remembered() -> None:
    model, told = Memory(room=40), list[int]()
    batches = Batches(model, 8, on_halving=told.append)
    texts = TokenLists.of([[1] * 10] * 8)
    batches.run(texts)
    batches.run(texts)
    assert told == [4]
    assert model.failed == 1
    assert model.passes == [(4, 10)] * 4
    batches.run(TokenLists.of([[1] * 5] * 8))
    assert model.passes[-1] == (8, 5)


@pytest.mark.parametrize(
    "message",
    ["CUDA out of memory. Tried to allocate 2 GiB", "Failed to allocate memory for requested buffer of size 9"],
)
def test_errors_of_runtimes_that_mean_memory_are_recognised_and_others_raised(message: str) -> None:
    model = Memory(room=20)
    model.error = RuntimeError(message)
    assert Batches(model, 4).run(TokenLists.of([[1] * 10] * 4)).tolist() == [[10, 1, 10]] * 4
    model.error = RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="shapes"):
        Batches(model, 4).run(TokenLists.of([[1] * 10] * 4))
    model.error = MemoryError()
    with pytest.raises(MemoryError):
        Batches(model, 4).run(TokenLists.of([[1] * 21]))


def test_memory_that_torch_really_lacks_is_recognised() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra `transformers`")

    class Greedy(Memory):
        def forward(self, ids: Any, mask: Any) -> Any:
            if len(ids) > 1:
                torch.empty(2**60, dtype=torch.uint8)
            return super().forward(ids, mask)

    model = Greedy()
    assert Batches(model, 4).run(TokenLists.of([[1, 2], [3]])).tolist() == [[3, 1, 2], [3, 3, 1]]
    assert [items for items, _ in model.passes] == [1, 1]


LITTLE_MEMORY = """
import resource, sys
import numpy as np
from thresher.models.inference.batches import Batches
from thresher.models.inference.text_model import ClassifierModel, Runtime
from thresher.models.token_lists import TokenLists
from thresher.models.loading.reference import ModelReference

folder, backend = sys.argv[1:]
model = ClassifierModel(ModelReference(folder, "x"), Runtime(backend)).load(None)
tokens = TokenLists.of([[1 + (n * k) % 19 for k in range(20 + n % 40)] for n in range(1200)])
few = Batches(model, 16)
few.most_tokens = None
expected = few.run(tokens)
many = Batches(model, 1200, on_halving=lambda items: print("halved", items))
many.most_tokens = None
held = int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmData"))) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + 40 * 2**20, resource.RLIM_INFINITY))
found = many.run(tokens)
np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
print("same", found.shape)
"""


@pytest.mark.parametrize("backend", ["onnx", pytest.param("torch", marks=pytest.mark.slow)])
def test_a_process_with_little_memory_gets_the_results_of_one_with_much(tmp_path: Path, backend: str) -> None:
    needs_torch()
    pytest.importorskip("onnx", reason="builds a graph")
    save_labels(tmp_path, ["a", "b"])
    save_graph(tmp_path, classifies=True)
    command = [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path), backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    *halved, last = done.stdout.splitlines()
    assert last == "same (1200, 2)"
    assert halved[0] == "halved 600"
