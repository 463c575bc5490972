# SPDX-License-Identifier: Apache-2.0
"""A run that cannot work is refused before it starts, with the op named."""

from __future__ import annotations

from typing import Any

import pytest

from thresher.scheduler.model import OpSpec, RunSpec

SOURCE = OpSpec(index=0, name="read", source=True, next=1)
SINK = OpSpec(index=1, name="write", sink=True, ordered=True)


@pytest.mark.parametrize(
    ("ops", "settings", "message"),
    [
        ((SOURCE, OpSpec(index=0, name="x")), {}, "op 0 'x' is at position 1"),
        ((SOURCE, OpSpec(index=1, name="x", sink=True)), {}, "op 1 'x' has ordered=False"),
        ((OpSpec(index=0, name="x", source=True, sink=True, next=1), SINK), {}, "a sink and has next=1"),
        ((OpSpec(index=0, name="x", source=True, next=0),), {}, "op 0 'x' has next=0; legal is a later op"),
        ((SOURCE, OpSpec(index=1, name="x", source=True)), {}, "op 0 'read' has next=1, which is a source"),
        ((SOURCE, OpSpec(index=1, name="x", batch_size=0)), {}, "batch_size=0"),
        ((SOURCE, OpSpec(index=1, name="x", dedicated_workers=0)), {}, "dedicated_workers=0"),
        ((SOURCE, SINK), {"shared_workers": 0}, "shared_workers is 0"),
        ((SOURCE, SINK), {"depth": 0}, "depth is 0"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(ops: tuple[OpSpec, ...], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RunSpec(**{"ops": ops, "shared_workers": 1, "budget_bytes": 1, **settings})
