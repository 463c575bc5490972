# SPDX-License-Identifier: Apache-2.0
"""The report holds what the contract names, and its text fits a terminal of 80 columns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.tally import StageTally, Tally
from thresher.observe.report import RunFacts, build_report
from thresher.observe.summary import report_text, summary_text

NAMES = ("JsonlReader", "WordCountFilter", "ScoreFilter", "JsonlWriter")
FACTS = RunFacts(
    run_id="r1",
    run_dir="out/_thresher",
    name="english",
    status="finished",
    executor="local",
    stage_names=NAMES,
    stage_workers=(2, 2, 2, 2),
    output_paths=("out/a.jsonl", "out/b.jsonl"),
    units_total=16,
    units_resumed=3,
    wall_s=12.3456,
    peak_memory_bytes=412_000_000,
    memory_limit_bytes=10**9,
)


def tally() -> Tally:
    """105 lines, 5 of them broken, 30 dropped by three rules."""
    return Tally(
        105,
        70,
        {
            0: StageTally(105, 100, 1000, 950, quarantined=5, tasks=2, busy_s=3.0, errors={"not-json": 4, "utf-8": 1}),
            1: StageTally(100, 80, 950, 800, dropped=20, busy_s=1.0, reasons={"WordCountFilter": 20}),
            2: StageTally(80, 70, 800, 700, dropped=10, reasons={"Urls": 3, "Bullets": 7}, counts={"b": 2, "a": 1}),
            3: StageTally(70, 70, 700, 700, retries=1),
        },
    )


def report(**changes: Any) -> dict[str, Any]:
    """The report of that run, with some entries changed."""
    return {**build_report(FACTS, tally(), versions={"thresher": "0.1.0"}), **changes}


def test_a_report_holds_what_a_run_result_promises() -> None:
    made = report()
    assert made["counts"] == {
        "read": 105,
        "created": 0,
        "merged": 0,
        "written": 70,
        "dropped": 30,
        "quarantined": 5,
    }
    for key in ("run_id", "run_dir", "status", "output_paths", "units_total", "units_resumed", "peak_memory_bytes"):
        value = getattr(FACTS, key)
        assert made[key] == (list(value) if isinstance(value, tuple) else value)
    names = "name in_docs out_docs in_bytes out_bytes dropped quarantined tasks retries busy_s workers"
    for entry in made["stages"]:
        assert set(names.split()) <= set(entry)
    assert made["stages"][2]["user_counts"] == {"a": 1, "b": 2}


def test_a_report_survives_json() -> None:
    assert json.loads(json.dumps(report())) == report()


def test_reasons_name_stage_and_rule_most_frequent_first() -> None:
    assert list(report()["drop_reasons"].items()) == [
        ("WordCountFilter/WordCountFilter", 20),
        ("ScoreFilter/Bullets", 7),
        ("ScoreFilter/Urls", 3),
    ]
    assert report()["quarantine_reasons"] == {"JsonlReader/not-json": 4, "JsonlReader/utf-8": 1}


def test_a_stage_that_saw_nothing_is_in_the_report() -> None:
    made = build_report(FACTS, Tally(stages={}), versions={})
    assert [entry["name"] for entry in made["stages"]] == list(NAMES)
    assert made["stages"][1]["in_docs"] == 0
    assert made["counts_add_up"]


def test_versions_are_found_without_being_told() -> None:
    versions = build_report(FACTS, tally())["versions"]
    assert {"python", "thresher", "pyarrow"} <= set(versions)


def test_counts_that_do_not_add_up_are_said_aloud() -> None:
    wrong = tally()
    wrong.written = 69
    made = build_report(FACTS, wrong, versions={})
    assert made["counts_add_up"] is False
    assert "do not add up" in summary_text(made, color=False)


def test_the_summary_says_where_everything_is() -> None:
    text = summary_text(report(), color=False)
    assert "english  finished in 12 s" in text
    assert "105 read = 70 written + 30 dropped + 5 quarantined  ✓" in text
    assert re.search(r"output +out  \(2 files\)", text)
    assert re.search(r"run folder +out/_thresher$", text, re.MULTILINE)
    assert re.search(r"quarantine +out/_thresher/quarantine$", text, re.MULTILINE)
    assert re.search(r"units +16, 3 of them done by an earlier attempt", text)


def test_created_and_merged_records_appear_where_there_are_some() -> None:
    counts = {"read": 10, "created": 5, "merged": 3, "written": 12, "dropped": 0, "quarantined": 0}
    text = summary_text(report(counts=counts), color=False)
    assert "10 read + 5 created = 12 written + 0 dropped + 0 quarantined + 3 merged" in text


def test_a_rule_that_is_its_own_stage_is_named_once() -> None:
    text = summary_text(report(), color=False)
    assert re.search(r"^  WordCountFilter +20  19\.0%$", text, re.MULTILINE)
    assert re.search(r"^  ScoreFilter/Bullets +7   6\.7%$", text, re.MULTILINE)


def test_nothing_quarantined_means_no_word_about_it() -> None:
    clean = Tally(10, 10, {0: StageTally(10, 10)})
    text = summary_text(build_report(FACTS, clean, versions={}), color=False)
    assert "quarantine " not in text
    assert "because of" not in text


def test_many_reasons_are_cut_in_the_summary_and_complete_in_the_report() -> None:
    many = {f"ScoreFilter/Rule{i:02d}": 100 - i for i in range(30)}
    short, long = summary_text(report(drop_reasons=many), color=False), report_text(report(drop_reasons=many))
    assert "and 22 more" in short
    assert "Rule29" not in short
    assert "Rule29" in long


def test_the_long_report_adds_what_stages_counted_and_every_file() -> None:
    text = report_text(report())
    assert re.search(r"ScoreFilter/a +1$", text, re.MULTILINE)
    assert "  out/b.jsonl" in text
    assert "thresher 0.1.0" in text


def test_an_error_is_told_under_the_headline() -> None:
    text = summary_text(report(status="failed", error="disk full: out/a.jsonl"), color=False)
    assert text.splitlines()[:2] == [
        "english  failed in 12 s  ·  peak memory 412.0 MB of 1.0 GB",
        "disk full: out/a.jsonl",
    ]


@pytest.mark.parametrize(
    ("paths", "folder"),
    [(["/a/b/x", "/a/c/y"], "/a"), (["s3://bucket/out/x", "s3://bucket/out/y"], "s3://bucket/out"), (["x.jsonl"], ".")],
)
def test_the_output_folder_is_found_for_any_kind_of_path(paths: list[str], folder: str) -> None:
    assert re.search(rf"output +{folder}  \(", summary_text(report(output_paths=paths), color=False))


def test_paths_below_the_current_folder_are_shown_as_people_type_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = summary_text(report(run_dir=str(tmp_path / "out" / "_thresher")), color=False)
    assert re.search(r"run folder +out/_thresher$", text, re.MULTILINE)
    assert re.search(r"quarantine +out/_thresher/quarantine$", text, re.MULTILINE)


def test_colour_only_adds_escape_codes() -> None:
    colored = summary_text(report(), color=True)
    assert "\033[" in colored
    assert re.sub(r"\033\[\d+m", "", colored) == summary_text(report(), color=False)


big = st.integers(0, 10**13)


@given(
    name=st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=1, max_size=60),
    numbers=st.tuples(big, big, big, big, big, big),
    busy_s=st.floats(0, 1e7),
)
def test_tables_fit_80_columns_whatever_the_numbers(name: str, numbers: tuple[int, ...], busy_s: float) -> None:
    entry = StageTally(*numbers[:4], dropped=numbers[4], quarantined=numbers[5], busy_s=busy_s, reasons={name: 1})
    facts = RunFacts(run_id="r", run_dir=None, name="n", status="finished", executor="local", stage_names=(name,))
    text = summary_text(build_report(facts, Tally(1, 1, {0: entry}), versions={}), color=False)
    table = text.split("\n\n")[1]
    assert max(len(line) for line in table.splitlines()) <= 80


def test_long_names_are_whole_where_there_is_room() -> None:
    name = "a-stage-with-a-name-that-says-all-about-it-" + "x" * 40
    facts = RunFacts(run_id="r", run_dir=None, name="n", status="finished", executor="local", stage_names=(name,))
    entry = StageTally(in_docs=1, dropped=1, reasons={"rule": 1})
    made = build_report(facts, Tally(1, 0, {0: entry}), versions={})
    for width in (None, 200):
        text = summary_text(made, color=False, width=width)
        assert text.count(name) == 2
        assert f"{name}/rule" in text
    narrow = summary_text(made, color=False, width=80)
    assert name not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
