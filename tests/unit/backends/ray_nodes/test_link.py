# SPDX-License-Identifier: Apache-2.0
"""A worker's side of Ray, without Ray: frames in order, payloads counted, what came is opened as often as it came."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import msgspec
import pytest

from thresher.core.task import Task
from thresher.runtime.payloads.payload import Payload, PayloadMissing, decode_inline, encode
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import PeerGone

pytest.importorskip("ray", reason="ray is not installed")

from thresher.backends.ray_nodes import link as ray_link
from thresher.backends.ray_nodes.link import ObjectStore, PayloadRefs, RayLink


def frame(*tasks: int) -> bytes:
    return msgspec.msgpack.encode([msg.Credit(task, 0) for task in tasks])


def credits(messages: list[Any]) -> list[int]:
    return [message.task for message in messages]


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_frames_are_read_in_the_order_they_were_sent_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    link = RayLink()
    for number in order:
        link.deliver(number, frame(2 * number + 1, 2 * number + 2), [])
    assert credits(link.receive()) == [1, 2, 3, 4, 5, 6]


def test_a_frame_waits_for_one_that_was_sent_before_it() -> None:
    link = RayLink()
    link.deliver(1, frame(2), [])
    assert link.receive() == []
    link.deliver(0, frame(1), [])
    assert credits(link.receive(wait=True)) == [1, 2]


def test_a_worker_that_waits_wakes_up_for_a_message() -> None:
    link = RayLink()
    threading.Timer(0.05, link.deliver, (0, frame(7), [])).start()
    assert credits(link.receive(wait=True)) == [7]


def test_what_is_queued_goes_out_as_one_frame_and_the_stream_ends_with_the_link() -> None:
    link = RayLink()
    link.queue(msg.Started(1))
    link.queue(msg.Grown(2))
    assert link.has_unsent
    link.flush()
    link.flush()
    link.close()
    ((sent, count, freed),) = link.frames()
    assert msgspec.msgpack.decode(sent, type=list[msg.FromWorker]) == [msg.Started(1), msg.Grown(2)]
    assert (count, freed) == (0, [])


# -- payloads that go -------------------------------------------------------------------------------------------------


class Taker:
    """Stands for Ray: takes objects out of the stream."""

    def __init__(self, store: ObjectStore) -> None:
        self.taken: list[Any] = []
        self._stream = store.objects()
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        self.taken.extend(self._stream)

    def join(self) -> None:
        self._thread.join()


def test_a_frame_tells_how_many_payloads_were_stored_and_which_of_them_nobody_will_speak_of() -> None:
    link = RayLink()
    store = ObjectStore(link, 5)
    taker = Taker(store)
    first, second = (store.put(encode(Task(data=bytes(1000)))) for _ in range(2))
    assert (first.arena, first.offset, second.offset) == (5, 1, 2)
    store.free(second.offset)
    link.queue(msg.Started(0))
    link.flush()
    store.put(encode(Task(data=bytes(1000))))
    link.queue(msg.Started(0))
    link.close()
    store.close()
    taker.join()
    assert [(count, freed) for _, count, freed in link.frames()] == [(2, [2]), (1, [])]
    assert len(taker.taken) == 3


def test_a_worker_ends_where_ray_cannot_store_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_link, "LOOK_S", 0.01)
    store = ObjectStore(RayLink(), 1)
    stream = store.objects()

    def fail() -> None:
        next(stream)
        stream.close()  # as Ray does with a stream whose object it could not store

    thread = threading.Thread(target=fail)
    thread.start()
    with pytest.raises(PeerGone, match=r"could not take a payload of .* MB"):
        store.put(encode(Task(data=bytes(1000))))
    thread.join()


# -- payloads that come -----------------------------------------------------------------------------------------------


def lent(monkeypatch: pytest.MonkeyPatch, objects: dict[str, Any]) -> None:
    def get(ref: str, timeout: float) -> Any:
        found = objects[ref]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(ray_link.ray, "get", get)


def parts_of(task: Task) -> tuple[Payload, list[Any]]:
    encoded = encode(task)
    assert not encoded.buffers
    return Payload(encoded.lengths or (len(encoded.head),), b"", 3, 1), [encoded.head]


def test_a_payload_that_was_taken_back_and_sent_again_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    payload, parts = parts_of(Task(data="grain"))
    lent(monkeypatch, {"object": parts})
    link = RayLink()
    reader = ObjectStore(link, 1).reader()
    link.deliver(0, frame(), [((3, 1), "object"), ((3, 1), "object")])
    reader.give_up(payload)
    assert reader.open(payload).data == "grain"
    assert link.refs == {}, "nothing keeps the object alive"


def test_an_object_that_is_lost_is_a_missing_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    payload, _ = parts_of(Task(data="grain"))
    lent(monkeypatch, {"object": ray_link.ray.exceptions.RaySystemError("gone")})
    link = RayLink()
    reader = ObjectStore(link, 1).reader()
    link.deliver(0, frame(), [((3, 1), "object")])
    with pytest.raises(PayloadMissing, match="a payload of worker 3 is lost"):
        reader.open(payload)
    assert link.refs == {}


def test_nobody_waits_for_a_payload_whose_node_is_known_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    payload, _ = parts_of(Task(data="grain"))
    asked: list[str] = []
    link = RayLink()

    def get(ref: str, timeout: float) -> Any:
        asked.append(ref)
        if len(asked) == 2:
            link.lost.add(3)  # the driver says so while the worker waits
        raise ray_link.ray.exceptions.GetTimeoutError("Ray does not know yet")

    monkeypatch.setattr(ray_link.ray, "get", get)
    reader = ObjectStore(link, 1).reader()
    link.deliver(0, frame(), [((3, 1), "object")])
    with pytest.raises(PayloadMissing, match="a payload of worker 3 is lost with its node"):
        reader.open(payload)
    assert len(asked) == 2


# -- payloads, as the driver tracks them -------------------------------------------------------------------------------


def payload(worker: int, number: int) -> Payload:
    return Payload((10,), b"", worker, number)


def test_objects_are_numbered_as_their_worker_numbered_them() -> None:
    book = PayloadRefs()
    assert book.register(7, 1, ["a", "b"]) == 3
    assert book.register(7, 3, ["c"]) == 4
    book.register(8, 1, ["d"])
    tasks = [book.add(payload(7, 3)), book.add(payload(7, 1)), book.add(payload(8, 1))]
    assert [book.lend(task)[1] for task in tasks] == [[((7, 3), "c")], [((7, 1), "a")], [((8, 1), "d")]]


def test_a_released_payload_is_let_go_and_releasing_it_again_changes_nothing() -> None:
    book = PayloadRefs()
    book.register(1, 1, ["a"])
    task = book.add(payload(1, 1))
    book.release(task)
    book.release(task)
    assert book._refs == {}


def test_what_no_message_will_speak_of_is_let_go() -> None:
    book = PayloadRefs()
    book.register(1, 1, ["a", "b", "c"])
    book.discard(1, [1, 3])
    assert book._refs == {(1, 2): "b"}


def test_small_payloads_travel_with_their_message() -> None:
    book = PayloadRefs()
    inline = encode(Task(data="grain")).inline()
    task = book.add(inline)
    assert book.lend(task) == (inline, [])
    assert decode_inline(book.take(task)).data == "grain"


def test_a_result_is_taken_out_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode(Task(data="grain"))
    objects: dict[str, Any] = {"object": [encoded.head]}
    monkeypatch.setattr(ray_link.ray, "get", objects.__getitem__)
    book = PayloadRefs()
    book.register(1, 1, ["object"])
    task = book.add(Payload((len(encoded.head),), b"", 1, 1))
    assert decode_inline(book.take(task)).data == "grain"
    assert book._refs == {}


def test_a_result_whose_object_is_lost_is_a_missing_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(ref: str) -> Any:
        raise ray_link.ray.exceptions.RaySystemError("gone")

    monkeypatch.setattr(ray_link.ray, "get", get)
    book = PayloadRefs()
    book.register(4, 1, ["object"])
    with pytest.raises(PayloadMissing, match="a result of worker 4 is lost"):
        book.fetch(payload(4, 1))


def test_what_the_workers_of_a_lost_node_made_is_known() -> None:
    book = PayloadRefs()
    book.register(1, 1, ["a", "b"])
    book.register(2, 1, ["c"])
    first, _, third = book.add(payload(1, 1)), book.add(payload(2, 1)), book.add(payload(1, 2))
    book.add(encode(Task(data="small")).inline())
    assert book.made_by({1, 9}) == [first, third]
