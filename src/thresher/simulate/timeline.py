# SPDX-License-Identifier: Apache-2.0
"""Amounts over time in a fixed number of bins, which are merged in pairs when time exceeds the last one."""

from __future__ import annotations

from math import ceil

BINS = 480


class Timeline:
    """Busy time of several series and the peaks of one level, over a time of unknown length."""

    def __init__(self, series: int, width_s: float = 0.01) -> None:
        self.width_s = width_s
        self.busy: list[list[float]] = [[0.0] * BINS for _ in range(series)]
        self.level = [0.0] * BINS

    def add(self, series: int, start_s: float, end_s: float, weight: float = 1.0) -> None:
        """Add busy time from `start_s` to `end_s`."""
        while end_s >= self.width_s * BINS:
            self._merge()
        width = self.width_s
        first, last = int(start_s / width), int(end_s / width)
        bins = self.busy[series]
        if first == last:
            bins[first] += (end_s - start_s) * weight
            return
        bins[first] += ((first + 1) * width - start_s) * weight
        whole = width * weight
        for place in range(first + 1, last):
            bins[place] += whole
        bins[last] += (end_s - last * width) * weight

    def reach(self, time_s: float, level: float) -> None:
        """Record a level at a time; each bin keeps its highest one."""
        while time_s >= self.width_s * BINS:
            self._merge()
        place = int(time_s / self.width_s)
        if level > self.level[place]:
            self.level[place] = level

    def rates(self, series: int, end_s: float) -> list[float]:
        """Return the mean number of busy workers by bin, up to the end."""
        used = self._used(end_s)
        rates = [amount / self.width_s for amount in self.busy[series][:used]]
        part = end_s - (used - 1) * self.width_s
        if part > 0:
            rates[-1] *= self.width_s / max(part, self.width_s / 10)
        return rates

    def levels(self, end_s: float) -> list[float]:
        """Return the level by bin, up to the end."""
        return self.level[: self._used(end_s)]

    def _used(self, end_s: float) -> int:
        """Return the number of bins up to the end, with a tolerance for rounding."""
        return max(1, min(BINS, ceil(end_s / self.width_s - 1e-6)))

    def _merge(self) -> None:
        self.width_s *= 2
        for bins in self.busy:
            bins[:] = [bins[n] + bins[n + 1] for n in range(0, BINS, 2)] + [0.0] * (BINS // 2)
        level = self.level
        level[:] = [max(level[n], level[n + 1]) for n in range(0, BINS, 2)] + [0.0] * (BINS // 2)
