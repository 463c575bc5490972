# SPDX-License-Identifier: Apache-2.0
"""Where workers are put: shares packed, whole devices kept whole, and messages for what can never fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scheduler.play import Play, only
from thresher.scheduler.actions import Fail
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec
from thresher.scheduler.workers.capacity import PARTS, Need, Nodes, need_of, quotas
from thresher.scheduler.workers.placement import placement_errors

GB = 1_000_000_000


def node(name: str = "n", gpus: int = 0, gpu_gb: int = 24, **more: Any) -> NodeSpec:
    return NodeSpec(node=name, gpus=(gpu_gb * GB,) * gpus, **more)


def own(index: int, **needs: Any) -> OpSpec:
    return OpSpec(index=index, name=f"Stage{index}", next=index + 1, dedicated=True, **needs)


def need(**needs: Any) -> Need:
    return need_of(own(0, **needs))


def spec(*needs: dict[str, Any], nodes: tuple[NodeSpec, ...]) -> RunSpec:
    inner = [own(n + 1, **asked) for n, asked in enumerate(needs)]
    read = OpSpec(index=0, name="read", source=True, next=1)
    write = OpSpec(index=len(inner) + 1, name="write", sink=True, ordered=True)
    return RunSpec(ops=(read, *inner, write), shared_workers=1, budget_bytes=1000, nodes=nodes)


def put(nodes: Nodes, asked: Need) -> tuple[str, tuple[int, ...]] | None:
    place = nodes.find(asked)
    if place is None:
        return None
    nodes.allocate(asked, place)
    return place.node, place.devices


def test_quarters_fill_one_device_before_they_open_the_next() -> None:
    nodes = Nodes((node(gpus=2),))
    assert [put(nodes, need(gpus=0.25)) for _ in range(5)] == [("n", (0,))] * 4 + [("n", (1,))]


def test_a_whole_device_worker_still_fits_after_as_many_shares_as_possible_on_the_other_devices() -> None:
    nodes = Nodes((node("a", gpus=2), node("b", gpus=2)))
    for _ in range(12):
        assert put(nodes, need(gpus=0.25)) is not None
    assert put(nodes, need(gpus=1.0)) is not None
    assert put(nodes, need(gpus=1.0)) is None


@given(st.lists(st.sampled_from([0.1, 0.25, 1 / 3, 0.5]), max_size=30), st.integers(2, 6))
def test_shares_of_one_size_never_take_more_devices_than_they_must(shares: list[float], devices: int) -> None:
    nodes = Nodes((node("a", gpus=devices),))
    share = need(gpus=shares[0] if shares else 0.5)
    count = sum(1 for _ in shares if put(nodes, share) is not None)
    per_device = PARTS // share.parts
    whole = sum(1 for parts in nodes.room["a"].free_parts if parts == PARTS)
    assert whole == devices - -(-count // per_device)


def test_three_thirds_make_one_device() -> None:
    nodes = Nodes((node(gpus=1),))
    assert [put(nodes, need(gpus=1 / 3)) for _ in range(4)] == [("n", (0,))] * 3 + [None]


def test_whole_devices_go_to_the_node_that_they_fill() -> None:
    nodes = Nodes((node("large", gpus=8), node("small", gpus=2)))
    assert put(nodes, need(gpus=2.0)) == ("small", (0, 1))
    assert put(nodes, need(gpus=8.0)) == ("large", tuple(range(8)))


def test_memory_of_a_device_counts_where_the_worker_lands() -> None:
    nodes = Nodes((node("small", gpus=1, gpu_gb=16), node("large", gpus=1, gpu_gb=80)))
    assert put(nodes, need(gpu_memory_bytes=40 * GB)) == ("large", (0,))
    assert put(nodes, need(gpu_memory_bytes=40 * GB)) == ("large", (0,))
    assert put(nodes, need(gpu_memory_bytes=10 * GB)) == ("small", (0,))
    assert put(nodes, need(gpu_memory_bytes=10 * GB)) is None


def test_host_memory_and_named_resources_are_hard_and_cpus_only_spread() -> None:
    nodes = Nodes((node("a", cpus=1.0, memory_bytes=8 * GB, custom={"licence": 1.0}), node("b", cpus=2.0)))
    assert [put(nodes, need()) for _ in range(3)] == [("b", ()), ("a", ()), ("b", ())]
    assert put(nodes, need()) is not None, "more workers than CPUs"
    assert put(nodes, need(custom={"licence": 1.0})) == ("a", ())
    assert put(nodes, need(custom={"licence": 1.0})) is None
    only_a = Nodes((node("a", memory_bytes=8 * GB),))
    assert [put(only_a, need(memory_bytes=5 * GB)) for _ in range(2)] == [("a", ()), None]


def test_what_a_worker_took_is_there_again_when_it_has_gone() -> None:
    nodes = Nodes((node(gpus=2, memory_bytes=8 * GB, custom={"x": 1.0}),))
    before = dict(nodes.room)
    asked = need(gpus=0.3, memory_bytes=GB, custom={"x": 0.5})
    place = nodes.find(asked)
    assert place is not None
    nodes.allocate(asked, place)
    assert nodes.room != before
    nodes.free_room(asked, place)
    assert nodes.room == before


@pytest.mark.parametrize(
    ("asked", "nodes", "message"),
    [
        ({"gpus": 2.0}, (node(gpus=1),), "Stage1 needs gpus=2, the largest node has 1"),
        ({"gpus": 0.5}, (node(),), "Stage1 needs gpus=0.5, the largest node has 0"),
        (
            {"gpu_memory_bytes": 40 * GB},
            (node(gpus=4),),
            "Stage1 needs gpu_memory_gb=40, the largest device has 24 GB",
        ),
        ({"gpu_memory_bytes": 40 * GB}, (node(),), "Stage1 needs gpu_memory_gb=40, no node has a device"),
        (
            {"memory_bytes": 16 * GB},
            (node(memory_bytes=8 * GB),),
            "Stage1 needs memory_gb=16, the largest node has 8 GB",
        ),
        ({"custom": {"tpu": 4.0}}, (node(custom={"tpu": 1.0}),), "Stage1 needs tpu=4, the largest node has 1"),
        (
            {"gpus": 1.0, "memory_bytes": 16 * GB},
            (node("a", gpus=1, memory_bytes=8 * GB), node("b", memory_bytes=64 * GB)),
            "Stage1 needs gpus=1, memory_gb=16 on one node, and no node has all of it",
        ),
        (
            {"gpus": 1.0, "dedicated_workers": 3},
            (node(gpus=2),),
            "Stage1 needs room for 3 workers with gpus=1, beside the other stages there is room for 2",
        ),
    ],
)
def test_what_can_never_fit_is_told_with_what_is_there(
    asked: dict[str, Any], nodes: tuple[NodeSpec, ...], message: str
) -> None:
    assert placement_errors(spec(asked, nodes=nodes)) == [message]


def test_stages_that_fit_alone_but_not_together_are_told_too() -> None:
    found = placement_errors(spec({"gpus": 1.0}, {"gpus": 0.5}, nodes=(node(gpus=1),)))
    assert found == ["Stage2 needs room for 1 worker with gpus=0.5, beside the other stages there is room for 0"]
    assert placement_errors(spec({"gpus": 1.0}, {"gpus": 0.5}, nodes=(node(gpus=2),))) == []


def test_a_run_that_cannot_be_placed_fails_before_it_starts_anything() -> None:
    run = spec({"gpus": 1.0}, nodes=(node(),))
    play = Play(run.ops, nodes=run.nodes)
    assert play.started == [Fail("Stage1 needs gpus=1, the largest node has 0")]


def test_shared_workers_are_spread_over_nodes_by_cpus() -> None:
    assert quotas(6, (node("a", cpus=4.0), node("b", cpus=8.0))) == {"a": 2, "b": 4}
    assert quotas(1, (node("a", cpus=4.0), node("b", cpus=8.0))) == {"a": 0, "b": 1}
    assert quotas(3, (node("a", cpus=1.0), node("b", cpus=1.0))) == {"a": 2, "b": 1}


def test_workers_are_started_with_their_node_and_devices() -> None:
    run = spec({"gpus": 0.5, "dedicated_workers": 2}, {"gpus": 1.0}, nodes=(node("a", gpus=1), node("b", gpus=1)))
    play = Play(run.ops, workers=2, nodes=run.nodes)
    places = sorted((a.op or 0, a.node, a.devices) for a in only(play.started, "StartWorker"))
    whole = next(place for place in places if place[0] == 2)
    shares = [place for place in places if place[0] == 1]
    assert shares[0] == shares[1]
    assert (whole[1], whole[2]) != (shares[0][1], shares[0][2])
    assert [place[1:] for place in places if place[0] == 0] == [("a", ()), ("b", ())]
