# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM: the first one is a request, the second one ends at once, the third one whatever is going on."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

PATIENCE = 2
"""So many signals are only counted; who counts them may be waiting for a store that does not answer."""


class Interrupts:
    """Counts signals while it is entered; outside the main thread it counts nothing."""

    def __init__(self) -> None:
        self.count = 0
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def reason(self) -> str:
        """For the log and the terminal."""
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

    def _received(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.signal = self.signal or signal.Signals(number)
        if self.count > PATIENCE:
            self.raise_if_any()

    def raise_if_any(self) -> None:
        """After the clean end: tell the caller what ended the run."""
        if self.signal is signal.SIGTERM:
            raise SystemExit(143)
        if self.signal is not None:
            raise KeyboardInterrupt
