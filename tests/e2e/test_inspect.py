# SPDX-License-Identifier: Apache-2.0
"""What happened to each document: `quarantine`, `retry`, `why` and `audit` on real runs."""

from __future__ import annotations

import functools
import gzip
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import commands

Thresher = Callable[..., subprocess.CompletedProcess[str]]

STAGES = """\
import os
import time

from thresher import DocumentBatch, ProcessingStage


def is_mended():
    return os.path.exists("mended")


class Fragile(ProcessingStage[DocumentBatch, DocumentBatch]):
    # Fails on every record whose n ends in 7, until the file `mended` is there; those that end in 77 fail always.
    def process(self, task):
        for n in task.values("n"):
            if n % 10 == 7 and (not is_mended() or n % 100 == 77):
                raise ValueError(f"cannot work on \\x1b[31m{n}")
        if os.path.exists("slow") and max(task.values("n")) > 200:
            open("started", "w").close()
            while os.path.exists("slow"):
                time.sleep(0.01)
        return task


class Halves(ProcessingStage[DocumentBatch, DocumentBatch]):
    # Makes two records of each one.
    def process(self, task):
        for row in task.to_pyarrow().to_pylist():
            yield DocumentBatch([{"n": row["n"], "part": 0, "text": row["text"]}, {"n": row["n"], "part": 1,
                                "text": row["text"]}])


class FragilePart(ProcessingStage[DocumentBatch, DocumentBatch]):
    # Fails on one child of some records, until the file `mended` is there.
    def process(self, task):
        for n, part in zip(task.values("n"), task.values("part")):
            if n % 10 == 7 and part == 1 and not is_mended():
                raise ValueError(f"cannot work on part {part} of {n}")
        return task
"""

COUNT = 400


@pytest.fixture
def thresher(tmp_path: Path) -> Thresher:
    """Runs `thresher …` in a folder of its own."""
    return functools.partial(commands.thresher, tmp_path, "mending")


def record(n: int) -> dict[str, Any]:
    return {"n": n, "text": f"document number {n} " + "word " * (n % 9)}


def make_input(folder: Path, kind: str) -> None:
    """The same records in four files, as JSON lines (plain or packed) or as Parquet."""
    (folder / "input").mkdir()
    (folder / "mending.py").write_text(STAGES)
    for number in range(4):
        records = [record(n) for n in range(number * COUNT // 4, (number + 1) * COUNT // 4)]
        text = "".join(json.dumps(entry) + "\n" for entry in records).encode()
        path = folder / "input" / f"part{number}"
        if kind == "jsonl":
            path.with_suffix(".jsonl").write_bytes(text)
        elif kind == "gz":
            path.with_suffix(".jsonl.gz").write_bytes(gzip.compress(text))
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(records), path.with_suffix(".parquet"), row_group_size=25)


def recipe(kind: str = "jsonl", stages: tuple[str, ...] = ("Fragile",), writer: str = "{path: output}") -> str:
    reader = "ParquetReader" if kind == "parquet" else "JsonlReader"
    items = "".join(f"  - {{_target_: mending.{name}}}\n" for name in stages)
    return (
        f"name: fragile\noptions: {{max_errors: 100%}}\nstages:\n  - {reader}: {{file_paths: input, blocksize: 3kB}}\n"
        f"  - WordCountFilter: {{min_words: 5}}\n{items}"
        f"  - {'ParquetWriter' if kind == 'parquet' else 'JsonlWriter'}: {writer}\n"
    )


def start(folder: Path, thresher: Thresher, text: str, *flags: str) -> dict[str, Any]:
    (folder / "recipe.yaml").write_text(text)
    done = thresher("run", "recipe.yaml", "--trust", "mending", "--json", *flags)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def written(folder: Path) -> list[dict[str, Any]]:
    """All records of the output, in the order of n and part."""
    records: list[dict[str, Any]] = []
    for path in sorted((folder / "output").iterdir()):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            records += pq.read_table(path).to_pylist()
        elif path.is_file():
            records += [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(records, key=lambda entry: (entry["n"], entry.get("part", 0)))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "output").iterdir() if path.is_file()}


KEPT = [n for n in range(COUNT) if len(record(n)["text"].split()) >= 5]
FAILING = [n for n in KEPT if n % 10 == 7]
HOPELESS = [n for n in FAILING if n % 100 == 77]


# -- retry ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "gz", "parquet"])
def test_a_retry_adds_what_works_now_and_keeps_the_rest_in_quarantine(
    kind: str, tmp_path: Path, thresher: Thresher
) -> None:
    make_input(tmp_path, kind)
    report = start(tmp_path, thresher, recipe(kind), "--dropped-to", "dropped")
    assert report["counts"]["quarantined"] == len(FAILING)
    before = files(tmp_path)
    (tmp_path / "mended").touch()
    done = thresher("retry", "output", "--trust", "mending", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["tried"], result["quarantined"]) == (len(FAILING), len(HOPELESS))
    assert [entry["n"] for entry in written(tmp_path)] == [n for n in KEPT if n not in HOPELESS]
    assert all(files(tmp_path)[name] == content for name, content in before.items()), "old files stay as they are"
    shown = json.loads(thresher("report", "output", "--json").stdout)
    assert shown == result["report"]
    counts = {"read": COUNT, "created": 0, "merged": 0, "dropped": COUNT - len(KEPT)}
    counts |= {"written": len(KEPT) - len(HOPELESS), "quarantined": len(HOPELESS)}
    assert shown["counts"] == counts
    assert [stage["in_docs"] for stage in shown["stages"]] == [COUNT, COUNT, len(KEPT), counts["written"]]
    assert shown["quarantine_reasons"] == {"Fragile/ValueError": len(HOPELESS)}
    left = json.loads(thresher("quarantine", "output", "--json").stdout)
    assert [json.loads(entry["record"])["n"] for entry in left["entries"]] == HOPELESS
    assert all(entry["attempts"] > 3 for entry in left["entries"]), "attempts of run and retry add up"
    audit = thresher("audit", "output")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    again = thresher("run", "recipe.yaml", "--trust", "mending", "--json", "--dropped-to", "dropped")
    assert json.loads(again.stdout)["status"] == "nothing-to-do"


def test_a_second_retry_does_nothing_when_all_is_well(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(stages=("Halves", "FragilePart")))
    (tmp_path / "mended").touch()
    assert thresher("retry", "output", "--trust", "mending").returncode == 0
    after, run_file = files(tmp_path), (tmp_path / "output/_thresher/run.json").read_bytes()
    again = thresher("retry", "output", "--trust", "mending", "--json")
    assert json.loads(again.stdout)["status"] == "nothing-to-do"
    assert files(tmp_path) == after
    assert (tmp_path / "output/_thresher/run.json").read_bytes() == run_file


def test_a_child_is_tried_again_alone_and_its_siblings_are_not_written_twice(
    tmp_path: Path, thresher: Thresher
) -> None:
    make_input(tmp_path, "jsonl")
    report = start(tmp_path, thresher, recipe(stages=("Halves", "FragilePart")))
    assert report["counts"]["quarantined"] == len(FAILING)
    (tmp_path / "mended").touch()
    done = thresher("retry", "output", "--trust", "mending", "--json")
    assert done.returncode == 0, done.stderr
    both = [(n, part) for n in KEPT for part in (0, 1)]
    assert [(entry["n"], entry["part"]) for entry in written(tmp_path)] == both
    assert json.loads(done.stdout)["report"]["counts"]["quarantined"] == 0
    audit = thresher("audit", "output")
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_a_retry_writes_the_records_that_a_new_run_would(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    (tmp_path / "mended").touch()
    assert thresher("retry", "output", "--trust", "mending").returncode == 0
    retried = written(tmp_path)
    start(tmp_path, thresher, recipe(), "--fresh")
    assert written(tmp_path) == retried
    assert not list((tmp_path / "output").glob("*-retry-*")), "starting over removes the files of retries too"


def test_a_killed_retry_goes_on_and_tries_nothing_twice(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(tmp_path / "output"), str(copy)], check=True)
    (tmp_path / "mended").touch()
    assert thresher("retry", "output", "--trust", "mending", "--workers", "1").returncode == 0
    undisturbed = files(tmp_path)
    left = (tmp_path / "output/_thresher/quarantine").glob("*.jsonl")
    quarantine = {path.name: path.read_bytes() for path in left}
    subprocess.run(["rm", "-r", str(tmp_path / "output")], check=True)
    copy.rename(tmp_path / "output")
    (tmp_path / "slow").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "thresher", "retry", "output", "--trust", "mending", "--workers", "1", "--quiet"],
        cwd=tmp_path,
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    committed = {path.name for path in (tmp_path / "output").glob("*-retry-1.jsonl")}
    assert 0 < len(committed) < len([name for name in undisturbed if "-retry-1" in name])
    (tmp_path / "slow").unlink()
    done = thresher("retry", "output", "--trust", "mending")
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == undisturbed
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "output/_thresher/quarantine").glob("*.jsonl")
    } == quarantine
    assert thresher("audit", "output").returncode == 0


def test_a_retry_says_what_changed_and_goes_on(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    code = (tmp_path / "mending.py").read_text()
    (tmp_path / "mending.py").write_text(code.replace("n % 10 == 7 and (", "False and ("))
    done = thresher("retry", "output", "--trust", "mending")
    assert done.returncode == 0, done.stderr
    assert "changed since the run: the source code of stage Fragile" in done.stderr
    assert [entry["n"] for entry in written(tmp_path)] == KEPT


def test_a_retry_of_a_run_that_is_not_finished_is_refused(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    ledger = next((tmp_path / "output/_thresher/ledger").glob("*.jsonl"))
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join(lines[:-1]))
    done = thresher("retry", "output", "--trust", "mending")
    assert done.returncode == 2
    assert "the run is not finished (1 of" in done.stderr


def test_a_retry_with_files_of_a_target_size_adds_files_of_its_own(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(writer="{path: output, target_file_size: 20kB}"))
    (tmp_path / "mended").touch()
    assert thresher("retry", "output", "--trust", "mending").returncode == 0
    assert [entry["n"] for entry in written(tmp_path)] == [n for n in KEPT if n not in HOPELESS]
    audit = thresher("audit", "output")
    assert audit.returncode == 0, audit.stdout + audit.stderr


# -- quarantine -------------------------------------------------------------------------------------------------------


def test_quarantine_groups_by_stage_and_error_and_shows_examples(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    with (tmp_path / "input" / "part3.jsonl").open("a") as file:
        file.write("no json\n")
    start(tmp_path, thresher, recipe())
    done = thresher("quarantine", "output", "--limit", "2")
    assert done.returncode == 0, done.stderr
    assert f"{len(FAILING) + 1:,} records in quarantine" in done.stdout
    assert f"{len(FAILING)}  Fragile/ValueError" in done.stdout
    assert "1  JsonlReader/not-json" in done.stdout
    assert "\x1b" not in done.stdout
    assert "cannot work on \\x1b[31m" in done.stdout
    assert f"{len(FAILING) - 1:,} more: --limit" in done.stdout
    one = json.loads(thresher("quarantine", "output", "--error", "not-json", "--json").stdout)
    assert (one["matching"], one["entries"][0]["record"]) == (1, "no json")
    wrong = thresher("quarantine", "output", "--stage", "Fragil")
    assert wrong.returncode == 2
    assert "Did you mean 'Fragile'?" in wrong.stderr


def test_an_empty_quarantine_says_so(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(stages=()))
    assert thresher("quarantine", "output").stdout == "nothing is in quarantine\n"


# -- why --------------------------------------------------------------------------------------------------------------


def id_of(folder: Path, n: int) -> str:
    """The id of a record of plain JSON lines."""
    from thresher.core.unit import file12

    name = f"part{n // (COUNT // 4)}.jsonl"
    lines = (folder / "input" / name).read_bytes().splitlines(keepends=True)
    return f"{file12(name)}:{sum(map(len, lines[: n % (COUNT // 4)]))}"


def account(thresher: Thresher, *arguments: str) -> dict[str, Any]:
    done = thresher("why", "output", *arguments, "--trust", "mending", "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_why_tells_scores_and_the_end_of_records_that_were_written_dropped_and_set_aside(
    tmp_path: Path, thresher: Thresher
) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(), "--dropped-to", "dropped")
    kept, dropped, failing = KEPT[1], next(n for n in range(COUNT) if n not in KEPT), FAILING[0]
    told = account(thresher, id_of(tmp_path, kept))
    [end] = told["ends"]
    assert end["end"] == "written"
    assert json.loads(Path(end["file"]).read_text().splitlines()[end["line"] - 1])["n"] == kept
    assert told["stages"][0]["rules"][0] == {
        "rule": "WordCountFilter",
        "score": len(record(kept)["text"].split()),
        "threshold": {"min_words": 5, "max_words": 100000},
        "kept": True,
    }
    told = account(thresher, id_of(tmp_path, dropped))
    [end] = told["ends"]
    assert (end["end"], told["stages"][0]["rules"][0]["kept"]) == ("dropped", False)
    assert "dropped by WordCountFilter, rule WordCountFilter: score 3" in end["text"]
    assert json.loads(Path(end["file"]).read_text().splitlines()[end["line"] - 1])["n"] == dropped
    told = account(thresher, id_of(tmp_path, failing))
    [end] = told["ends"]
    assert (end["end"], end["entry"]["error"]) == ("quarantined", "ValueError")
    shown = thresher("why", "output", id_of(tmp_path, failing), "--trust", "mending")
    assert "quarantined by Fragile after" in shown.stdout
    assert "Traceback (most recent call last)" in shown.stdout
    assert "\x1b" not in shown.stdout


@pytest.mark.parametrize("kind", ["gz", "parquet"])
def test_why_finds_records_by_text_in_packed_files_and_in_parquet(
    kind: str, tmp_path: Path, thresher: Thresher
) -> None:
    make_input(tmp_path, kind)
    start(tmp_path, thresher, recipe(kind))
    told = account(thresher, "--text", f"document number {KEPT[-1]} ")
    assert told["ends"][0]["end"] == "written"
    assert Path(told["ends"][0]["file"]).exists()
    assert account(thresher, told["id"])["ends"] == told["ends"]
    many = account(thresher, "--text", "document number 1", "--limit", "3")
    assert len(many["matches"]) == 3
    none = thresher("why", "output", "--text", "nowhere", "--trust", "mending")
    assert none.stdout == "no record of the input contains these words\n"


@pytest.mark.parametrize("kind", ["jsonl", "gz", "parquet"])
def test_why_finds_a_record_by_a_field_of_its_own_and_says_how(kind: str, tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, kind)
    start(tmp_path, thresher, recipe(kind))
    by_text = account(thresher, "--text", f"document number {KEPT[-1]} ")
    told = account(thresher, "--field", f"n={KEPT[-1]}")
    assert (told["id"], told["ends"]) == (by_text["id"], by_text["ends"])
    assert told["matched"] == f"by its field 'n', which is '{KEPT[-1]}'"
    none = thresher("why", "output", "--field", "n=none", "--trust", "mending")
    assert none.stdout == "no record of the input has 'none' in its field 'n'\n"


def test_why_takes_a_value_of_the_field_id_and_lists_all_records_that_have_it(
    tmp_path: Path, thresher: Thresher
) -> None:
    lines = [json.dumps({"id": f"doc-{n % 20}", "text": f"text {n}"}) for n in range(30)]
    (tmp_path / "input").mkdir()
    (tmp_path / "mending.py").write_text(STAGES)
    (tmp_path / "input" / "a.jsonl").write_text("\n".join(lines) + "\n")
    start(tmp_path, thresher, recipe(stages=()))
    shown = thresher("why", "output", "doc-15", "--trust", "mending").stdout
    assert "found      by its field 'id', which is 'doc-15'" in shown
    assert json.loads(lines[15])["text"] in shown
    several = account(thresher, "doc-3")
    assert [json.loads(match["text"])["text"] for match in several["matches"]] == ["text 3", "text 23"]
    listed = thresher("why", "output", "doc-3", "--trust", "mending").stdout
    assert "2 records, each found by its field 'id'" in listed
    none = thresher("why", "output", "doc-99", "--trust", "mending")
    assert none.returncode == 2
    assert "no record of the input has 'doc-99' in its field 'id'" in none.stderr


def test_why_takes_an_id_that_a_stage_wrote_with_a_prefix_and_the_one_that_a_dropped_record_carries(
    tmp_path: Path, thresher: Thresher
) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(), "--dropped-to", "dropped")
    [file, *_] = sorted((tmp_path / "dropped").glob("*.jsonl"))
    dropped = json.loads(file.read_text().splitlines()[0])
    told = account(thresher, dropped["_dropped"]["id"])
    assert json.loads(told["record"])["n"] == dropped["n"]
    assert told["ends"][0]["end"] == "dropped"
    prefixed = account(thresher, f"my_docs_{dropped['_dropped']['id']}")
    assert prefixed["id"] == dropped["_dropped"]["id"]
    assert "ends with" in prefixed["matched"]


def test_why_follows_a_record_to_its_children_and_a_child_to_its_end(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(stages=("Halves", "FragilePart")))
    record_id = id_of(tmp_path, FAILING[0])
    first, second = account(thresher, record_id)["ends"]
    assert (first["id"], first["end"], second["end"]) == (f"{record_id}/0", "written", "quarantined")
    assert json.loads(second["entry"]["record"]) == {**record(FAILING[0]), "part": 1}
    child = second["entry"]["id"]
    [end] = account(thresher, child)["ends"]
    assert (end["id"], end["end"]) == (child, "quarantined")
    (tmp_path / "mended").touch()
    assert thresher("retry", "output", "--trust", "mending").returncode == 0
    [end] = account(thresher, child)["ends"]
    assert (end["id"], end["end"], "-retry-1.jsonl" in end["file"]) == (child, "written", True)
    unborn = thresher("why", "output", f"{record_id}/777", "--trust", "mending")
    assert unborn.returncode == 2
    assert "recomputing gives no such record. It became" in unborn.stderr


def test_why_refuses_what_is_no_id_and_says_what_one_looks_like(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(stages=()))
    for wrong in ("17", "part0.jsonl:5", f"{id_of(tmp_path, 5)}1", "000000000000:5"):
        done = thresher("why", "output", wrong)
        assert (done.returncode, done.stdout) == (2, "")
        assert "An id is file12:OFFSET" in done.stderr
    assert thresher("why", "output").returncode == 2


def test_why_without_trust_tells_what_the_run_wrote_down(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    done = thresher("why", "output", id_of(tmp_path, FAILING[0]))
    assert done.returncode == 0, done.stderr
    assert "warning: the stages cannot be run again" in done.stderr
    assert "quarantined by Fragile" in done.stdout


# -- audit ------------------------------------------------------------------------------------------------------------


def test_audit_proves_a_run_and_names_every_difference(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(), "--dropped-to", "dropped")
    proven = thresher("audit", "output")
    assert proven.returncode == 0, proven.stdout + proven.stderr
    assert f"{COUNT} read = {len(KEPT) - len(FAILING)} written" in proven.stdout
    assert proven.stdout.endswith("no difference\n")
    first, second, third = sorted((tmp_path / "output").glob("*.jsonl"))[:3]
    content = first.read_bytes()
    first.write_bytes(content.replace(b"document", b"DOCUMENT", 1))
    second.unlink()
    third.write_bytes(third.read_bytes()[:-10])
    (tmp_path / "output" / "foreign.jsonl").touch()
    (tmp_path / "output" / f"{third.name}.99.thresher-tmp").touch()
    next((tmp_path / "dropped").glob("*.jsonl")).unlink()
    next((tmp_path / "output/_thresher/quarantine").glob("*.jsonl")).unlink()
    different = thresher("audit", "output", "--json")
    assert different.returncode == 5, different.stderr
    told = {check["name"]: check["differences"] for check in json.loads(different.stdout)["checks"]}
    assert [len(told[name]) for name in ("output files", "output folder", "dropped files", "quarantine")] == [
        3,
        2,
        1,
        1,
    ]
    assert f"{first.name} was changed" in told["output files"][0]
    assert f"{second.name} is missing" in told["output files"][1]
    assert "difference" in thresher("audit", "output").stderr


def test_a_folder_that_was_moved_can_still_be_audited(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe(stages=()))
    (tmp_path / "output").rename(tmp_path / "moved")
    done = thresher("audit", "moved")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_folder_cannot_make_a_retry_write_elsewhere(tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "jsonl")
    start(tmp_path, thresher, recipe())
    units = tmp_path / "output/_thresher/units.jsonl"
    units.write_text(units.read_text().replace('"stem":"part0"', '"stem":"../part0"'))
    (tmp_path / "mended").touch()
    done = thresher("retry", "output", "--trust", "mending")
    assert done.returncode == 2
    assert "has a name that no run gives" in done.stderr
    assert not list(tmp_path.glob("*.jsonl"))


@pytest.mark.parametrize("writer", ["{path: output, compression: gzip}", "{path: output, compression: zstd}"])
def test_audit_counts_the_records_of_packed_files(writer: str, tmp_path: Path, thresher: Thresher) -> None:
    make_input(tmp_path, "gz")
    start(tmp_path, thresher, recipe(stages=(), writer=writer))
    done = thresher("audit", "output", "--json")
    assert done.returncode == 0, done.stdout
    proven = {check["name"]: check["proven"] for check in json.loads(done.stdout)["checks"]}
    assert f"{len(KEPT)} records" in proven["output files"]


@pytest.mark.s3
def test_a_run_on_an_object_store_can_be_audited_and_asked_about(
    bucket: str, s3_options: dict[str, Any], tmp_path: Path, thresher: Thresher
) -> None:
    import s3fs

    from thresher import JsonlReader, JsonlWriter, Pipeline, SerialExecutor

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    lines = [json.dumps(record(n)) for n in range(100)]
    file_system.pipe(f"{bucket}/in/a.jsonl", ("\n".join([*lines, "no json"]) + "\n").encode())
    reader = JsonlReader(f"s3://{bucket}/in", blocksize="2kB", storage_options=s3_options)
    writer = JsonlWriter(f"s3://{bucket}/out", storage_options=s3_options)
    result = Pipeline("cloud", stages=[reader, writer]).run(SerialExecutor(), progress="none", max_errors=5)
    flags = [flag for key, value in s3_options.items() for flag in ("--storage-option", f"{key}={value}")]
    done = thresher("audit", f"s3://{bucket}/out", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "101 read = 100 written + 0 dropped + 1 quarantined" in done.stdout
    listed = json.loads(thresher("quarantine", f"s3://{bucket}/out", "--json", *flags).stdout)
    assert listed["entries"][0]["record"] == "no json"
    told = thresher("why", f"s3://{bucket}/out", listed["entries"][0]["id"], *flags)
    assert "quarantined by JsonlReader" in told.stdout, told.stderr
    file_system.pipe(result.output_paths[0], b"changed")
    assert thresher("audit", f"s3://{bucket}/out", *flags).returncode == 5
