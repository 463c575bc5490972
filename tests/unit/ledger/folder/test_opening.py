# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ledger.runs import (
    FINGERPRINT,
    commit,
    commit_all,
    files_below,
    lines_of,
    request,
    result_of,
    units,
    whole_run,
)
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError, UsageError
from thresher.ledger.folder.find import read_commits, read_manifest, read_run
from thresher.ledger.folder.opening import open_run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# -- a run from its opening to its end --------------------------------------------------------------------------------


def test_a_finished_run_leaves_what_the_contract_names_and_nothing_else(out: Path):
    whole_run(request(out, plan={"stages": ["Words"]}, recipe={"name": "words"}), 2)

    first, second = units(2)
    assert sorted(files_below(out)) == [
        "_thresher/ledger/000001.jsonl",
        "_thresher/lock",
        "_thresher/manifest.jsonl",
        "_thresher/plan.json",
        f"_thresher/quarantine/{first.id}.jsonl",
        f"_thresher/quarantine/{second.id}.jsonl",
        "_thresher/recipe.yaml",
        "_thresher/run.json",
        "_thresher/units.jsonl",
        f"a-{first.id}.jsonl",
        f"a-{second.id}.jsonl",
    ]
    assert not (out / "_thresher" / "tmp").exists()


def test_the_ledger_says_what_became_of_every_unit(out: Path):
    run = whole_run(request(out), 4)

    lines = [json.loads(line) for line in (out / "_thresher/ledger/000001.jsonl").read_text().splitlines()]
    assert [line["unit"] for line in lines] == [unit.id for unit in units(4)]
    assert [(line["read"], line["written"], line["dropped"], line["quarantined"]) for line in lines] == [
        (4, 2, 1, 1),
        (5, 3, 1, 1),
        (6, 4, 1, 1),
        (2, 0, 1, 1),
    ]
    assert lines[0]["outputs"][0].keys() == {"path", "bytes", "records", "sha256"}
    assert lines[3]["outputs"] == [], "a unit with no records has no file"
    assert read_commits(run.run_dir)[0].tally.stages[1].dropped == 1


def test_the_manifest_lists_output_files_in_input_order_whatever_order_they_were_committed_in(out: Path):
    run = open_run(request(out))
    run.record_units(units(3), last=True)
    for unit in reversed(units(3)):
        commit(run, unit)
        run.fold(unit.id)
    paths = run.output_paths()
    run.finish("finished", 0)

    manifest = read_manifest(run.run_dir)
    assert [line.units for line in manifest] == [(unit.id,) for unit in units(3)]
    assert [str(out / line.path) for line in manifest] == paths
    assert [line.records for line in manifest] == [2, 3, 4]


def test_run_json_tells_every_attempt(out: Path):
    first = open_run(request(out))
    first.abandon(130)
    second = whole_run(request(out))

    told = json.loads((out / "_thresher/run.json").read_text())
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", told["run_id"])
    assert first.run_id == second.run_id == told["run_id"]
    assert told["name"] == "words"
    assert told["fingerprint_parts"] == FINGERPRINT
    assert set(told["versions"]) == {"thresher", "python"}
    assert [(a["number"], a["executor"], a["pid"], a["exit_code"]) for a in told["attempts"]] == [
        (1, "local", os.getpid(), 130),
        (2, "local", os.getpid(), 0),
    ]
    assert all(attempt["host"] and attempt["start"] and attempt["end"] for attempt in told["attempts"])


def test_secrets_do_not_reach_the_run_folder(out: Path):
    options = {"key": "AKIA", "secret": "hunter2", "client_kwargs": {"aws_session_token": "t0k3n", "region": "eu"}}
    recipe = {"stages": [{"JsonlWriter": {"path": "s3://b", "storage_options": options}}]}
    whole_run(request(out, recipe=recipe, plan=recipe, storage_options=options))

    text = b"".join(files_below(out / "_thresher").values())
    assert [secret for secret in (b"AKIA", b"hunter2", b"t0k3n") if secret in text] == []
    assert b'region: "eu"' in text


def test_without_a_writer_the_run_folder_lies_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = open_run(request("", sink_path=None))
    run.finish("finished", 0)

    assert run.run_dir == str(tmp_path / ".thresher" / "runs" / run.run_id)
    assert (tmp_path / ".thresher/runs" / run.run_id / "run.json").exists()
    assert run.output_paths() == []


def test_a_run_without_a_writer_never_goes_on_with_an_older_one(tmp_path: Path):
    asked = request("", sink_path=None, run_dir=str(tmp_path / "kept"))
    first = open_run(asked)
    first.fold("u", None if first.run_dir is None else commit(first, Unit("u", (0, 0), (), "task")))
    first.finish("finished", 0)
    second = open_run(asked)
    second.finish("finished", 0)

    assert second.committed == {}
    assert second.run_id != first.run_id
    assert (tmp_path / "kept" / "old" / first.run_id / "ledger" / "000001.jsonl").exists()


def test_a_run_folder_of_ones_own_holds_everything_but_the_output(tmp_path: Path, out: Path):
    whole_run(request(out, run_dir=str(tmp_path / "elsewhere")), 1)

    assert sorted(files_below(out)) == [f"a-{units(1)[0].id}.jsonl"]
    assert (tmp_path / "elsewhere" / "run.json").exists()


def test_without_a_ledger_there_are_output_files_and_nothing_else(tmp_path: Path, out: Path):
    run = open_run(request(out, ledger=False, dropped_to=str(tmp_path / "dropped")))
    for unit in units(2):
        run.fold(unit.id, commit(run, unit))
    run.finish("finished", 0)

    names = [f"a-{unit.id}.jsonl" for unit in units(2)]
    assert run.run_dir is None
    assert run.event_folder() is None
    assert sorted(os.listdir(out)) == names
    assert sorted(os.listdir(tmp_path / "dropped")) == names
    assert sorted(os.listdir(tmp_path)) == ["dropped", "out"]


# -- going on ---------------------------------------------------------------------------------------------------------


def test_the_same_command_goes_on_with_what_is_left(out: Path, tmp_path: Path):
    run = open_run(request(out))
    for unit in units(6)[:3]:
        commit(run, unit)
        run.fold(unit.id)
    run.abandon(130)
    again = open_run(request(out))

    assert again.resumed
    assert again.attempt == 2
    assert sorted(again.committed) == [unit.id for unit in units(6)[:3]]
    commit_all(again, units(6))
    again.finish("finished", 0)
    whole_run(request(tmp_path / "at-once"))
    assert result_of(out) == result_of(tmp_path / "at-once")


def test_a_finished_run_has_nothing_left_to_do(out: Path):
    whole_run(request(out))
    before = result_of(out)
    run = open_run(request(out))

    assert [unit for unit in units(6) if unit.id not in run.committed] == []
    run.finish("nothing-to-do", 0)
    assert result_of(out) == before


def test_the_units_of_an_earlier_attempt_are_known_only_if_it_listed_all(out: Path):
    run = open_run(request(out))
    run.record_units(units(2), last=False)
    run.abandon(1)
    again = open_run(request(out))
    assert again.previous_units() is None
    again.record_units(units(2), last=False)
    again.record_units(units(4)[2:], last=True)
    again.abandon(1)

    last = open_run(request(out))
    assert last.previous_units() == units(4)
    last.finish("finished", 0)


def test_unfinished_files_of_an_attempt_that_was_killed_are_removed(out: Path):
    run = open_run(request(out))
    run._folder.lock.release()  # as the kernel does when a process dies
    Path(run.target.tmp, "half.jsonl").write_text("half")
    (out / ".a.jsonl.77.thresher-tmp").write_text("half")
    again = open_run(request(out))

    assert os.listdir(out / "_thresher/tmp") == ["002"]
    assert os.listdir(out) == ["_thresher"]
    again.abandon(1)
    assert not (out / "_thresher/tmp").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "0.2"}, ["the Thresher version (0.1 before, 0.2 now)"]),
        ({"Words.parameters": "other"}, ["the parameters of stage Words"]),
        ({"Words.code": "other"}, ["the source code of stage Words"]),
        ({"stages": "x", "Urls.parameters": "p", "Urls.code": "c"}, ["stage Urls is new"]),
        ({"stages": "x"}, ["the order or the classes of the stages"]),
        ({"version": "0.2", "Words.code": "x"}, ["the Thresher version", "the source code of stage Words"]),
    ],
)
def test_a_changed_pipeline_is_refused_with_what_changed_and_what_to_do(out: Path, changed, said):
    whole_run(request(out))
    before = files_below(out)

    with pytest.raises(OutputRefusedError) as refused:
        open_run(request(out, fingerprint=FINGERPRINT | changed))

    for text in [*said, str(out), "--accept-changes", "--fresh", "another output"]:
        assert text in str(refused.value)
    assert files_below(out) == before


def test_a_stage_that_is_gone_is_named(out: Path):
    whole_run(request(out))

    with pytest.raises(OutputRefusedError, match="stage Words is gone"):
        open_run(request(out, fingerprint={"version": "0.1", "stages": "t"}))


def test_a_changed_pipeline_goes_on_when_changes_are_accepted(out: Path):
    run = open_run(request(out))
    commit(run, units(1)[0])
    run.fold(units(1)[0].id)
    run.abandon(1)
    other = request(out, fingerprint=FINGERPRINT | {"Words.code": "x"}, accept_changes=True)
    again = open_run(other)
    again.abandon(1)

    assert len(again.committed) == 1
    open_run(request(out, fingerprint=other.fingerprint)).abandon(1)
    assert read_run(again.run_dir).fingerprint == other.digest


def test_a_run_folder_that_belongs_to_another_output_is_refused(tmp_path: Path):
    folder = str(tmp_path / "run")
    whole_run(request(tmp_path / "one", run_dir=folder))

    with pytest.raises(OutputRefusedError, match=r"belongs to a run that writes to .*one"):
        open_run(request(tmp_path / "two", run_dir=folder))
    assert not (tmp_path / "two").exists()


# -- output folders that hold something -------------------------------------------------------------------------------


def test_a_folder_with_foreign_files_is_refused_and_left_as_it_was(out: Path):
    out.mkdir()
    for name in ("b.jsonl", "c.txt", "d.jsonl", "e.jsonl"):
        (out / name).write_text("precious")
    (out / "sub").mkdir()

    with pytest.raises(OutputRefusedError) as refused:
        open_run(request(out))

    for text in (str(out), "b.jsonl, c.txt, d.jsonl and 2 more", 'mode="append"', 'mode="overwrite"', "another path"):
        assert text in str(refused.value)
    assert refused.value.exit_code == 4
    assert sorted(os.listdir(out)) == ["b.jsonl", "c.txt", "d.jsonl", "e.jsonl", "sub"]


def test_names_that_begin_with_a_dot_or_an_underscore_are_nobodys_business(out: Path):
    out.mkdir()
    (out / ".DS_Store").write_text("")
    (out / "_SUCCESS").write_text("")

    open_run(request(out)).finish("finished", 0)
    assert sorted(os.listdir(out)) == [".DS_Store", "_SUCCESS", "_thresher"]


def test_overwrite_deletes_data_files_at_the_first_commit_and_never_before(out: Path):
    out.mkdir()
    for name in ("b.jsonl", "c.parquet", "d.json.gz", "notes.txt"):
        (out / name).write_text("old")
    (out / "sub").mkdir()
    (out / "sub" / "e.jsonl").write_text("old")
    run = open_run(request(out, mode="overwrite"))
    commit_later = units(1)[0]
    run.record_units([commit_later], last=True)
    assert {"b.jsonl", "c.parquet", "d.json.gz", "notes.txt", "sub"} <= set(os.listdir(out))

    run.before_first_commit()

    assert sorted(set(os.listdir(out)) - {"_thresher"}) == ["notes.txt", "sub"]
    assert os.listdir(out / "sub") == ["e.jsonl"]
    run.finish("finished", 0)


def test_overwrite_that_was_interrupted_before_its_first_commit_still_deletes_at_it(out: Path):
    out.mkdir()
    (out / "b.jsonl").write_text("old")
    open_run(request(out, mode="overwrite")).abandon(1)
    assert (out / "b.jsonl").exists()

    whole_run(request(out, mode="overwrite"))

    assert not (out / "b.jsonl").exists()


def test_overwrite_never_deletes_what_an_earlier_attempt_of_the_same_run_wrote(out: Path):
    run = open_run(request(out, mode="overwrite"))
    run.before_first_commit()
    commit(run, units(1)[0])
    run.fold(units(1)[0].id)
    run.abandon(1)

    whole_run(request(out, mode="overwrite"))

    assert len([name for name in os.listdir(out) if name.endswith(".jsonl")]) == sum(
        bool(lines_of(unit)) for unit in units(6)
    )


def test_overwrite_replaces_the_output_of_a_changed_pipeline(out: Path):
    whole_run(request(out), 6)
    whole_run(request(out, mode="overwrite", fingerprint={"version": "9"}), 1)

    assert [name for name in os.listdir(out) if name.endswith(".jsonl")] == [f"a-{units(1)[0].id}.jsonl"]


def test_append_writes_beside_what_is_there(out: Path):
    whole_run(request(out), 1)
    other = request(out, mode="append", fingerprint={"version": "9"})
    run = whole_run(other, 1)
    whole_run(other, 1)

    name = f"a-{units(1)[0].id}.jsonl"
    assert sorted(n for n in os.listdir(out) if n.endswith(".jsonl")) == sorted([name, f"{other.digest[:8]}-{name}"])
    assert run.run_dir == str(out / f"_thresher-{other.digest[:8]}")
    assert len(read_run(run.run_dir).attempts) == 2, "the same command goes on"


def test_append_to_a_foreign_folder_keeps_it(out: Path):
    out.mkdir()
    (out / "b.jsonl").write_text("old")
    run = whole_run(request(out, mode="append"), 1)

    assert run.run_dir == str(out / "_thresher")
    assert (out / "b.jsonl").read_text() == "old"


# -- starting over ----------------------------------------------------------------------------------------------------


def test_fresh_removes_the_old_files_at_the_first_commit_and_keeps_the_old_ledger(out: Path, tmp_path: Path):
    dropped = str(tmp_path / "dropped")
    old = whole_run(request(out, dropped_to=dropped), 6)
    (out / "notes.txt").write_text("mine")
    before = sorted(name for name in os.listdir(out) if name.endswith(".jsonl"))
    new = open_run(request(out, fresh=True, dropped_to=dropped))

    assert new.committed == {}
    assert new.run_id != old.run_id
    assert sorted(name for name in os.listdir(out) if name.endswith(".jsonl")) == before
    new.before_first_commit()
    assert sorted(os.listdir(out)) == ["_thresher", "notes.txt"]
    assert os.listdir(dropped) == []
    commit_all(new, units(2))
    new.finish("finished", 0)
    kept = out / "_thresher" / "old" / old.run_id
    assert {"run.json", "ledger", "manifest.jsonl", "quarantine", "units.jsonl"} <= set(os.listdir(kept))
    assert not (out / "_thresher" / "quarantine" / f"{units(6)[5].id}.jsonl").exists()


def test_starting_over_twice_before_any_commit_still_removes_the_first_files(out: Path):
    whole_run(request(out), 6)
    open_run(request(out, fresh=True)).abandon(1)
    open_run(request(out, fresh=True)).abandon(1)
    whole_run(request(out), 1)

    assert [name for name in os.listdir(out) if name.endswith(".jsonl")] == [f"a-{units(1)[0].id}.jsonl"]


def test_starting_over_knows_commits_that_no_driver_had_gathered(out: Path):
    run = open_run(request(out))
    commit(run, units(1)[0])
    run._folder.lock.release()  # as the kernel does when a process dies

    new = open_run(request(out, fresh=True))
    new.before_first_commit()

    assert [name for name in os.listdir(out) if name.endswith(".jsonl")] == []
    new.finish("finished", 0)


# -- faults -----------------------------------------------------------------------------------------------------------


def test_two_runs_in_one_folder_are_refused_with_who_is_there(out: Path):
    run = open_run(request(out))

    with pytest.raises(OutputRefusedError) as refused:
        open_run(request(out))

    for text in (str(out), "in use by a live run", f"process {os.getpid()}", os.uname().nodename, "another output"):
        assert text in str(refused.value)
    run.finish("finished", 0)
    open_run(request(out)).finish("finished", 0)


def test_the_output_folder_cannot_take_the_dropped_records(out: Path):
    with pytest.raises(UsageError, match="dropped_to"):
        open_run(request(out, dropped_to=f"{out}/"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path):
    tmp_path.chmod(0o500)

    with pytest.raises(OutputRefusedError, match="permission"):
        open_run(request(tmp_path / "out"))


def test_a_file_where_the_output_folder_should_be_is_refused(tmp_path: Path):
    (tmp_path / "out").write_text("a file")

    with pytest.raises(OutputRefusedError, match=r"out.*(file is in the way|not a folder)"):
        open_run(request(tmp_path / "out"))


def test_an_attempt_that_fails_leaves_no_temporary_files_and_no_lock(out: Path):
    run = open_run(request(out))
    run.record_units(units(1), last=False)
    run.abandon(1)
    run.abandon(1)

    assert not (out / "_thresher/tmp").exists()
    open_run(request(out)).finish("finished", 0)


def test_a_unit_that_the_driver_records_itself_needs_no_writer(out: Path):
    from thresher.ledger.unit_output import UnitOutput

    run = open_run(request(out))
    record = UnitOutput(run.target, None, units(1)[0], 0).commit(Tally(read=0))
    run.fold(record.unit, record)
    run.finish("finished", 0)

    assert [r.unit for r in read_commits(run.run_dir)] == [units(1)[0].id]


def test_starting_over_removes_also_a_file_that_was_published_and_never_recorded(tmp_path: Path):
    run = open_run(request(tmp_path / "out"))
    run.record_units(units(6), last=True)
    commit(run, units(6)[5])
    (tmp_path / "out/_thresher/ledger/inbox" / f"{units(6)[5].id}.json").unlink()  # the crash came before the record
    (tmp_path / "out" / f"b-{'0' * 12}-000000.jsonl").write_text("not of this input")
    run.abandon(1)
    whole_run(request(tmp_path / "out", fresh=True), 2)

    names = sorted(path.name for path in (tmp_path / "out").glob("*.jsonl"))
    assert names == sorted([*(f"a-{unit.id}.jsonl" for unit in units(2)), f"b-{'0' * 12}-000000.jsonl"])


def test_data_is_on_disk_before_its_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[str] = []

    def noted(what: str, function: Any) -> Any:
        def call(descriptor: int) -> None:
            steps.append(f"{what} {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
            function(descriptor)

        return call

    monkeypatch.setattr(os, "fsync", noted("sync", os.fsync))
    monkeypatch.setattr(os, "fdatasync", noted("sync", os.fdatasync))
    run = open_run(request(tmp_path / "out"))
    steps.clear()
    commit(run, units(1)[0])
    of_the_commit = list(steps)
    run.fold(units(1)[0].id)
    run.sync()

    assert any("-data.jsonl" in step for step in of_the_commit), "the worker brings its data to disk"
    assert not any("000001.jsonl" in step for step in of_the_commit), "and does not wait for the ledger"
    after = steps[len(of_the_commit) :]
    assert after.index("sync out") < after.index("sync 000001.jsonl"), "names first, then what tells of them"
    run.finish("finished", 0)
