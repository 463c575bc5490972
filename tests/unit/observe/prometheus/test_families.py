# SPDX-License-Identifier: Apache-2.0
"""Families and their text: names and labels of the contract, limits, monotone counters, both formats."""

from __future__ import annotations

import subprocess

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from tests.contract.facts import METRICS
from tests.prometheus_server import needs_prometheus
from tests.unit.observe.prometheus.snapshots import INFO, READER, RULE, SCORER, SNAPSHOT, with_stage
from thresher.observe.progress import RunInfo, Snapshot
from thresher.observe.prometheus.exposition import OPENMETRICS, PLAIN, content_type, render
from thresher.observe.prometheus.families import MOST_NAMES, RunMetrics


def samples(metrics: RunMetrics, *snapshots: Snapshot) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, as a client reads the last text."""
    text = b""
    for snapshot in snapshots:
        text = render(metrics.families([("", INFO, snapshot)]), OPENMETRICS)
    found = [sample for family in parse_openmetrics(text.decode()) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}


def value(found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, /, **labels: str) -> float:
    return found[f"thresher_{name}", frozenset(labels.items())]


def test_every_metric_of_the_contract_is_there_with_its_labels() -> None:
    found = {name: {label for label, _ in labels} for name, labels in samples(RunMetrics(), SNAPSHOT)}
    assert {name: found.get(name) for name in METRICS} == METRICS


def test_both_formats_have_the_same_samples() -> None:
    families = RunMetrics().families([("", INFO, SNAPSHOT), ("short", INFO, SNAPSHOT)])
    new = [s for family in parse_openmetrics(render(families, OPENMETRICS).decode()) for s in family.samples]
    old = [s for family in parse_plain(render(families, PLAIN).decode()) for s in family.samples]

    def told(some: list[object]) -> set[tuple[object, ...]]:
        return {(s.name, frozenset(s.labels.items()), s.value) for s in some}  # type: ignore[attr-defined]

    assert told(new) == told(old)
    assert len(told(new)) == len(new), "no sample is there twice"


@needs_prometheus
def test_promtool_finds_nothing_to_complain_about() -> None:
    text = render(RunMetrics().families([("", INFO, SNAPSHOT), ("short", INFO, SNAPSHOT)]), PLAIN)
    ended = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_histograms_are_cumulative() -> None:
    found = samples(RunMetrics(), SNAPSHOT)
    steps = [value(found, "task_seconds_bucket", stage="Reader", le=le) for le in ("0.001", "0.0025", "0.005", "+Inf")]
    assert steps == [1, 1, 3, 3]
    assert value(found, "task_seconds_sum", stage="Reader") == 0.0125


def test_hostile_names_are_escaped() -> None:
    assert value(samples(RunMetrics(), SNAPSHOT), "dropped_total", stage='Rule "1"\n', reason="A") == 30


def test_workers_add_up_over_stages() -> None:
    found = samples(RunMetrics(), SNAPSHOT)
    workers = {labels: n for (name, labels), n in found.items() if name == "thresher_workers"}

    def total(state: str) -> float:
        return sum(n for labels, n in workers.items() if ("state", state) in labels)

    assert (total("starting"), total("ready"), total("idle"), total("busy")) == (2, 5, 2, 2)


def test_unknown_progress_is_absent_and_not_zero() -> None:
    found = samples(RunMetrics(), replace(SNAPSHOT, progress_ratio=None, eta_s=None, memory_limit_bytes=0))
    names = {name for name, _ in found}
    assert not names & {"thresher_progress_ratio", "thresher_eta_seconds", "thresher_memory_limit_bytes"}


def test_reasons_beyond_the_limit_count_as_other_and_never_change_their_place() -> None:
    metrics = RunMetrics()
    first = replace(RULE, drop_reasons={f"r{n}": 1 for n in range(MOST_NAMES - 1)})
    second = replace(RULE, drop_reasons={f"a{n}": 100 for n in range(500)} | first.drop_reasons)
    found = samples(metrics, with_stage(first), with_stage(second))
    dropped = {dict(labels)["reason"]: n for (name, labels), n in found.items() if name == "thresher_dropped_total"}
    assert len(dropped) == MOST_NAMES + 1
    assert dropped["r0"] == 1
    assert dropped["other"] == 100 * 499


def test_a_counter_never_goes_back_while_the_run_goes_on() -> None:
    metrics = RunMetrics()
    restarted = with_stage(replace(READER, out_docs=40))
    found = samples(metrics, SNAPSHOT, restarted)
    assert value(found, "documents_total", stage="Reader", direction="out") == 90
    found = samples(metrics, replace(restarted, status="finished"))
    assert value(found, "documents_total", stage="Reader", direction="out") == 40, (
        "the end has the figures of the report"
    )


def test_charts_and_own_numbers_appear() -> None:
    found = samples(RunMetrics(), SNAPSHOT)
    assert value(found, "user_value", stage="Scorer", name="languages") == 5
    assert value(found, "chart_value", stage="Scorer", chart="kept", bar="en", part="") == 3
    assert value(found, "chart_value", stage="Scorer", chart="kept", bar="0.5", part="dropped") == 3


def test_outlets_have_a_label_and_the_pipeline_has_none() -> None:
    families = RunMetrics().families([("", INFO, with_stage(SCORER)), ("short", INFO, with_stage(SCORER))])
    text = render(families, OPENMETRICS).decode()
    assert 'thresher_tasks_total{stage="Scorer"} 0' in text
    assert 'thresher_tasks_total{stage="Scorer",outlet="short"} 0' in text


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("text/plain", PLAIN),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OPENMETRICS),
        ("application/openmetrics-text;q=0.3, text/plain;q=0.8", PLAIN),
        ("application/openmetrics-text;q=nonsense", PLAIN),
    ],
)
def test_the_client_gets_the_format_that_it_prefers(accept: str, expected: str) -> None:
    assert content_type(accept) == expected


def test_a_run_with_an_odd_name_is_still_text() -> None:
    families = RunMetrics().families([("", RunInfo(name="\ud800\\", executor="x"), SNAPSHOT)])
    assert b'name="?\\\\"' in render(families, PLAIN)
