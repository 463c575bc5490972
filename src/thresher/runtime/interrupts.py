# SPDX-License-Identifier: Apache-2.0
"""Handling of Ctrl-C and SIGTERM: the first signal requests a clean stop, the second one stops the run at once, and the
third one raises wherever the driver is."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

from thresher.stage_errors import ControlSignal

COUNTED_SIGNALS = 2
"""Number of signals that are only counted. Beyond it a signal raises, because the driver may be blocked on a store that
does not respond."""


TERMINATED = 143
"""The exit code after SIGTERM."""


class Interrupted(KeyboardInterrupt, ControlSignal):
    """Raised on Ctrl-C. A `KeyboardInterrupt` that a stage raises itself is of another class."""


class Terminated(SystemExit, ControlSignal):
    """Raised on SIGTERM."""


def _raised_by(number: int) -> BaseException:
    return Terminated(TERMINATED) if number == signal.SIGTERM else Interrupted()


class Interrupts:
    """Count signals inside a `with` block; does nothing outside the main thread."""

    def __init__(self) -> None:
        self.count = 0
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def reason(self) -> str:
        """Reason for the log and the terminal; empty if no signal arrived."""
        return f"interrupted by {self.signal.name}" if self.signal is not None else ""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._received)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if isinstance(error, Interrupted | Terminated):
            self.raise_if_any()

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.signal = self.signal or signal.Signals(number)
        if self.count > COUNTED_SIGNALS:
            raise _raised_by(self.signal)

    def raise_if_any(self) -> None:
        """Raise for the signal that stopped the run; called after the clean stop."""
        if self.signal is signal.SIGTERM:
            raise SystemExit(TERMINATED) from None
        if self.signal is not None:
            raise KeyboardInterrupt from None  # not a subclass: only for this class does Python exit by the signal


@contextlib.contextmanager
def signals_raise(*numbers: signal.Signals) -> Iterator[None]:
    """Make these signals raise `Interrupted` or `Terminated` inside the block; works in the main thread only."""

    def received(number: int, frame: FrameType | None) -> None:
        raise _raised_by(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, received) for number in numbers} if is_main else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
