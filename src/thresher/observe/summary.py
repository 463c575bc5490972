# SPDX-License-Identifier: Apache-2.0
"""Format the report as text: short at the end of a run, longer for `thresher report`. Fits 80 columns, and shows long
names in full if the terminal is wider."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from thresher.core.arguments.sizes import counted, show_size
from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.tally import MOST, extras_text, unknown_losses_text
from thresher.observe.charts import chart_lines
from thresher.observe.figures import duration, megabytes, percent, shorten, whole

REASONS_SHOWN = 8
"""Number of reasons in the summary; the report lists all."""
USUAL_WIDTH = 80
"""Number of columns if the width is unknown."""
_NAME_WIDTH = 22
_REASON_WIDTH = 44
"""Widths of the name columns in a text of the usual width."""
MANY_FAILED = 0.05
"""A larger share of quarantined records causes a warning."""
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _RESET = "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[0m"
_STATUS_COLORS = {"finished": _GREEN, "nothing-to-do": _GREEN, "stopped": _YELLOW, "failed": _RED}

_REASONS = ("drop_reasons", "quarantine_reasons")

Report = dict[str, Any]


class _Paint:
    """Adds colour if enabled, and computes the width of name columns."""

    def __init__(self, color: bool, width: int | None) -> None:
        """`width`: columns of the terminal; `None`: no limit."""
        self._color = color
        self._width = width

    @property
    def columns(self) -> int:
        """Return the columns of the text."""
        return USUAL_WIDTH if self._width is None else self._width

    def room(self, names: Iterable[str], usual: int) -> int:
        """Return the width of a column that holds `names` and has `usual` characters in a text of the usual width."""
        longest = max((len(name) for name in names), default=0)
        most = longest if self._width is None else usual + max(0, self._width - USUAL_WIDTH)
        return max(usual, min(longest, most))

    def __call__(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self._color and text else text


def summary_text(report: Report, color: bool, width: int | None = USUAL_WIDTH) -> str:
    """Return the summary for the end of a run. `width`: columns of the terminal; `None`: no limit."""
    paint = _Paint(color, width)
    blocks = [
        _headline(report, paint),
        _stage_table(report, paint),
        _reasons(report, paint, REASONS_SHOWN),
        _count_equation(report, paint),
        _warnings(report, paint),
        _locations(report, paint),
        _outlets(report, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def report_text(report: Report, color: bool = False, width: int | None = USUAL_WIDTH) -> str:
    """Return the full report, for `thresher report RUN`."""
    paint = _Paint(color, width)
    blocks = [
        _headline(report, paint),
        _run_facts(report, paint),
        _stage_table(report, paint),
        _stage_work(report, paint),
        _reasons(report, paint, None),
        _user_counts(report, paint),
        *_charts(report, paint),
        _extra_values(report, paint),
        _count_equation(report, paint),
        _warnings(report, paint),
        _locations(report, paint),
        _outlets(report, paint),
        _output_files(report, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _headline(report: Report, paint: _Paint) -> list[str]:
    status, color = report["status"], _STATUS_COLORS.get(report["status"], _YELLOW)
    counts = report["counts"]
    if status == "finished" and counts["quarantined"] > MOST * (counts["read"] + counts["created"]):
        status, color = "finished, but most records failed", _RED
    parts = [f"{paint(status, color)} in {duration(report['wall_s'])}"]
    if report["peak_memory_bytes"]:
        limit = report["memory_limit_bytes"]
        of = f" of {show_size(limit)}" if limit else ""
        parts.append(f"peak memory {show_size(report['peak_memory_bytes'])}{of}")
    lines = [f"{paint(report['name'], _BOLD)}  {'  ·  '.join(parts)}"]
    if report["error"]:
        lines.append(paint(report["error"], _RED))
    return lines


def _stage_table(report: Report, paint: _Paint) -> list[str]:
    """Return one row per stage. Time is the stage's share of all time spent in stages, MB/s its rate on one worker."""
    names = paint.room((stage["name"] for stage in report["stages"]), _NAME_WIDTH)
    heads = f"{'stage':<{names}} {'in':>10} {'out':>10} {'dropped':>10} {'quarantined':>11} {'time':>5} {'MB/s':>6}"
    busy_s = sum(stage["busy_s"] for stage in report["stages"])
    lines = [paint(heads, _BOLD)]
    for stage in report["stages"]:
        share = percent(stage["busy_s"] / busy_s) if busy_s else "-"
        quarantined = f"{whole(stage['quarantined']):>11}"
        lines.append(
            f"{shorten(stage['name'], names):<{names}} {whole(stage['in_docs'], 10):>10} "
            f"{whole(stage['out_docs'], 10):>10} {whole(stage['dropped'], 10):>10} "
            f"{paint(quarantined, _YELLOW) if stage['quarantined'] else quarantined} {share:>5} {_own_speed(stage):>6}"
        )
    return lines


def _own_speed(stage: Report) -> str:
    nbytes = stage["in_bytes"] or stage["out_bytes"]
    # Below a millisecond the rate is meaningless.
    return megabytes(nbytes / stage["busy_s"]) if stage["busy_s"] >= 0.001 else "-"


def _stage_work(report: Report, paint: _Paint) -> list[str]:
    names = paint.room((stage["name"] for stage in report["stages"]), _NAME_WIDTH)
    heads = f"{'stage':<{names}} {'calls':>9} {'retries':>8} {'busy':>9} {'workers':>8} {'MB in':>10} {'MB out':>10}"
    return [paint(heads, _BOLD)] + [
        f"{shorten(stage['name'], names):<{names}} {whole(stage['tasks'], 9):>9} "
        f"{whole(stage['retries'], 8):>8} {duration(stage['busy_s']):>9} {stage['workers']:>8} "
        f"{megabytes(stage['in_bytes']):>10} {megabytes(stage['out_bytes']):>10}"
        for stage in report["stages"]
    ]


def _reasons(report: Report, paint: _Paint, most: int | None) -> list[str]:
    read = report["counts"]["read"] + report["counts"]["created"]
    lines: list[str] = []
    names = paint.room((_reason_name(name) for key in _REASONS for name in report[key]), _REASON_WIDTH)
    for title, key, code in (
        ("dropped because of", "drop_reasons", _BOLD),
        ("quarantined because of", "quarantine_reasons", _YELLOW),
    ):
        found = sorted(report[key].items(), key=lambda item: (-item[1], item[0]))
        if not found:
            continue
        lines += ["", paint(title, code)] if lines else [paint(title, code)]
        lines += [
            f"  {shorten(_reason_name(reason), names):<{names}} {whole(n):>11} {percent(n / read if read else None):>6}"
            for reason, n in found[:most]
        ]
        if most is not None and len(found) > most:
            lines.append(paint(f"  and {len(found) - most} more: see the report", _DIM))
    return lines


def _reason_name(reason: str) -> str:
    """Return `Stage/Rule` for display: a stage that is its only rule is named once."""
    stage, _, rule = reason.partition("/")
    return stage if stage == rule else reason


def _user_counts(report: Report, paint: _Paint) -> list[str]:
    counted = {f"{stage['name']}/{name}": n for stage in report["stages"] for name, n in stage["user_counts"].items()}
    names = paint.room(counted, _REASON_WIDTH)
    rows = [f"  {shorten(name, names):<{names}} {whole(n):>11}" for name, n in counted.items()]
    return [paint("counted by stages", _BOLD), *rows] if rows else []


def _charts(report: Report, paint: _Paint, outlet: str = "") -> list[list[str]]:
    """Return the lines of each chart of the stages, and of those of outlets."""
    blocks = [
        [paint(f"{outlet}{stage['name'].removesuffix('-read')}: {name}", _BOLD), *chart_lines(bars, paint.columns)]
        for stage in report["stages"]
        for name, bars in stage.get("charts", {}).items()
    ]
    for name, branch in report.get("outlets", {}).items():
        blocks += _charts(branch, paint, f"{outlet}{name}.")
    return blocks


def _extra_values(report: Report, paint: _Paint) -> list[str]:
    """Return a warning for the fields with values that fit no column of the output."""
    extras = report.get("extra_values")
    return [paint(f"warning: {extras_text(extras)}", _YELLOW)] if extras else []


def _count_equation(report: Report, paint: _Paint) -> list[str]:
    """Return the equation of counts; zero parts are left out, except `dropped` and `quarantined`."""
    counts = report["counts"]
    came = [f"{whole(counts['read'])} read"]
    came += [f"{whole(counts['created'])} created"] if counts["created"] else []
    went = [f"{whole(counts['written'])} {'written' if _has_writer(report) else 'passed'}"]
    went += [f"{whole(counts[key])} {key}" for key in ("dropped", "quarantined")]
    went += [f"{whole(counts[key])} {key}" for key in ("merged", "sent") if counts.get(key)]
    line = f"{' + '.join(came)} = {' + '.join(went)}"
    unknown = report.get("unknown_losses", 0)
    if report["counts_add_up"] and unknown:
        losses = f"{unknown_losses_text(unknown)}, each counted as 1 quarantined"
        return [f"{line}  {paint('?', _RED)}", paint(losses, _RED)]
    if report["counts_add_up"]:
        return [f"{line}  {paint('✓', _GREEN)}"]
    return [f"{line.replace(' = ', ' ≠ ')}  {paint('the counts do not add up: please report this', _RED)}"]


def _outlets(report: Report, paint: _Paint) -> list[str]:
    """Return two rows per outlet: its counts, and where its output is; further ones for outlets of an outlet."""
    lines = []
    for name, branch in report.get("outlets", {}).items():
        lines += [paint(f"outlet {name}", _BOLD), *(f"  {line}" for line in _count_equation(branch, paint))]
        where = [line for line in _locations(branch, paint) if "units" not in line]
        lines += [f"  {line}" for line in (*_warnings(branch, paint), *where, *_outlets(branch, paint))]
    return lines


def _has_writer(report: Report) -> bool:
    """Return False if the pipeline had no writer."""
    return bool(report.get("has_writer", True))


def _warnings(report: Report, paint: _Paint) -> list[str]:
    """Return warnings about what a finished run may hide: no output, many failures, or fields that no record has."""
    counts = report["counts"]
    came = counts["read"] + counts["created"]
    lines = []
    if came and not counts["written"]:
        left = "no record was written" if _has_writer(report) else "no record passed all stages"
        lines.append(f"{left}: {whole(counts['dropped'])} dropped, {whole(counts['quarantined'])} quarantined")
    if counts["quarantined"] > MANY_FAILED * came:
        share = percent(counts["quarantined"] / came)
        kept = " and are in quarantine; `thresher quarantine RUN` shows why" if report["run_dir"] else ""
        lines.append(f"{share} of the records failed{kept}")
    lines += report.get("warnings", [])
    return [paint(f"warning: {line}", _YELLOW) for line in lines]


def _locations(report: Report, paint: _Paint) -> list[str]:
    lines = []
    outputs = report["output_paths"]
    if outputs == [STANDARD_STREAM]:
        lines.append(("output", "standard output"))
    elif outputs:
        files = counted(len(outputs), "file")
        lines.append(("output", f"{_from_here(_common_folder(outputs))}  ({files})"))
    elif not _has_writer(report):
        lines.append(("output", "no file: there is no writer among the stages"))
    if report["dropped_to"]:
        lines.append(("dropped", _from_here(report["dropped_to"])))
    if report["run_dir"]:
        run_dir = _from_here(report["run_dir"])
        lines.append(("run folder", run_dir))
        if report["counts"]["quarantined"]:
            lines.append(("quarantine", os.path.join(run_dir, "quarantine")))
    units = f"{report['units_total']:,}"
    if report["units_resumed"]:
        units += f", {report['units_resumed']:,} of them done by an earlier attempt"
    lines.append(("units", units))
    return [f"{paint(f'{label:<10}', _DIM)}  {value}" for label, value in lines]


def _common_folder(paths: list[str]) -> str:
    folders = [path.rpartition("/")[0] for path in paths]
    if any("://" in path for path in paths):
        return folders[0]
    return os.path.commonpath(folders) or "."


def _from_here(path: str) -> str:
    """Return a path relative to the current folder if it is below it."""
    try:
        here = os.getcwd() + os.sep
    except FileNotFoundError:  # the current folder was removed
        return path
    return path.removeprefix(here)


def _run_facts(report: Report, paint: _Paint) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    facts = (("run", report["run_id"]), ("executor", report["executor"]), ("versions", versions))
    return [f"{paint(f'{label:<10}', _DIM)}  {value}" for label, value in facts]


def _output_files(report: Report, paint: _Paint) -> list[str]:
    outputs = report["output_paths"]
    return [paint("output files", _BOLD), *(f"  {_from_here(path)}" for path in outputs)] if outputs else []
