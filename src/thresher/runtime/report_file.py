# SPDX-License-Identifier: Apache-2.0
"""Write `report.html` into a run folder: gather what the run left there, and draw the page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from thresher.core.files.filesystem import is_url
from thresher.core.unit import Unit
from thresher.ledger.folder.request import RUN_FILE, UNITS_FILE
from thresher.ledger.stores.store import Store, open_store
from thresher.observe.event_log import TIMELINE, Moment, read_timeline
from thresher.observe.report_page.page import PageFacts, report_page
from thresher.observe.report_page.svg import Histogram

REPORT_PAGE = "report.html"
LONG_RUN_S = 20.0
"""A run that took longer draws the histograms of its scores at once; reading them takes a second."""
_MOST_LISTED = 200_000
"""Units whose list is searched for the files of slow units."""
NO_HISTOGRAMS = "The scores were kept. `thresher report RUN --html` draws how they are distributed."


def write_page(store: Store, report: Mapping[str, Any], *, with_scores: bool, events: str | None = None) -> None:
    """Draw the page of a report. `with_scores` also reads all scores that were kept; `events` is the local folder with
    the events of this attempt, which are uploaded later to a run folder behind a URL."""
    facts = page_facts(store, report, with_scores, events)
    store.write(REPORT_PAGE, report_page(report, facts).encode("utf-8", "replace"))


def page_facts(store: Store, report: Mapping[str, Any], with_scores: bool, events: str | None) -> PageFacts:
    """Return what the page shows besides the report."""
    run, plan = _json(store, RUN_FILE), _json(store, "plan.json")
    histograms: list[Histogram] = []
    note = NO_HISTOGRAMS if run.get("keep_scores") else ""
    if run.get("keep_scores") and with_scores:
        from thresher.ledger.score_table import load_scores

        scores = load_scores(store, plan)
        histograms = [Histogram(*found) for found in scores.histograms()]
        note = scores.describe()
    system = os.uname()
    return PageFacts(
        run=run,
        plan=plan,
        recipe=_recipe(store),
        timelines=_timelines(store, events),
        sources=_sources(store, report),
        histograms=histograms,
        histogram_note=note,
        system=f"{system.sysname} {system.release}, {system.machine}, {os.cpu_count()} cores",
    )


def _timelines(store: Store, events: str | None) -> list[list[Moment]]:
    """Return the timeline of each attempt that has one."""
    contents = [store.read(f"events/{name.rstrip('/')}/{TIMELINE}") for name in sorted(store.names("events"))]
    if events is not None and is_url(store.root):
        contents.append(open_store(events).read(TIMELINE))
    return [read_timeline(content) for content in contents if content]


def _recipe(store: Store) -> str:
    """Return the recipe of the run; empty if it was built in Python, or by a workflow."""
    text = (store.read("recipe.yaml") or b"").decode("utf-8", "replace")
    return "" if text.strip() == "{}" else text


def _json(store: Store, name: str) -> dict[str, Any]:
    """Return the content of a JSON file; an empty dict if it is missing or damaged."""
    try:
        found = msgspec.json.decode(store.read(name) or b"{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _sources(store: Store, report: Mapping[str, Any]) -> dict[str, str]:
    """Return the first input file of the slowest units."""
    found: dict[str, str] = {}
    units = {unit["unit"] for unit in report.get("slowest_units") or ()}
    if not units or report["units_total"] > _MOST_LISTED:
        return found
    wanted = {unit.partition("-")[0].encode() for unit in units}
    for line in (store.read(UNITS_FILE) or b"").splitlines():
        if not any(name in line for name in wanted):
            continue
        try:
            unit = msgspec.json.decode(line, type=Unit)
        except (msgspec.DecodeError, RecursionError):
            continue
        if unit.pieces:
            mine = {unit.id} if not unit.stream else {one for one in units if one.startswith(unit.id.partition("-")[0])}
            found.update(dict.fromkeys(mine & units, unit.pieces[0].path))
    return found
