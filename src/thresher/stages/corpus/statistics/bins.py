# SPDX-License-Identifier: Apache-2.0
"""Classes of values for the charts of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.core.stage import ProcessingStage

_BINS = 16


def edges_of(smallest: float, low: float, high: float) -> list[float]:
    """Return where up to about 16 classes begin: of equal width, with a round step, from `low` to `high`.

    The first one begins below `smallest` and the last one has no end, so that outliers do not widen the others.
    """
    if not all(map(math.isfinite, (smallest, low, high))):
        return []
    width = (high - low) / _BINS
    if not width:
        return [_plain(low)] if smallest == low else [_plain(smallest), _plain(low)]
    size = 10.0 ** math.floor(math.log10(width))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= width * 0.999)
    digits = max(0, 1 - math.floor(math.log10(step)))
    numbers = range(math.floor(low / step), math.floor(high / step) + 1)
    edges = [round(number * step, digits) for number in numbers]
    if smallest < edges[0]:
        edges.insert(0, round(math.floor(smallest / step) * step, digits))
    return [_plain(edge) for edge in edges]


def _plain(value: float) -> float:
    """Return a whole number as `int`."""
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def chart_values(
    stage: ProcessingStage[Any, Any], name: str, values: Sequence[Any], edges: Sequence[float], part: str = ""
) -> None:
    """Add values to a chart with classes that begin at `edges`; values that are no numbers have bars of their own."""
    import numpy as np

    numbers = [value for value in values if isinstance(value, bool | int | float) and value == value]
    texts = sum(isinstance(value, str) for value in values)
    stage.chart(name, "text", texts, part)
    stage.chart(name, "no value", len(values) - texts - len(numbers), part)
    if not edges:
        stage.chart(name, "number", len(numbers), part)
    elif numbers:
        classes = np.searchsorted(edges, np.array(numbers, dtype=np.float64), "right") - 1
        for place, n in enumerate(np.bincount(classes.clip(0)).tolist()):
            stage.chart(name, edges[place], n, part)


def chart_powers(stage: ProcessingStage[Any, Any], name: str, sizes: Iterable[int], part: str = "") -> None:
    """Add whole numbers to a chart whose classes begin at 0, 1, 2, 4, 8 and so on."""
    found: dict[int, int] = {}
    for size in sizes:
        found[size.bit_length()] = found.get(size.bit_length(), 0) + 1
    for power, n in found.items():
        stage.chart(name, 1 << (power - 1) if power else 0, n, part)
