# SPDX-License-Identifier: Apache-2.0
"""Draw utilisation over time as SVG, and as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from thresher.core.arguments.sizes import show_size
from thresher.simulate.rehearsal import Rehearsal, Series, short_name

WIDTH, LEFT, RIGHT = 960, 64, 24
PANEL, GAP, TOP = 170, 62, 124
COLOURS = ("#2f6db5", "#e08e2b", "#3d9a6a", "#c4524f", "#7a63b0", "#5aa9c9", "#b0763f", "#8a8f98")
COMMIT_COLOUR = "#b9bec7"
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Possible upper ends of a share axis."""
MOST_LETTERS = 60
"""Maximum number of characters of a name in the legend."""
MOST_FAILURES = 40
"""Maximum number of failures that are drawn as lines."""
TIME_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400)
STYLE = """\
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#3a4250}
.title{font-size:19px;font-weight:600;fill:#171c26}
.facts{font-size:13px;fill:#5b6472}
.panel{font-size:13px;font-weight:600;fill:#171c26}
.axis{fill:#7b8494;font-size:11px}
.grid{stroke:#e4e7ec}
.base{stroke:#aab1bd}
.failed{stroke:#c4524f;stroke-dasharray:3 3}"""


class Panel(msgspec.Struct, frozen=True):
    """One diagram of stacked areas."""

    title: str  # title of the diagram
    top: str  # label of the upper end of the axis
    half: str  # label of its middle
    areas: tuple[tuple[str, str, tuple[float, ...]], ...]  # name, colour, heights from 0 to 1


def svg(rehearsal: Rehearsal, name: str, machines: str) -> str:
    """Return the utilisation of a rehearsal as SVG."""
    facts = (
        f"{name}: {show_time(rehearsal.wall_s)} for {show_size(rehearsal.data_bytes)}",
        f"{rehearsal.nodes:,} × {machines}  ·  {show_rate(rehearsal)}",
        f"bottleneck: {rehearsal.bottleneck}",
    )
    panels = _panels(rehearsal)
    end_s = max(rehearsal.wall_s, 1e-9)
    failures = _failures(rehearsal, _height(panels), end_s)
    return picture(f"Utilisation over time of the rehearsal of {name}", facts, panels, end_s, failures)


def picture(label: str, facts: Sequence[str], panels: Sequence[Panel], end_s: float, more: Sequence[str] = ()) -> str:
    """Return panels as SVG, under a title and two lines of facts; `more` is drawn on top of them."""
    height = _height(panels)
    named = f'role="img" aria-label="{escape(label)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {named}>',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *(
            _text(24, y, kind, fact)
            for y, kind, fact in zip((36, 58, 77), ("title", "facts", "facts"), facts, strict=False)
        ),
    ]
    for place, panel in enumerate(panels):
        parts += _draw(panel, TOP + place * (PANEL + GAP), end_s)
    return "\n".join([*parts, *more, "</svg>\n"])


def _height(panels: Sequence[Panel]) -> int:
    return TOP + len(panels) * (PANEL + GAP) - 4


def html(rehearsal: Rehearsal, name: str, machines: str) -> str:
    """Return one HTML page with the chart and the figures as tables."""
    resources = [
        (use.name, _amount(use.name, use.capacity), _amount(use.name, use.used), f"{use.share:.1%}")
        for use in rehearsal.resources
    ]
    stages = [
        (
            use.name,
            f"{use.workers:,}" if use.workers else "shared",
            f"{use.tasks:,}",
            f"{use.share:.1%}",
            use.peak_stage,
        )
        for use in rehearsal.stages
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Rehearsal of {escape(name)}</title>
<style>body{{margin:24px auto;max-width:{WIDTH}px;padding:0 16px;font:14px/1.5 system-ui,sans-serif;color:#171c26}}
svg{{max-width:100%;height:auto}}table{{border-collapse:collapse;margin:8px 0 24px;width:100%}}
th,td{{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid #e4e7ec}}th{{color:#5b6472;font-weight:600}}
</style></head><body>
{svg(rehearsal, name, machines)}
{_table(("resource", "there is", "used", "share"), resources)}
{_table(("stages in one call", "workers", "tasks", "share of work", "slowest inside"), stages)}
</body></html>
"""


def show_time(seconds: float) -> str:
    """Format a time: 4.2 s, 3 min 20 s, 5 h 12 min, 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, size, part in (("min", "s", 60, 1), ("h", "min", 3600, 60), ("d", "h", 86400, 3600)):
        if whole < size * (60 if large == "min" else 24) or large == "d":
            return f"{whole // size} {large} {whole % size // part} {small}"
    return f"{whole} s"


def _panels(rehearsal: Rehearsal) -> list[Panel]:
    capacity = {use.name: use.capacity for use in rehearsal.resources}
    panels = [_shares("CPU", [s for s in rehearsal.series if s.cpus], capacity["cpu"], gpu=False)]
    on_gpus = [s for s in rehearsal.series if s.gpus]
    if on_gpus:
        panels.append(_shares("GPU", on_gpus, capacity["gpu"], gpu=True))
    if rehearsal.inflight_bytes:
        most = rehearsal.inflight_bytes
        areas = (
            ("batches between stages", COLOURS[5], tuple(level / most for level in _fill_gaps(rehearsal.inflight))),
        )
        panels.append(Panel("Memory in flight", show_size(most), show_size(most / 2), areas))
    return panels


def _fill_gaps(levels: Sequence[float]) -> list[float]:
    """Fill bins without a change with the level of the bin before."""
    found: list[float] = []
    for level in levels:
        found.append(level if level or not found else found[-1])
    return found


def _shares(title: str, series: Sequence[Series], capacity: float, *, gpu: bool) -> Panel:
    """Return busy workers as shares of the capacity."""
    weights = [(one.gpus if gpu else one.cpus) / capacity for one in series]
    bins = max((len(one.busy) for one in series), default=1)
    rows = [[busy * weight for busy in one.busy] for one, weight in zip(series, weights, strict=True)]
    most = max((sum(row[place] for row in rows) for place in range(bins)), default=0.0)
    top = next((step for step in STEPS if most <= step * 1.02), most)
    colours = iter(COLOURS * (1 + len(series) // len(COLOURS)))
    areas = tuple(
        (one.name, COMMIT_COLOUR if one.name == "commits" else next(colours), tuple(value / top for value in row))
        for one, row in zip(series, rows, strict=True)
    )
    return Panel(f"{title} busy, of {capacity:,.0f}", f"{top:.0%}", f"{top / 2:.1%}".replace(".0%", "%"), areas)


def _draw(panel: Panel, y: int, end_s: float) -> list[str]:
    right, bottom = WIDTH - RIGHT, y + PANEL
    parts = [_text(LEFT, y - 12, "panel", panel.title), *_legend(panel, y - 12)]
    for share, label in ((1.0, panel.top), (0.5, panel.half), (0.0, "0")):
        line = bottom - share * PANEL
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{line}" y2="{line}"/>')
        parts.append(_text(LEFT - 8, line + 4, "axis", label, "end"))
    parts += _areas(panel, bottom)
    parts.append(f'<line class="base" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    step = next((step for step in TIME_STEPS if end_s / step <= 10), TIME_STEPS[-1])
    ticks = int(end_s / step)
    for tick in range(ticks + 1):
        x = LEFT + (right - LEFT) * tick * step / end_s
        parts.append(f'<line class="base" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        parts.append(_text(x, bottom + 18, "axis", _tick(tick * step, step), "middle"))
    return parts


def _failures(rehearsal: Rehearsal, height: int, end_s: float) -> list[str]:
    """Return a line through all panels for each failure of a machine; none if there are too many."""
    if not 0 < len(rehearsal.failures_s) <= MOST_FAILURES:
        return []
    parts = []
    for time_s in rehearsal.failures_s:
        x = LEFT + (WIDTH - RIGHT - LEFT) * time_s / end_s
        parts.append(f'<line class="failed" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height - GAP + 4}"/>')
    return [*parts, _text(WIDTH - RIGHT, 58, "facts", "dashed: a machine failed", "end")]


def _areas(panel: Panel, bottom: int) -> list[str]:
    """Return stacked areas, the first one at the bottom."""
    parts = []
    floor: list[float] = [0.0] * max((len(heights) for _, _, heights in panel.areas), default=0)
    for name, colour, heights in panel.areas:
        roof = [low + high for low, high in zip(floor, heights, strict=False)]
        there = [_point(place, len(roof), value, bottom) for place, value in enumerate(roof)]
        back = [_point(place, len(roof), value, bottom) for place, value in reversed(list(enumerate(floor)))]
        points = " ".join([*there, *back])
        parts.append(
            f'<polygon points="{points}" fill="{colour}" fill-opacity="0.85"><title>{escape(name)}</title></polygon>'
        )
        floor = roof
    return parts


def _point(place: int, count: int, value: float, bottom: int) -> str:
    x = LEFT + (WIDTH - RIGHT - LEFT) * (place / (count - 1) if count > 1 else 0)
    return f"{x:.1f},{bottom - min(1.0, value) * PANEL:.1f}"


def _legend(panel: Panel, y: int) -> list[str]:
    """Return the names of areas, from right to left."""
    parts = []
    x = float(WIDTH - RIGHT)
    for name, colour, _ in reversed(panel.areas):
        shown = short_name(name)
        shown = shown if len(shown) <= MOST_LETTERS else f"{shown[:44]}…{shown[-14:]}"
        x -= 6.6 * len(shown)
        if x < LEFT + 200:
            break
        parts.append(_text(x, y, "axis", shown))
        x -= 16
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 9}" width="10" height="10" rx="2" fill="{colour}" fill-opacity="0.85"/>'
        )
        x -= 14
    return parts


def _text(x: float, y: float, kind: str, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'


def _tick(seconds: float, step: float) -> str:
    if step < 1:
        return f"{seconds:.1f} s"
    if step < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if step < 3600 else f"{seconds / 3600:g} h"


def show_rate(rehearsal: Rehearsal) -> str:
    """Return bytes and records of the input per second, as text."""
    records = f", {rehearsal.docs_per_s:,.0f} records/s" if rehearsal.docs else ""
    return f"{show_size(rehearsal.bytes_per_s)}/s{records}"


def _amount(name: str, value: float) -> str:
    return show_size(value) if name == "memory" else f"{value:,.1f}".removesuffix(".0")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>\n{lines}</table>"
