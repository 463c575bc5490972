# SPDX-License-Identifier: Apache-2.0
"""The report as text: short at the end of a run, longer for `thresher report`. Fits 80 columns."""

from __future__ import annotations

import os
from typing import Any

from thresher.core.sizes import show_size
from thresher.observe.figures import duration, megabytes, percent, shorten, whole

REASONS_SHOWN = 8
"""How many reasons the summary lists; the report lists all."""
_NAME_WIDTH = 22
_REASON_WIDTH = 44
_BOLD, _DIM, _RED, _GREEN, _YELLOW, _RESET = "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[0m"
_STATUS_COLORS = {"finished": _GREEN, "nothing-to-do": _GREEN, "stopped": _YELLOW, "failed": _RED}

Report = dict[str, Any]


class _Paint:
    """Adds colour, or leaves the text as it is."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, text: str, code: str) -> str:
        return f"{code}{text}{_RESET}" if self._color and text else text


def summary_text(report: Report, color: bool) -> str:
    """What a run did, for the end of a run."""
    paint = _Paint(color)
    blocks = [
        _headline(report, paint),
        _stage_table(report, paint),
        _reasons(report, paint, REASONS_SHOWN),
        _law(report, paint),
        _places(report, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def report_text(report: Report, color: bool = False) -> str:
    """Everything a report holds, for `thresher report RUN`."""
    paint = _Paint(color)
    blocks = [
        _headline(report, paint),
        _run_facts(report, paint),
        _stage_table(report, paint),
        _stage_work(report, paint),
        _reasons(report, paint, None),
        _user_counts(report, paint),
        _law(report, paint),
        _places(report, paint),
        _output_files(report, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


def _headline(report: Report, paint: _Paint) -> list[str]:
    status = report["status"]
    parts = [f"{paint(status, _STATUS_COLORS.get(status, _YELLOW))} in {duration(report['wall_s'])}"]
    if report["peak_memory_bytes"]:
        limit = report["memory_limit_bytes"]
        of = f" of {show_size(limit)}" if limit else ""
        parts.append(f"peak memory {show_size(report['peak_memory_bytes'])}{of}")
    lines = [f"{paint(report['name'], _BOLD)}  {'  ·  '.join(parts)}"]
    if report["error"]:
        lines.append(paint(report["error"], _RED))
    return lines


def _stage_table(report: Report, paint: _Paint) -> list[str]:
    """One row per stage. Time is the stage's share of all time spent in stages, MB/s its speed on one worker."""
    heads = (
        f"{'stage':<{_NAME_WIDTH}} {'in':>10} {'out':>10} {'dropped':>10} {'quarantined':>11} {'time':>5} {'MB/s':>6}"
    )
    busy_s = sum(stage["busy_s"] for stage in report["stages"])
    lines = [paint(heads, _BOLD)]
    for stage in report["stages"]:
        share = percent(stage["busy_s"] / busy_s) if busy_s else "-"
        quarantined = f"{whole(stage['quarantined']):>11}"
        lines.append(
            f"{shorten(stage['name'], _NAME_WIDTH):<{_NAME_WIDTH}} {whole(stage['in_docs'], 10):>10} "
            f"{whole(stage['out_docs'], 10):>10} {whole(stage['dropped'], 10):>10} "
            f"{paint(quarantined, _YELLOW) if stage['quarantined'] else quarantined} {share:>5} {_own_speed(stage):>6}"
        )
    return lines


def _own_speed(stage: Report) -> str:
    nbytes = stage["in_bytes"] or stage["out_bytes"]
    # Less than a millisecond says nothing about a speed.
    return megabytes(nbytes / stage["busy_s"]) if stage["busy_s"] >= 0.001 else "-"


def _stage_work(report: Report, paint: _Paint) -> list[str]:
    heads = (
        f"{'stage':<{_NAME_WIDTH}} {'calls':>9} {'retries':>8} {'busy':>9} {'workers':>8} {'MB in':>10} {'MB out':>10}"
    )
    return [paint(heads, _BOLD)] + [
        f"{shorten(stage['name'], _NAME_WIDTH):<{_NAME_WIDTH}} {whole(stage['tasks'], 9):>9} "
        f"{whole(stage['retries'], 8):>8} {duration(stage['busy_s']):>9} {stage['workers']:>8} "
        f"{megabytes(stage['in_bytes']):>10} {megabytes(stage['out_bytes']):>10}"
        for stage in report["stages"]
    ]


def _reasons(report: Report, paint: _Paint, most: int | None) -> list[str]:
    read = report["counts"]["read"] + report["counts"]["created"]
    lines: list[str] = []
    for title, key, code in (
        ("dropped because of", "drop_reasons", _BOLD),
        ("quarantined because of", "quarantine_reasons", _YELLOW),
    ):
        found = sorted(report[key].items(), key=lambda item: (-item[1], item[0]))
        if not found:
            continue
        lines += ["", paint(title, code)] if lines else [paint(title, code)]
        lines += [
            f"  {_reason_name(reason):<{_REASON_WIDTH}} {whole(n):>11} {percent(n / read if read else None):>6}"
            for reason, n in found[:most]
        ]
        if most is not None and len(found) > most:
            lines.append(paint(f"  and {len(found) - most} more: see the report", _DIM))
    return lines


def _reason_name(reason: str) -> str:
    """`Stage/Rule` as people read it: a stage that is its only rule is named once."""
    stage, _, rule = reason.partition("/")
    return shorten(stage if stage == rule else reason, _REASON_WIDTH)


def _user_counts(report: Report, paint: _Paint) -> list[str]:
    rows = [
        f"  {shorten(stage['name'] + '/' + name, _REASON_WIDTH):<{_REASON_WIDTH}} {whole(n):>11}"
        for stage in report["stages"]
        for name, n in stage["user_counts"].items()
    ]
    return [paint("counted by stages", _BOLD), *rows] if rows else []


def _law(report: Report, paint: _Paint) -> list[str]:
    """The law of counts; parts that are zero are left out unless they are the point."""
    counts = report["counts"]
    came = [f"{whole(counts['read'])} read"]
    came += [f"{whole(counts['created'])} created"] if counts["created"] else []
    went = [f"{whole(counts[key])} {key}" for key in ("written", "dropped", "quarantined")]
    went += [f"{whole(counts['merged'])} merged"] if counts["merged"] else []
    line = f"{' + '.join(came)} = {' + '.join(went)}"
    if report["counts_add_up"]:
        return [f"{line}  {paint('✓', _GREEN)}"]
    return [f"{line.replace(' = ', ' ≠ ')}  {paint('the counts do not add up: please report this', _RED)}"]


def _places(report: Report, paint: _Paint) -> list[str]:
    lines = []
    outputs = report["output_paths"]
    if outputs:
        files = "1 file" if len(outputs) == 1 else f"{len(outputs):,} files"
        lines.append(("output", f"{_from_here(_common_folder(outputs))}  ({files})"))
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
    """A path below the current folder as people type it."""
    try:
        here = os.getcwd() + os.sep
    except FileNotFoundError:  # somebody removed the current folder meanwhile
        return path
    return path.removeprefix(here)


def _run_facts(report: Report, paint: _Paint) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    facts = (("run", report["run_id"]), ("executor", report["executor"]), ("versions", versions))
    return [f"{paint(f'{label:<10}', _DIM)}  {value}" for label, value in facts]


def _output_files(report: Report, paint: _Paint) -> list[str]:
    outputs = report["output_paths"]
    return [paint("output files", _BOLD), *(f"  {_from_here(path)}" for path in outputs)] if outputs else []
