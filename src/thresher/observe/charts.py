# SPDX-License-Identifier: Apache-2.0
"""Draw the charts of a report as text: one row per bar, with blocks for what was kept, copied and dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thresher.observe.figures import cut, percent, short, shorten, whole

BARS_SHOWN = 24
"""Bars of a chart that are drawn; the others are summed up."""
_FILLS = {"": "█", "kept": "█", "copied": "▓", "dropped": "░", "sent": "▒"}
"""Characters that draw the parts. Shades differ without colour, too."""
_OTHER_FILLS = "█▓▒░"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL_WIDTH = 20
_BAR_WIDTH, _LEAST_BAR = 40, 8
_WIDE = 61
"""Columns from which on large numbers are written in full beside a label, the shortest bar and a rate."""

Bar = dict[str, Any]


def chart_lines(bars: list[Bar], width: int) -> list[str]:
    """Return the rows of a chart in at most `width` columns, and a legend if bars have parts."""
    bars = _shown(bars)
    parts = _parts(bars)
    labels = [_label(bar["bar"]) for bar in bars]
    names = min(max(map(len, labels), default=0), _LABEL_WIDTH, max(6, width // 4))
    numbers = [_numbers(bar, parts, 11 if width >= _WIDE else 9) for bar in bars]
    figures = max((len(text) for text in numbers), default=0)
    room = min(_BAR_WIDTH, max(_LEAST_BAR, width - names - figures - 6))
    most = max((bar["n"] for bar in bars), default=0)
    side = "<" if all(isinstance(bar["bar"], str) for bar in bars) else ">"
    lines = [
        f"  {shorten(label, names):{side}{names}}  {_drawn(bar, parts, room, most):<{room}}  {text:>{figures}}"
        for bar, label, text in zip(bars, labels, numbers, strict=True)
    ]
    legend = "  ".join(f"{fill} {part}" for part, fill in parts.items() if part)
    indent = min(names + 4, max(2, width - len(legend)))
    return [*lines, " " * indent + cut(legend, width - indent)] if legend else lines


def _shown(bars: list[Bar]) -> list[Bar]:
    """Return the bars to draw: the rest of many is one bar."""
    if len(bars) <= BARS_SHOWN:
        return bars
    rest = bars[BARS_SHOWN - 1 :]
    parts: dict[str, int] = {}
    for bar in rest:
        for part, n in bar.get("parts", {}).items():
            parts[part] = parts.get(part, 0) + n
    name = f"and {len(rest):,} more"
    return [*bars[: BARS_SHOWN - 1], {"bar": name, "n": sum(bar["n"] for bar in rest), "parts": parts}]


def _parts(bars: Iterable[Bar]) -> dict[str, str]:
    """Return the character for each part, in the order in which parts are drawn."""
    found = {part for bar in bars for part in bar.get("parts") or {"": 0}}
    known = {part: fill for part, fill in _FILLS.items() if part in found}
    others = sorted(found - known.keys())
    return known | {part: _OTHER_FILLS[number % 4] for number, part in enumerate(others, start=len(known))}


def _label(bar: str | float) -> str:
    if isinstance(bar, str):
        return "".join(c if c.isprintable() else "·" for c in bar)
    return f"{bar:,}" if isinstance(bar, int) or bar != int(bar) or abs(bar) >= 1e15 else f"{int(bar):,}"


def _numbers(bar: Bar, parts: dict[str, str], most: int) -> str:
    """Return the figures of a bar, each in `most` characters: before and after with the rate, or the number alone."""
    own = bar.get("parts") or {}
    if "dropped" not in parts and "copied" not in parts:
        return whole(int(bar["n"]), most)
    after = own.get("kept", 0) + own.get("copied", 0)
    before = bar["n"] - own.get("copied", 0)
    if "copied" in parts:
        times = after / before if before else 0.0
        rate = (f"x{times:.2f}" if times < 99.995 else f"x{short(times)}") if before else "-"
    else:
        rate = percent(after / before if before else None)
    return f"{whole(before, most):>7} → {whole(after, most):>7} {rate:>6}"


def _drawn(bar: Bar, parts: dict[str, str], room: int, most: int) -> str:
    """Return the blocks of a bar. A bar of one part ends with a part of a block; a bar that is not empty is seen."""
    if not most or not bar["n"]:
        return ""
    own: dict[str, int] = bar.get("parts") or {"": bar["n"]}
    if len(own) == 1 and parts[next(iter(own))] == "█":
        eighths = max(1, round(8 * room * bar["n"] / most))
        return "█" * int(eighths // 8) + _EIGHTHS[int(eighths) % 8].strip()
    drawn, total = "", 0
    for part, fill in parts.items():
        total += own.get(part, 0)
        drawn += fill * (max(1 if own.get(part) else 0, round(room * total / most) - len(drawn)))
    return drawn[:room]
