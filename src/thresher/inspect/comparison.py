# SPDX-License-Identifier: Apache-2.0
"""Compare two runs: counts, drop reasons, speed, recipes, and documents whose fate differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from thresher.core.recipes.yaml_text import read_yaml
from thresher.errors import RefusedError, UsageError
from thresher.inspect.fates import PASSED, Fate, FateFiles, fate_files
from thresher.ledger.folder.find import read_json
from thresher.ledger.folder.request import changed_parts
from thresher.ledger.stores.store import open_store

EXAMPLES = 3
"""Documents that are named for each way in which a fate differs."""
MOST_VALUE = 200
"""Characters of a value of a recipe that are shown."""
MISSING = "(none)"
"""Stands for a setting that one of the recipes does not have."""
BUSY_SHARE = 0.02
"""Stages with a smaller share of the time are too quick to compare their speed."""
ABOUT_OUTPUT = ("path",)
"""Parameters of a writer that say where it writes: they differ in any two runs."""

ReportProgress = Callable[[int, int], None]
"""Callback for progress: bytes so far, bytes in total."""


class Change(NamedTuple):
    """A number of both runs."""

    name: str
    """Name of the count."""
    before: float
    """In the first run."""
    after: float
    """In the second run."""


class Example(NamedTuple):
    """A document whose fate differs."""

    id: str
    """Its record id."""
    score: Any
    """Score that decided, in the run that dropped it; the second one if both did."""
    record: str
    """The record, if one of the runs kept it."""


class Move(NamedTuple):
    """Documents that had one fate in the first run and another one in the second."""

    before: str
    """`passed`, `Stage/Rule` or `quarantined: Stage/error`."""
    after: str
    """The same in the second run."""
    documents: int
    """Number of documents."""
    examples: list[Example]
    """The first of them."""


class Comparison(msgspec.Struct):
    """Differences between two runs."""

    runs: list[dict[str, Any]]
    """Id, folder, name, status, executor and start of both."""
    counts: list[Change]
    """The counts of both."""
    drop_reasons: list[Change]
    """Dropped records by reason, the largest difference first."""
    quarantine_reasons: list[Change]
    """Quarantined records by reason, the largest difference first."""
    speed: list[Change]
    """Seconds, documents and bytes a second, memory, and the bytes a second of each stage on one worker."""
    recipe: list[tuple[str, Any, Any]]
    """Settings that differ: name, first and second value."""
    moves: list[Move]
    """Documents whose fate differs, the most frequent way first."""
    units_compared: int
    """Units that both runs have committed, whose documents were compared."""
    notes: list[str]
    """Limits of the comparison."""


def compare_runs(
    first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]], report_progress: ReportProgress
) -> Comparison:
    """Compare two runs, each a run folder and the options to open it."""
    files = [fate_files(*first), fate_files(*second)]
    reports = [_report(*first), _report(*second)]
    notes: list[str] = []
    moves, units = _moves(files, notes, report_progress)
    recipe = _recipe_changes(files, notes)
    return Comparison(
        runs=[_facts(one, report) for one, report in zip(files, reports, strict=True)],
        counts=_changes(reports[0]["counts"], reports[1]["counts"], everything=True),
        drop_reasons=_changes(reports[0]["drop_reasons"], reports[1]["drop_reasons"]),
        quarantine_reasons=_changes(reports[0]["quarantine_reasons"], reports[1]["quarantine_reasons"]),
        speed=_in_both(_speed(reports[0]), _speed(reports[1])),
        recipe=recipe,
        moves=moves,
        units_compared=units,
        notes=notes,
    )


def _report(run_dir: str, options: dict[str, Any]) -> dict[str, Any]:
    report = read_json(run_dir, "report.json", options)
    if not isinstance(report, dict) or not {"counts", "stages", "drop_reasons", "quarantine_reasons"} <= report.keys():
        raise UsageError(
            f"{run_dir}: the run has no report.json, or a damaged one: it is still under way, or was ended before its "
            "end. Compare runs that have ended"
        )
    return report


def _facts(files: FateFiles, report: Mapping[str, Any]) -> dict[str, Any]:
    attempts = files.state.attempts
    return {
        "run_id": files.state.run_id,
        "run_dir": files.run_dir,
        "name": files.state.name,
        "status": report.get("status"),
        "executor": report.get("executor"),
        "start": attempts[0].start if attempts else None,
        "thresher": files.state.versions.get("thresher"),
        "fingerprint": files.state.fingerprint,
    }


def _changes(before: Mapping[str, float], after: Mapping[str, float], *, everything: bool = False) -> list[Change]:
    """Return the numbers of both runs: all of them in order, or those that differ, the largest difference first."""
    names = dict.fromkeys([*before, *after])
    found = [Change(name, before.get(name, 0), after.get(name, 0)) for name in names]
    if everything:
        return found
    return sorted((c for c in found if c.before != c.after), key=lambda c: (-abs(c.after - c.before), c.name))


def _in_both(before: Mapping[str, float], after: Mapping[str, float]) -> list[Change]:
    return [Change(name, value, after[name]) for name, value in before.items() if name in after]


def _speed(report: Mapping[str, Any]) -> dict[str, float]:
    wall_s, stages = float(report.get("wall_s") or 0), report["stages"]
    first = stages[0] if stages else {"in_bytes": 0, "out_bytes": 0}
    found = {"seconds": wall_s}
    if wall_s and not report.get("units_resumed"):
        found["documents/s"] = round(report["counts"]["read"] / wall_s, 1)
        found["bytes/s"] = round((first["in_bytes"] or first["out_bytes"]) / wall_s)
    found["peak memory"] = report.get("peak_memory_bytes") or 0
    busy_s = sum(stage["busy_s"] for stage in stages)
    for stage in stages:
        nbytes = stage["in_bytes"] or stage["out_bytes"]
        if stage["busy_s"] >= max(0.01, BUSY_SHARE * busy_s):
            found[f"{stage['name']} bytes/s"] = round(nbytes / stage["busy_s"])
    return found


# -- recipes ----------------------------------------------------------------------------------------------------------


def _recipe_changes(files: list[FateFiles], notes: list[str]) -> list[tuple[str, Any, Any]]:
    """Return the settings in which two recipes differ; a note says what fingerprints show if there is no recipe."""
    recipes = [_settings(one) for one in files]
    if not recipes[0] or not recipes[1]:
        parts = changed_parts(files[0].state.fingerprint_parts, files[1].state.fingerprint_parts)
        what = f"Their fingerprints differ in: {'; '.join(parts)}" if parts else "Their fingerprints are the same"
        notes.append(f"a run that was started from Python keeps no recipe. {what}")
        return []
    names = dict.fromkeys([*recipes[0], *recipes[1]])
    pairs = ((name, recipes[0].get(name, MISSING), recipes[1].get(name, MISSING)) for name in names)
    return [(name, _short(before), _short(after)) for name, before, after in pairs if before != after]


def _short(value: Any) -> Any:
    text = str(value)
    return value if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def _settings(files: FateFiles) -> dict[str, Any]:
    """Return all settings of a saved recipe by name, such as `WordCountFilter.min_words`."""
    content = open_store(files.run_dir, files.options).read("recipe.yaml")
    try:
        recipe = read_yaml((content or b"").decode("utf-8"), "recipe.yaml")[0] if content else None
    except (RefusedError, UnicodeDecodeError):
        return {}
    if not isinstance(recipe, dict):
        return {}
    found: dict[str, Any] = {}
    for key, value in recipe.items():
        if key == "stages":
            found |= dict(_of_stages(value))
        elif key not in ("params", "description"):
            found |= dict(_flat(key, value))
    return found


def _of_stages(stages: Any) -> Iterator[tuple[str, Any]]:
    seen: dict[str, int] = {}
    for item in stages if isinstance(stages, list) else ():
        if isinstance(item, dict) and "_target_" not in item and len(item) == 1:
            name, parameters = next(iter(item.items()))
        elif isinstance(item, dict):
            parameters = {key: value for key, value in item.items() if key != "_target_"}
            name = str(item.get("_target_", "?")).rpartition(".")[2]
        else:
            name, parameters = str(item), {}
        if isinstance(parameters, dict) and parameters.get("name"):
            name = str(parameters["name"])
        seen[name] = seen.get(name, 0) + 1
        name = name if seen[name] == 1 else f"{name}-{seen[name]}"
        yield name, "in the recipe"
        for key, value in _flat(name, parameters if isinstance(parameters, dict) else {}):
            if not (name.endswith("Writer") and key.rpartition(".")[2] in ABOUT_OUTPUT):
                yield key, value


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    else:
        yield name, value


# -- documents --------------------------------------------------------------------------------------------------------


def _moves(files: list[FateFiles], notes: list[str], report_progress: ReportProgress) -> tuple[list[Move], int]:
    """Return the documents whose fate differs, and the number of units that were compared."""
    lacking = [one.run_dir for one in files if not one.known]
    if lacking:
        notes.append(
            f"{' and '.join(lacking)}: kept neither dropped records nor scores, so single documents cannot be "
            "compared. Run with --dropped-to DIR or --keep-scores"
        )
        return [], 0
    units = [unit for unit in files[0].records if unit in files[1].records]
    if not units:
        notes.append("the runs have no unit in common: they read other input, or cut it with another blocksize")
        return [], 0
    left = len(files[0].records) + len(files[1].records) - 2 * len(units)
    if left:
        notes.append(f"{left:,} units are in one of the runs only; their documents were not compared")
    found: dict[tuple[str, str], Move] = {}
    done, total = 0, sum(files[0].dropped_bytes(unit) + files[1].dropped_bytes(unit) for unit in units)
    for unit in units:
        _compare_unit(files[0].of_unit(unit), files[1].of_unit(unit), found)
        done += files[0].dropped_bytes(unit) + files[1].dropped_bytes(unit)
        report_progress(done, total)
    return sorted(found.values(), key=lambda move: (-move.documents, move.before, move.after)), len(units)


def _compare_unit(before: dict[str, Fate], after: dict[str, Fate], found: dict[tuple[str, str], Move]) -> None:
    for record_id in dict.fromkeys([*before, *after]):
        old, new = before.get(record_id), after.get(record_id)
        key = (old.reason if old else PASSED, new.reason if new else PASSED)
        if key[0] == key[1]:
            continue
        move = found.get(key) or Move(*key, 0, [])
        if len(move.examples) < EXAMPLES:
            decided = new or old
            kept = next((one.line for one in (new, old) if one and one.line), b"")
            score = decided.score if decided else None
            move.examples.append(Example(record_id, score, kept[:2000].decode("utf-8", "replace")))
        found[key] = move._replace(documents=move.documents + 1)
