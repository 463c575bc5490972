# SPDX-License-Identifier: Apache-2.0
"""Format numbers for display, in few characters and of steady width."""

from __future__ import annotations

_STEPS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


def short(number: float) -> str:
    """Format in at most five characters: `999`, `12.3k`, `4.56M`; small floats keep one decimal: `2.0`."""
    for size, letter in _STEPS:
        if number >= 0.9995 * size:
            value = number / size
            digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
            return f"{value:.{digits}f}{letter}"
    return f"{number:.1f}" if 0 < number < 9.95 and not isinstance(number, int) else f"{number:.0f}"


def whole(number: int, width: int = 11) -> str:
    """Format with thousands separators, or in short form if that would be wider than `width`."""
    text = f"{number:,}"
    return text if len(text) <= width else short(number)


def megabytes(nbytes: float) -> str:
    """Format megabytes (10^6) without the unit in at most six characters: `9.99`, `52.3`, `2,000`, `4.56M`."""
    value = nbytes / 1e6
    if value >= 99_999.5:
        return short(value)
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 999.95 else f"{value:,.0f}"


def percent(ratio: float | None) -> str:
    """Format in at most five characters: `81.3%`; `100%` and `0%` only for exact values; `-` for None."""
    if ratio is None:
        return "-"
    if ratio in (0.0, 1.0):
        return f"{ratio:.0%}"
    return "<0.1%" if 0 < ratio < 0.0005 else f"{min(99.9, ratio * 100):.1f}%"


def created_and_passed(out_of_first: int, out_of_last: int) -> str:
    """Describe the progress of a run whose input has no size, because its first stage creates the records."""
    return f"{out_of_first:,} made, {out_of_last:,} through all stages"


def duration(seconds: float) -> str:
    """Format a duration: `0.8 s`, `42 s`, `3:07`, `1:02:03`, `2 d 03 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole_s = round(seconds)
    minutes, s = divmod(whole_s, 60)
    hours, m = divmod(minutes, 60)
    if not minutes:
        return f"{s} s"
    if not hours:
        return f"{m}:{s:02d}"
    if hours < 48:
        return f"{hours}:{m:02d}:{s:02d}"
    return f"{hours // 24} d {hours % 24:02d} h"


def cut(text: str, width: int) -> str:
    """Return the beginning of the text, in at most `width` characters."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def shorten(text: str, width: int) -> str:
    """Shorten the text to `width` characters with `…` in the middle, because the ends of names tell them apart."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}" if width > 1 else text[:width]
