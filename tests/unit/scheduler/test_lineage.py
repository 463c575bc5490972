# SPDX-License-Identifier: Apache-2.0
"""The lineage tree against a plain model: a set of paths, sorted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thresher.scheduler.load import first_leaf
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.scheduler.state import DONE, State, TaskState, UnitState
from thresher.scheduler.units import link, subtree, unlink

SPEC = RunSpec(ops=(OpSpec(index=0, name="x", source=True),), shared_workers=1, budget_bytes=1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=80))
def test_the_first_leaf_is_the_first_path_that_has_nothing_below_it(moves: list[tuple[bool, int]]) -> None:
    state = State(SPEC)
    unit = UnitState("u", (0, 0, 0), state.ops[0])
    live: list[TaskState] = []  # tasks that have not ended
    tree: list[TaskState] = []  # these, and ended ones that wait for children
    for number, (grow, which) in enumerate(moves):
        if grow or not live:
            parent: TaskState | UnitState = live[which % len(live)] if live and which % 3 else unit
            task = TaskState(number, unit, state.ops[0], (*parent.key, parent.ordinal), 0)
            parent.ordinal += 1
            link(state, parent, task)
            live.append(task)
            tree.append(task)
        else:
            task = live.pop(which % len(live))
            task.state = DONE
            if task.first is None:
                unlink(task)
        tree = [t for t in tree if t in live or any(c.key[: len(t.key)] == t.key and c is not t for c in live)]
        assert [t.key for t in subtree(unit)] == sorted(t.key for t in tree)
        leaves = [t for t in tree if not any(c.key[: len(t.key)] == t.key and c is not t for c in tree)]
        assert first_leaf(unit) is min(leaves, key=lambda t: t.key, default=None)
