# SPDX-License-Identifier: Apache-2.0
"""The page of a report: complete, bounded, and harmless whatever the data says."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from thresher.core.tally import StageTally, Tally, charted
from thresher.observe.bottleneck import advise
from thresher.observe.event_log import Moment, StageMoment
from thresher.observe.report import RunFacts, build_report
from thresher.observe.report_page.page import PageFacts, joined, rates, report_page
from thresher.observe.report_page.svg import Curve, Histogram, chart, histogram, shown

HOSTILE = '<script>alert(1)</script>" onload="x\u202egnp.exe\x00\x1b[31m\ud800'
VOID = {"meta", "br", "path", "line", "rect"}


class Checker(HTMLParser):
    """Parser that notes tags and attributes, and fails where tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(page: str) -> Checker:
    """Return what is on a page."""
    checker = Checker()
    checker.feed(page)
    assert not checker.open
    return checker


def report(*, wall_s: float = 10.0, hostile: str = "Rule", **facts: Any) -> dict[str, Any]:
    """Return a report with two stages: a cheap one, and one that takes nine times as long."""
    tally = Tally(read=100, written=60)
    reader, rule = tally.stage(0), tally.stage(1)
    reader.in_docs = reader.out_docs = rule.in_docs = 100
    reader.in_bytes = reader.out_bytes = rule.in_bytes = 1_000_000
    reader.busy_s, rule.busy_s, rule.out_docs = 2.0, 17.0, 60
    rule.count_dropped(hostile, 39)
    rule.quarantined, rule.errors, rule.examples = 1, {hostile: 1}, {hostile: f"abc: {hostile}"}
    name = hostile.replace("\ud800", "")  # the names of charts are JSON
    rule.counts = {charted(name, name, "kept"): 3, charted(name, name, "dropped"): 1}
    all_facts = {
        "run_id": "20260101-000000-abcd",
        "run_dir": f"/data/{hostile}/_thresher",
        "name": "pipeline",
        "status": "finished",
        "executor": "local",
        "stage_names": ("Reader", hostile),
        "stage_workers": (2, 2),
        "units_total": 50,
        "wall_s": wall_s,
        "slowest_units": ({"unit": "abc-000000", "busy_s": 3.5, "read": 10, "written": 5},),
        **facts,
    }
    return build_report(RunFacts(**all_facts), tally)


def moments(count: int) -> list[Moment]:
    """Return a timeline of a run that reads ten documents a second."""
    stage = StageMoment(1, 1, 0.5, 0, 1, 2)
    return [
        Moment(
            t=float(n), docs=10 * n, nbytes=1000 * n, units=n, memory=n, inflight=0, busy=1, workers=2, stages=(stage,)
        )
        for n in range(count)
    ]


def test_hostile_text_is_shown_and_never_becomes_markup() -> None:
    facts = PageFacts(
        recipe=HOSTILE,
        sources={"abc-000000": HOSTILE},
        plan={"ops": []},
        run={"attempts": [{"number": 1, "host": HOSTILE, "start": HOSTILE}], "fingerprint": HOSTILE},
        histograms=[Histogram(HOSTILE, 0.0, 1.0, (1, 2), 0, (("low", 0.5, HOSTILE),))],
        timelines=[moments(10)],
    )
    page = report_page(report(hostile=HOSTILE, error=HOSTILE), facts)
    found = parsed(page)
    assert "script" not in found.tags
    assert not {name for name in found.attributes if name.startswith("on")}
    assert "<script>alert(1)</script>" in found.text
    assert not {c for c in page if c in "\u202e\x00\x1b\ud800"}
    assert "\\u202e" in page


def test_the_page_shows_what_the_report_says() -> None:
    found = parsed(report_page(report(), PageFacts(timelines=[moments(10)], sources={"abc-000000": "a/b.jsonl"})))
    for text in ("100", "60", "39", "Rule", "a/b.jsonl", "abc-000000", "thresher audit", "Documents read", "Memory"):
        assert text in found.text, text


def test_the_page_is_bounded_however_many_stages_reasons_and_samples_there_are() -> None:
    big = report()
    big["stages"] = [dict(big["stages"][1], name=f"stage {n} {'x' * 500}") for n in range(5000)]
    big["drop_reasons"] = {f"stage {n}/rule {'y' * 500}": 1 for n in range(5000)}
    big["quarantine_reasons"] = {f"stage {n}/error {'z' * 500}": 1 for n in range(5000)}
    page = report_page(big, PageFacts(recipe="r" * 10_000_000, timelines=[moments(20_000)]))
    assert len(page) < 1_000_000


def test_a_timeline_of_several_attempts_goes_on_where_the_last_one_ended() -> None:
    both = joined([moments(3), moments(2)])
    assert [moment.t for moment in both] == [0.0, 1.0, 2.0, 2.0, 3.0]
    assert rates(both, "docs") == [0.0, 10.0, 10.0, 0.0, 10.0]


def test_a_chart_draws_the_peaks_of_what_it_leaves_out() -> None:
    values = [0.0] * 5000
    values[2345] = 7.0
    drawn = chart("title", [float(n) for n in range(5000)], [Curve("c", values, "c1")])
    assert drawn.count("L") < 400
    assert "at most 7" in drawn


def test_a_histogram_keeps_the_class_that_a_bound_belongs_to() -> None:
    drawn = histogram(Histogram("A/A", 0.0, 2.0, (5, 0, 3), 0, (("low", 2.0, "least"),)))
    assert 'class="kept"' in drawn, "documents with the score of the bound are kept"
    assert 'class="dropped"' in drawn
    assert "least = 2" in drawn


def test_text_that_is_too_long_is_cut() -> None:
    assert len(shown("x" * 10_000)) == 301


# -- the advice -------------------------------------------------------------------------------------------------------

PLAN = {
    "ops": [
        {"index": 0, "steps": [["read", 0]], "own_workers": False},
        {"index": 1, "steps": [["call", 1]], "own_workers": True},
    ]
}


def test_workers_for_the_slowest_stage_help_until_another_one_is_slowest() -> None:
    found = report(hostile="Classify")
    found["stages"][0]["busy_s"], found["stages"][1]["busy_s"] = 12.5, 17.0
    advice = advise(found, PLAN, [2, 2])
    assert advice.stage == "Classify"
    assert advice.more_workers == 1
    # Two workers take 8.5 s, the reader 6.25 s: with a third worker the rest takes 6.25 s.
    assert advice.gain == pytest.approx(8.5 / 6.25 - 1)
    assert "1 more worker would give +36%" in advice.text


def test_idle_workers_are_no_bottleneck() -> None:
    assert "busy only" in advise(report(wall_s=100.0), PLAN, [2, 2]).text
    few = report(wall_s=100.0, units_total=1)
    assert "smaller blocksize" in advise(few, PLAN, [2, 2]).text
    full = report(wall_s=100.0, peak_memory_bytes=95, memory_limit_bytes=100)
    assert "larger limit" in advise(full, PLAN, [2, 2]).text


def test_a_resumed_run_gets_no_advice_from_half_of_its_work() -> None:
    assert advise(report(units_resumed=3), PLAN, [2, 2]).gain == 0.0


def test_an_empty_run_has_a_page() -> None:
    empty = build_report(
        RunFacts(
            run_id="a", run_dir=None, name="n", status="nothing-to-do", executor="serial", stage_names=("Reader",)
        ),
        Tally(stages={0: StageTally()}),
    )
    assert "Nothing was processed" in parsed(report_page(empty, PageFacts())).text
