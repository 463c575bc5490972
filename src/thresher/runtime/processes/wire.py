# SPDX-License-Identifier: Apache-2.0
"""Frames over a Unix stream socket: four bytes of length, then a msgpack list of messages.

The driver never blocks on a worker: data that a socket does not accept waits in a queue until epoll reports room. A
worker may block, because the driver always reads. So neither large messages nor full sockets cause a deadlock.
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

HEADER_BYTES = 4
READ_BYTES = 256 * 1024
MAX_FRAME = 2**32 - 1
_FDS_PER_READ = 16
_FD_SPACE = socket.CMSG_SPACE(_FDS_PER_READ * array.array("i").itemsize)

In = TypeVar("In")
_encode_into = msgspec.msgpack.Encoder().encode_into


class PeerGone(ConnectionError):
    """Raised when the other end of a connection is closed."""


class Link(Protocol):
    """A worker's end of the connection to the driver."""

    closed: bool
    """True if the driver has exited."""

    @property
    def has_unsent(self) -> bool:
        """True if anything waits to be sent."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a message has arrived."""

    def queue(self, message: Any) -> None:
        """Queue a message for the next `flush`."""

    def flush(self) -> bool:
        """Send the queued messages; return True if nothing is left."""

    def receive(self, *, wait: bool = False) -> list[Any]:
        """Return the messages that have arrived; with `wait` at least one."""

    def take_fd(self) -> int:
        """Return the next descriptor that came with a message."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets; exec closes both unless they are passed on explicitly."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def frame(messages: Sequence[Any]) -> bytearray:
    """Encode messages as one frame."""
    buffer = bytearray(HEADER_BYTES)
    _encode_into(messages, buffer, HEADER_BYTES)
    size = len(buffer) - HEADER_BYTES
    if size > MAX_FRAME:
        raise ValueError(f"a message of {size} bytes is larger than a frame can be ({MAX_FRAME})")
    buffer[:HEADER_BYTES] = size.to_bytes(HEADER_BYTES, "little")
    return buffer


class Channel(Generic[In]):
    """One end of a connection. `incoming` is the type of the messages that arrive here."""

    def __init__(self, sock: socket.socket, incoming: Any) -> None:
        self.sock = sock
        self._decoder: msgspec.msgpack.Decoder[list[In]] = msgspec.msgpack.Decoder(list[incoming])
        self._in = bytearray()
        self._chunk = bytearray(READ_BYTES)
        self._unsent: list[Any] = []
        self._out: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._fds: deque[int] = deque()
        self.closed = False
        """True if the other end is closed and everything it sent was read."""

    def fileno(self) -> int:
        """Return the descriptor for epoll."""
        return self.sock.fileno()

    # -- sending ------------------------------------------------------------------------------------------------------

    def queue(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Queue a message for the next `flush`, in one frame with all queued messages. Descriptors are closed once
        sent."""
        if fds:
            self._close_frame()
            self._out.append((memoryview(frame([message])), fds))
        else:
            self._unsent.append(message)

    def _close_frame(self) -> None:
        if self._unsent:
            self._out.append((memoryview(frame(self._unsent)), ()))
            self._unsent.clear()

    @property
    def has_unsent(self) -> bool:
        """True if anything waits to be sent."""
        return bool(self._unsent or self._out)

    def flush(self) -> bool:
        """Send as much as the socket accepts (everything, if it blocks); return True if nothing is left."""
        self._close_frame()
        while self._out:
            view, fds = self._out.popleft()
            try:
                sent = self._send(view, fds)
            except BlockingIOError:
                self._out.appendleft((view, fds))
                return False
            except (BrokenPipeError, ConnectionResetError):
                self._drop_unsent(fds)
                return True  # the exit of the peer is detected elsewhere
            if sent < len(view):
                self._out.appendleft((view[sent:], ()))
        return True

    def _send(self, view: memoryview, fds: tuple[int, ...]) -> int:
        if not fds:
            return self.sock.send(view)
        sent = socket.send_fds(self.sock, [view], list(fds))
        for fd in fds:
            os.close(fd)
        return sent

    def _drop_unsent(self, fds: tuple[int, ...]) -> None:
        for fd in fds:
            os.close(fd)
        for _, waiting in self._out:
            for fd in waiting:
                os.close(fd)
        self._out.clear()

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, *, wait: bool = False) -> list[In]:
        """Return the messages that have arrived; with `wait` at least one frame, or raise PeerGone if the other end is
        closed."""
        while True:
            messages = self._frames()
            if messages or self.closed:
                if wait and not messages:
                    raise PeerGone("the other end of the connection is closed")
                return messages
            if not self._read(wait):
                return []

    def receive_all(self) -> list[In]:
        """Return all messages sent so far, without waiting (for a process that has exited)."""
        messages: list[In] = []
        while self._read(False):
            messages.extend(self._frames())
        return messages

    def take_fd(self) -> int:
        """Return the next descriptor that came with a message."""
        return self._fds.popleft()

    def _read(self, wait: bool) -> bool:
        """Read once; return True if data or the end of the connection was read."""
        if self.closed:
            return False
        flags = 0 if wait else socket.MSG_DONTWAIT
        try:
            size, ancillary, _, _ = self.sock.recvmsg_into([self._chunk], _FD_SPACE, flags | socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            size, ancillary = 0, []
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self._fds.extend(numbers)
        if not size:
            self.closed = True
        with memoryview(self._chunk) as view:
            self._in += view[:size]
        return True

    def _frames(self) -> list[In]:
        """Return the messages of all complete frames."""
        buffer = self._in
        if len(buffer) < HEADER_BYTES:
            return []
        messages: list[In] = []
        start, end = 0, len(buffer)
        with memoryview(buffer) as view:
            while end - start >= HEADER_BYTES:
                stop = start + HEADER_BYTES + int.from_bytes(view[start : start + HEADER_BYTES], "little")
                if stop > end:
                    break
                with view[start + HEADER_BYTES : stop] as body:
                    messages.extend(self._decoder.decode(body))
                start = stop
        if start:
            del buffer[:start]
        return messages

    def close(self) -> None:
        """Close this end."""
        self._drop_unsent(())
        self.sock.close()
