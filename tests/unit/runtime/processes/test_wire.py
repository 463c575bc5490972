# SPDX-License-Identifier: Apache-2.0
"""Messages arrive whole and in order, whatever their size, and nobody blocks on a full socket."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.runtime.processes.wire import Channel, PeerGone, frame, socket_pair


class Note(msgspec.Struct, array_like=True, tag=True):
    """A message with something in it."""

    data: bytes


class Handle(msgspec.Struct, array_like=True, tag=True):
    """A message that comes with a descriptor."""

    name: str


Message = Note | Handle


Ends = tuple[Channel[Any], Channel[Any]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    left, right = socket_pair()
    channels: Ends = Channel(left, Message), Channel(right, Message)
    yield channels
    for channel in channels:
        channel.close()


@given(st.lists(st.lists(st.binary(max_size=2000), max_size=5), max_size=8), st.integers(1, 4000))
def test_messages_arrive_whole_however_the_stream_is_cut(rounds: list[list[bytes]], cut: int) -> None:
    stream = b"".join(frame([Note(data) for data in texts]) for texts in rounds)
    left, right = socket_pair()
    channel: Channel[Any] = Channel(right, Message)
    received = []
    for start in range(0, len(stream), cut):
        left.sendall(stream[start : start + cut])
        received.extend(channel.receive())
    assert [note.data for note in received] == [data for texts in rounds for data in texts]
    left.close()
    channel.close()


def test_all_messages_of_a_round_are_one_write(ends: Ends) -> None:
    left, right = ends
    for number in range(100):
        left.queue(Note(b"%d" % number))
    assert left.has_unsent
    assert left.flush()
    assert not left.has_unsent
    assert [note.data for note in right.receive(wait=True)] == [b"%d" % number for number in range(100)]


def test_receive_without_waiting_gives_nothing_when_there_is_nothing(ends: Ends) -> None:
    assert ends[1].receive() == []


def test_a_closed_end_is_told_after_all_that_was_sent(ends: Ends) -> None:
    left, right = ends
    left.queue(Note(b"last"))
    left.flush()
    left.sock.close()
    assert [note.data for note in right.receive(wait=True)] == [b"last"]
    with pytest.raises(PeerGone):
        right.receive(wait=True)
    assert right.closed
    assert right.receive() == []


def test_sending_to_a_closed_end_is_no_error(ends: Ends) -> None:
    left, right = ends
    right.sock.close()
    left.queue(Note(b"x"))
    assert left.flush()


def test_descriptors_come_with_their_messages_in_order(ends: Ends) -> None:
    left, right = ends
    left.queue(Note(b"before"))
    for name in ("first", "second"):
        fd = os.memfd_create(name)
        os.write(fd, name.encode())
        left.queue(Handle(name), (fd,))
    left.queue(Note(b"after"))
    left.flush()
    received: list[Any] = []
    while len(received) < 4:
        received.extend(right.receive(wait=True))
    assert [type(message) for message in received] == [Note, Handle, Handle, Note]
    for name in ("first", "second"):
        fd = right.take_fd()
        assert os.pread(fd, 100, 0) == name.encode()
        os.close(fd)


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 20), st.integers(1, 3_000_000))
def test_both_ends_may_send_much_at_once_without_locking_up(count: int, size: int) -> None:
    """1. The worker blocks in a send. 2. The driver sends too, never blocks, and reads. 3. Both get everything."""
    left, right = socket_pair()
    left.setblocking(False)
    driver: Channel[Any] = Channel(left, Message)
    worker: Channel[Any] = Channel(right, Message)
    at_worker: list[Any] = []

    def work() -> None:
        for _ in range(count):
            worker.queue(Note(bytes(size)))
            worker.flush()
        while len(at_worker) < count:
            at_worker.extend(worker.receive(wait=True))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(count):
        driver.queue(Note(bytes(size)))
    at_driver: list[Any] = []
    sent = driver.flush()
    poll = select.poll()
    poll.register(left, select.POLLIN | select.POLLOUT)
    while len(at_driver) < count or not sent:
        poll.modify(left, select.POLLIN if sent else select.POLLIN | select.POLLOUT)
        poll.poll()
        at_driver.extend(driver.receive())
        sent = driver.flush()
    thread.join()
    assert [len(note.data) for note in at_driver] == [size] * count
    assert [len(note.data) for note in at_worker] == [size] * count
    driver.close()
    worker.close()
