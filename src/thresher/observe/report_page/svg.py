# SPDX-License-Identifier: Apache-2.0
"""Text and pictures of the page: hostile text made visible and cut, curves and histograms as inline SVG."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from thresher.observe.figures import short

MOST_CHARACTERS = 300
"""Characters of a text that are shown."""
MOST_POINTS = 300
"""Points of a curve; of more, the largest of each stretch is drawn."""
WIDTH, HEIGHT = 520, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 10, 20
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that are invisible or that change the order of what is around them."""


def shown(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return a text for HTML: at most `most` characters, escaped, with odd characters as `\\u202e`."""
    found = str(text)
    found = found if len(found) <= most else f"{found[:most]}…"
    return html.escape(_UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", found))


class Curve(NamedTuple):
    """One curve of a chart."""

    name: str
    """Its name in the legend."""
    values: Sequence[float]
    """A value for each time."""
    kind: str
    """Its CSS class: `c1`, `c2`, or `limit` for a line that is not to be crossed."""


def chart(title: str, times: Sequence[float], curves: Sequence[Curve], unit: str = "") -> str:
    """Return a chart of curves over time; empty if there are fewer than two times."""
    if len(times) < 2:
        return ""
    top = max((max(curve.values) for curve in curves), default=0.0) * 1.05 or 1.0
    end = times[-1] or 1.0
    lines = "".join(f'<path class="{curve.kind}" d="{_path(times, curve.values, end, top)}"/>' for curve in curves)
    ticks = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{_y(top * part, top):.0f}" '
        f'y2="{_y(top * part, top):.0f}"/><text x="{_LEFT - 5}" y="{_y(top * part, top) + 4:.0f}" '
        f'text-anchor="end">{shown(short(top * part))}</text>'
        for part in (0.0, 0.5, 1.0)
    )
    marks = "".join(
        f'<text x="{_x(end * part, end):.0f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{_clock(end * part)}</text>'
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    legend = " ".join(f'<span class="key {curve.kind}">{shown(curve.name)}</span>' for curve in curves)
    label = f"{title}: at most {short(top / 1.05)} {unit}".strip()
    return (
        f"<figure><figcaption>{shown(title)}{f' <small>({shown(unit)})</small>' if unit else ''} {legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{shown(label)}">{ticks}{marks}{lines}'
        "</svg></figure>"
    )


def _path(times: Sequence[float], values: Sequence[float], end: float, top: float) -> str:
    step = math.ceil(len(times) / MOST_POINTS)
    points = []
    for start in range(0, len(times), step):
        stretch = range(start, min(start + step, len(times)))
        place = max(stretch, key=lambda index: values[index])
        points.append(f"{_x(times[place], end):.1f} {_y(values[place], top):.1f}")
    return "M" + "L".join(points)


def _x(t: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * t / end


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * max(0.0, min(value / top, 1.0))


def _clock(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


class Histogram(NamedTuple):
    """Distribution of the scores of a rule."""

    column: str
    """`Stage/Rule`."""
    low: float
    """Lower bound of the first class."""
    high: float
    """Upper bound of the last class."""
    counts: tuple[int, ...]
    """Records in each class; the first and the last one hold all that are beyond."""
    unknown: int
    """Records without a score."""
    bounds: tuple[tuple[str, float, str], ...]
    """Thresholds: `low` or `high`, value, parameter."""


def histogram(found: Histogram) -> str:
    """Return a histogram with its thresholds; what a threshold drops is drawn in another colour."""
    width, height = 320, 84
    most, span = max(found.counts, default=0) or 1, (found.high - found.low) or 1.0
    room = width / max(1, len(found.counts))
    bars: dict[str, list[str]] = {"kept": [], "dropped": []}
    lows = [value for side, value, _ in found.bounds if side == "low"]
    highs = [value for side, value, _ in found.bounds if side == "high"]
    for place, count in enumerate(found.counts):
        middle = found.low + span * (place + 0.5) / len(found.counts)
        if found.high in lows and place == len(found.counts) - 1:
            middle = found.high  # a bound belongs to what is kept
        elif found.low in highs and place == 0:
            middle = found.low
        is_out = any(middle < value for value in lows) or any(middle > value for value in highs)
        tall = max(1.0, 64 * count / most) if count else 0.0
        bars["dropped" if is_out else "kept"].append(
            f"M{place * room:.1f} 66v{-tall:.1f}h{room - 1:.1f}v{tall:.1f}z" if count else ""
        )
    drawn = "".join(f'<path class="{kind}" d="{"".join(paths)}"/>' for kind, paths in bars.items() if "".join(paths))
    for _, value, _ in found.bounds:
        if found.low <= value <= found.high:
            x = width * (value - found.low) / span
            drawn += f'<line class="bound" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="70"/>'
    named = ", ".join(f"{name or side} = {value:g}" for side, value, name in found.bounds) or "no threshold"
    ends = f'<text x="0" y="81">{_end(found.low)}</text>'
    ends += f'<text x="{width}" y="81" text-anchor="end">{_end(found.high)}</text>'
    stage, _, rule = found.column.partition("/")
    name = stage if stage == rule or stage.startswith(f"{rule}-") else found.column
    return (
        f'<figure class="small"><figcaption>{shown(name, 80)} <small>{shown(named)}</small></figcaption>'
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{shown(f"scores of {name}, {named}")}">'
        f"{drawn}{ends}</svg></figure>"
    )


def _end(value: float) -> str:
    return short(value) if abs(value) >= 1000 else f"{value:.3g}"


def bar(parts: Sequence[tuple[str, float]], label: str) -> str:
    """Return a bar of parts, each a CSS class and a share of the whole."""
    x, drawn = 0.0, ""
    for kind, part in parts:
        wide = 200 * max(0.0, min(part, 1.0))
        if wide > 0:
            drawn += f'<rect class="{kind}" x="{x:.2f}" width="{max(wide, 0.7):.2f}" height="12"/>'
            x += wide
    return (
        f'<svg class="bar" viewBox="0 0 200 12" preserveAspectRatio="none" role="img" aria-label="{shown(label)}">'
        f"{drawn}</svg>"
    )
