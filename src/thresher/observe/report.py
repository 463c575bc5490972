# SPDX-License-Identifier: Apache-2.0
"""Build the report of a run: a plain dict, the content of report.json and `RunResult.to_dict()`."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from thresher.core.tally import StageTally, Tally, counts_add_up

__all__ = ["RunFacts", "build_report", "package_versions"]

_VERSIONS_OF = ("thresher", "pyarrow", "numpy", "msgspec")


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a report besides counts."""

    run_id: str
    """The id of the run."""
    run_dir: str | None
    """Its folder; `None` for a run without a ledger."""
    name: str
    """The name of the pipeline."""
    status: str
    """`finished` or `nothing-to-do`; in the report of a run that ended early also `failed` or `stopped`."""
    executor: str
    """The name of the executor."""
    stage_names: tuple[str, ...]
    """Names of the stages, in plan order."""
    stage_workers: tuple[int, ...] = ()
    """Maximum number of workers that could run each stage, in plan order."""
    output_paths: tuple[str, ...] = ()
    """Finished output files, in input order."""
    has_writer: bool = True
    """False if the pipeline has no writer."""
    dropped_to: str | None = None
    """Folder of dropped records, if requested."""
    units_total: int = 0
    """Number of units of the run."""
    units_resumed: int = 0
    """Units that an earlier attempt had committed."""
    wall_s: float = 0.0
    """Seconds of this attempt."""
    peak_memory_bytes: int = 0
    """Largest memory sample of this attempt."""
    memory_limit_bytes: int = 0
    """Memory limit; 0: none."""
    error: str | None = None
    """Reason of an early end; `None` if there was none."""


def build_report(facts: RunFacts, tally: Tally, versions: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the report of a run. `tally` is the sum over its committed units, restored ones included."""
    totals = tally.totals()
    stages = [
        _stage_entry(name, tally.stages.get(number) or StageTally(), _at(facts.stage_workers, number))
        for number, name in enumerate(facts.stage_names)
    ]
    return {
        "run_id": facts.run_id,
        "run_dir": facts.run_dir,
        "name": facts.name,
        "status": facts.status,
        "error": facts.error,
        "executor": facts.executor,
        "counts": totals,
        "counts_add_up": counts_add_up(totals),
        "unknown_losses": sum(stage.unknown_losses for stage in tally.stages.values()),
        "extra_values": dict(sorted(tally.extras.items())),
        "stages": stages,
        "drop_reasons": _by_reason(facts.stage_names, tally, "reasons"),
        "quarantine_reasons": _by_reason(facts.stage_names, tally, "errors"),
        "warnings": _missing_fields(facts.stage_names, tally),
        "output_paths": list(facts.output_paths),
        "has_writer": facts.has_writer,
        "dropped_to": facts.dropped_to,
        "units_total": facts.units_total,
        "units_resumed": facts.units_resumed,
        "wall_s": round(facts.wall_s, 3),
        "peak_memory_bytes": facts.peak_memory_bytes,
        "memory_limit_bytes": facts.memory_limit_bytes,
        "versions": package_versions() if versions is None else versions,
    }


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that made the output, from installed metadata, without importing them."""
    found = {"python": sys.version.split()[0]}
    for package in _VERSIONS_OF:
        version = _version_of(package)
        if version is not None:
            found[package] = version
    return found


def _version_of(package: str) -> str | None:
    """Return the version of an installed package from the name of its `.dist-info` folder: importing
    `importlib.metadata` takes longer than a small run."""
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            if entry.startswith(f"{package}-") and entry.endswith(".dist-info"):
                return entry.removeprefix(f"{package}-").removesuffix(".dist-info")
    return None


def _stage_entry(name: str, tally: StageTally, workers: int) -> dict[str, Any]:
    return {
        "name": name,
        "in_docs": tally.in_docs,
        "out_docs": tally.out_docs,
        "in_bytes": tally.in_bytes,
        "out_bytes": tally.out_bytes,
        "created": tally.created,
        "merged": tally.merged,
        "dropped": tally.dropped,
        "quarantined": tally.quarantined,
        "tasks": tally.tasks,
        "retries": tally.retries,
        "splits": tally.splits,
        "split_to": tally.split_to or None,
        "busy_s": round(tally.busy_s, 6),
        "workers": workers,
        "user_counts": tally.own_counts(),
        **({"sent": dict(sorted(tally.sent.items()))} if tally.sent else {}),
        **({"charts": charts} if (charts := tally.charts()) else {}),
    }


def _by_reason(names: tuple[str, ...], tally: Tally, field: str) -> dict[str, int]:
    """Return `{"Stage/Rule": n}`, the most frequent first, ties by name, so that reports are deterministic."""
    found = {
        f"{name}/{reason}": n
        for number, name in enumerate(names)
        if number in tally.stages
        for reason, n in getattr(tally.stages[number], field).items()
        if n
    }
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _missing_fields(names: tuple[str, ...], tally: Tally) -> list[str]:
    return [
        f"{names[number]}: no record has the field {field!r}.{hint}"
        for number, stage in sorted(tally.stages.items())
        for field, hint in stage.missing_fields().items()
    ]


def _at(numbers: tuple[int, ...], place: int) -> int:
    return numbers[place] if place < len(numbers) else 0
