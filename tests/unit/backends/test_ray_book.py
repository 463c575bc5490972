# SPDX-License-Identifier: Apache-2.0
"""What the driver knows about payloads in Ray's object store: each object is let go exactly when nobody needs it."""

from __future__ import annotations

from typing import Any

import pytest

from thresher.core.task import Task
from thresher.runtime.payload import Payload, decode_inline, encode
from thresher.runtime.payload_store import PayloadMissing

pytest.importorskip("ray", reason="ray is not installed")

from thresher.backends import ray_book
from thresher.backends.ray_book import RefBook


def payload(worker: int, number: int) -> Payload:
    return Payload((10,), b"", worker, number)


def test_objects_are_numbered_as_their_worker_numbered_them() -> None:
    book = RefBook()
    assert book.came(7, 1, ["a", "b"]) == 3
    assert book.came(7, 3, ["c"]) == 4
    book.came(8, 1, ["d"])
    tasks = [book.add(payload(7, 3)), book.add(payload(7, 1)), book.add(payload(8, 1))]
    assert [book.lend(task)[1] for task in tasks] == [[((7, 3), "c")], [((7, 1), "a")], [((8, 1), "d")]]


def test_a_released_payload_is_let_go_and_releasing_it_again_changes_nothing() -> None:
    book = RefBook()
    book.came(1, 1, ["a"])
    task = book.add(payload(1, 1))
    book.release(task)
    book.release(task)
    assert book._refs == {}


def test_what_no_message_will_speak_of_is_let_go() -> None:
    book = RefBook()
    book.came(1, 1, ["a", "b", "c"])
    book.unspoken(1, [1, 3])
    assert book._refs == {(1, 2): "b"}


def test_small_payloads_travel_with_their_message() -> None:
    book = RefBook()
    inline = encode(Task(data="grain")).inline()
    task = book.add(inline)
    assert book.lend(task) == (inline, [])
    assert decode_inline(book.take(task)).data == "grain"


def test_a_result_is_taken_out_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode(Task(data="grain"))
    objects: dict[str, Any] = {"object": [encoded.head]}
    monkeypatch.setattr(ray_book.ray, "get", objects.__getitem__)
    book = RefBook()
    book.came(1, 1, ["object"])
    task = book.add(Payload((len(encoded.head),), b"", 1, 1))
    assert decode_inline(book.take(task)).data == "grain"
    assert book._refs == {}


def test_a_result_whose_object_is_lost_is_a_missing_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(ref: str) -> Any:
        raise ray_book.ray.exceptions.RaySystemError("gone")

    monkeypatch.setattr(ray_book.ray, "get", get)
    book = RefBook()
    book.came(4, 1, ["object"])
    with pytest.raises(PayloadMissing, match="a result of worker 4 is lost"):
        book.fetch(payload(4, 1))


def test_what_the_workers_of_a_lost_node_made_is_known() -> None:
    book = RefBook()
    book.came(1, 1, ["a", "b"])
    book.came(2, 1, ["c"])
    first, _, third = book.add(payload(1, 1)), book.add(payload(2, 1)), book.add(payload(1, 2))
    book.add(encode(Task(data="small")).inline())
    assert book.made_by({1, 9}) == [first, third]
