# SPDX-License-Identifier: Apache-2.0
"""Each check of an audit notices what it is there for, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from thresher.core.tally import StageTally, Tally
from thresher.inspect import audit_checks
from thresher.ledger.records import CommitRecord, ManifestLine, OutputFile, manifest_lines

NAMES = ["Reader", "Rule", "Writer"]


def committed(unit: str = "u-000000", **changes: object) -> CommitRecord:
    """A unit of 10 records: 7 written, 2 dropped, 1 quarantined."""
    stages = {
        0: StageTally(in_docs=10, out_docs=9, quarantined=1, errors={"not-json": 1}),
        1: StageTally(in_docs=9, out_docs=7, dropped=2, reasons={"Short": 2}),
        2: StageTally(in_docs=7, out_docs=7),
    }
    record = CommitRecord(
        unit, 1, 10, 7, 2, 1, (OutputFile(f"{unit}.jsonl", 70, 7, "ab" * 32),), tally=Tally(10, 7, stages)
    )
    return msgspec.structs.replace(record, **changes)  # type: ignore[arg-type]  # fields of the struct


def report_of(records: list[CommitRecord]) -> dict[str, object]:
    total = audit_checks.total_of(records)
    return {
        "counts": total.totals(),
        "stages": [{"name": name, **msgspec.structs.asdict(total.stages[number])} for number, name in enumerate(NAMES)],
        "drop_reasons": {"Rule/Short": 2 * len(records)},
        "quarantine_reasons": {"Reader/not-json": len(records)},
        "output_paths": [f"/out/{line.path}" for line in manifest_lines(records)],
    }


def test_a_run_that_is_as_it_should_be_has_no_differences() -> None:
    records = [committed("u-000000"), committed("u-000001")]
    lines = manifest_lines(records)
    checks = [
        audit_checks.check_ledger(records, True),
        audit_checks.check_counts(audit_checks.total_of(records)),
        audit_checks.check_stages(audit_checks.total_of(records), NAMES),
        audit_checks.check_report(report_of(records), records, NAMES, [line.path for line in lines]),
        audit_checks.check_manifest(lines, records),
        audit_checks.check_quarantine(records, {"u-000000": 1, "u-000001": 1}),
    ]
    assert [check.differences for check in checks] == [[]] * 6
    assert checks[1].proven == "20 read = 14 written + 4 dropped + 2 quarantined"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"written": 8}, "its counts"),
        ({"outputs": ()}, "7 records were written, and its files hold 0"),
        ({"tally": Tally(11, 7, committed().tally.stages), "read": 11}, "do not add up"),
    ],
)
def test_a_line_of_the_ledger_that_contradicts_itself_is_noticed(changes: dict[str, object], told: str) -> None:
    check = audit_checks.check_ledger([committed(**changes)], True)
    assert told in check.differences[0]


def test_records_that_are_lost_between_two_stages_are_noticed() -> None:
    total = audit_checks.total_of([committed()])
    total.stages[2].in_docs = total.stages[2].out_docs = 6
    assert audit_checks.check_stages(total, NAMES).differences == ["7 records left Rule, and 6 entered Writer"]
    total.stages[1].dropped = 1
    assert (
        audit_checks.check_stages(total, NAMES).differences[0].startswith("stage Rule: 9 in + 0 created is not 7 out")
    )


@pytest.mark.parametrize("key", ["counts", "stages", "drop_reasons", "quarantine_reasons", "output_paths"])
def test_a_report_that_says_something_else_is_noticed(key: str) -> None:
    records = [committed()]
    report = report_of(records)
    report[key] = {} if isinstance(report[key], dict) else []
    assert audit_checks.check_report(report, records, NAMES, ["u-000000.jsonl"]).differences
    assert audit_checks.check_report(None, records, NAMES, []).differences == [
        "report.json is missing or is not a report"
    ]


def test_a_manifest_that_is_not_the_ledger_is_noticed() -> None:
    records = [committed("u-000000"), committed("u-000001")]
    first, second = manifest_lines(records)
    other = ManifestLine("other.jsonl", 1, 1, "cd" * 32, ("x",))
    changed = msgspec.structs.replace(first, bytes=71)
    told = audit_checks.check_manifest([changed, other], records).differences
    assert len(told) == 3
    assert told[0] == "other.jsonl is in the manifest and not in the ledger"
    assert told[1] == f"{second.path} is in the ledger and not in the manifest"
    assert "71 bytes" in told[2]


def test_quarantine_files_with_too_little_are_noticed_and_retries_count_to_their_unit() -> None:
    retry = CommitRecord("u-000000-retry-1", 2, written=1, quarantined=-1)
    assert not audit_checks.check_quarantine([committed(), retry], {}).differences
    assert audit_checks.check_quarantine([committed()], {}).differences == [
        "unit u-000000: 1 records were quarantined, and 0 are there"
    ]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, "is missing"),
        (audit_checks.FoundFile(69, "ab" * 32, None), "has 69 bytes"),
        (audit_checks.FoundFile(70, "cd" * 32, None), "was changed"),
        (audit_checks.FoundFile(70, "ab" * 32, 6), "holds 6 records"),
    ],
)
def test_a_file_that_is_not_what_was_committed_is_noticed(found: audit_checks.FoundFile | None, told: str) -> None:
    check = audit_checks.check_files("output files", committed().outputs, lambda file: found)
    assert len(check.differences) == 1
    assert told in check.differences[0]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "", "a\0b", "..\\b"])
def test_a_name_that_leads_out_of_the_folder_is_not_followed(name: str) -> None:
    def never(file: OutputFile) -> audit_checks.FoundFile | None:
        raise AssertionError("looked at")

    check = audit_checks.check_files("output files", [OutputFile(name, 1, 1, "")], never)
    assert "leads out of the folder" in check.differences[0]


def test_foreign_and_unfinished_files_are_noticed_and_hidden_ones_are_not() -> None:
    there = ["_thresher/", "a.jsonl", ".hidden", "notes.txt", "b.jsonl.17.thresher-tmp", ".thresher-run-5/"]
    told = audit_checks.check_strays("output folder", there, {"a.jsonl"}).differences
    assert [text.split(" ")[0] for text in told] == ["notes.txt", "b.jsonl.17.thresher-tmp", ".thresher-run-5/"]
