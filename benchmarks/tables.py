# SPDX-License-Identifier: Apache-2.0
"""Medians with their spread, tables on the terminal, results as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float  # the middle one
    low: float  # the smallest
    high: float  # the largest

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Fold measurements; there must be at least one."""
        return cls(statistics.median(values), min(values), max(values))

    def show(self, digits: int = 2) -> str:
        """As `median (low..high)`."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}..{self.high:.{digits}f})"


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Round by round ratios of interleaved measurements; a side with a single round is compared with every other."""
    if len(denominators) == 1:
        return Spread.of([value / denominators[0] for value in numerators])
    if len(numerators) == 1:
        return Spread.of([numerators[0] / value for value in denominators])
    return Spread.of([above / below for above, below in zip(numerators, denominators, strict=True)])


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns below a title."""
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def print_target(what: str, legal: str, measured: float, holds: bool) -> None:
    """Print one line of what must hold beside what was measured; it judges nothing but the printed word."""
    print(f"  target: {what}: {legal}; measured {measured:.2f}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)


def write_results(name: str, results: Mapping[str, Any]) -> Path:
    """Keep the figures, with the machine they come from, in results/NAME.json (with `--quick`: NAME-quick.json)."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}{'-quick' if '--quick' in sys.argv else ''}.json"
    machine = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "load_average_at_end": os.getloadavg(),
    }
    path.write_text(json.dumps({"machine": machine, **results}, indent=2, default=_as_json) + "\n")
    print(f"\n  written: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def _as_json(value: object) -> object:
    if isinstance(value, Spread):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a result holds a {type(value).__name__}; only numbers, strings, lists, dicts and Spread are kept")
