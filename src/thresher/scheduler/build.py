# SPDX-License-Identifier: Apache-2.0
"""Build the initial state from the spec."""

from __future__ import annotations

from thresher.scheduler.model import RunSpec
from thresher.scheduler.state import Op, State, chain
from thresher.scheduler.workers.pools import Pool


def build(spec: RunSpec) -> State:
    """Return the state before the first event: ops linked, pools created, no workers."""
    state = State(spec)
    for op in state.ops:
        if op.spec.next is not None:
            op.next = state.ops[op.spec.next]
    for op in state.ops:
        op.upstream = tuple(o for o in state.ops if op in chain(o)[1:])
        op.limit = limit_bytes(spec, op)
        op.gated = any(o.ordered for o in chain(op))
        op.gathers = any(o.spec.by_unit for o in chain(op))
    distance = {op.index: len(chain(op)) for op in state.ops}
    order = sorted(state.ops, key=lambda op: (distance[op.index], op.index))
    shared = [op for op in order if not op.spec.has_own_workers]
    if shared:
        state.pools.append(Pool(shared, None, spec))
    for op in order:
        if op.spec.has_own_workers:
            state.pools.append(Pool([op], op.spec, spec))
    state.measuring = any(pool.balances for pool in state.pools)
    for pool in state.pools:
        for op in pool.inner + pool.sources:
            op.pool = pool
    for op in shared:
        if op.spec.cpus > 1:
            op.tracked = True
            op.max_seats = max(1, int(spec.shared_workers / op.spec.cpus))
    return state


def limit_bytes(spec: RunSpec, op: Op) -> int:
    """Return the bytes in flight up to which an op may start: half the budget for sources, all of it for the last
    op that emits.

    If a source could fill the budget alone, downstream ops would have no room to emit and run one task at a time.
    """
    before = max((len(chain(o)) - len(chain(op)) for o in op.upstream), default=0)
    behind = sum(1 for o in chain(op)[1:] if o.emits)
    if behind == 0:
        return spec.budget_bytes
    return spec.budget_bytes // 2 + spec.budget_bytes // 2 * before // (before + behind)
