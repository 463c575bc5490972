# SPDX-License-Identifier: Apache-2.0
"""A run says that it succeeded only if it did, and an option that cannot take effect is not passed over in silence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thresher import (
    DocumentBatch,
    EmptyTask,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    RunResult,
    ScoreFilter,
    SerialExecutor,
    Task,
    WordCountFilter,
)
from thresher.cli.main import main
from thresher.errors import OutputRefusedError, RefusedError, TooManyErrorsError, UsageError
from thresher.observe.summary import summary_text

EXECUTORS = {"serial": SerialExecutor, "local": lambda: LocalExecutor(workers=2)}


def write_input(folder: Path, count: int, files: int = 1, field: str = "text") -> Path:
    folder.mkdir(exist_ok=True)
    for file in range(files):
        lines = [json.dumps({"id": f"{file}-{n}", field: "word " * (n % 9)}) for n in range(count)]
        (folder / f"f{file}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(source: Path, out: Path, executor: Any = None, **options: Any) -> RunResult:
    """Keep texts of four words or more; one unit per file."""
    field = options.pop("text_field", "text")
    stages = [
        JsonlReader(str(source), files_per_partition=1),
        ScoreFilter(WordCountFilter(4), text_field=field),
        JsonlWriter(str(out), target_file_size=options.pop("target_file_size", None)),
    ]
    return Pipeline("words", stages=stages).run(executor or SerialExecutor(), progress="none", **options)


def outputs(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.jsonl"))}


# -- every record failed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("name", EXECUTORS)
def test_a_wrong_text_field_ends_the_run_whatever_the_number_of_records(tmp_path: Path, name: str, count: int) -> None:
    source = write_input(tmp_path / "in", count, field="content")
    with pytest.raises(TooManyErrorsError) as failed:
        run(source, tmp_path / "out", EXECUTORS[name]())  # type: ignore[operator]  # classes and functions
    text = str(failed.value)
    for said in ("ScoreFilter", "field-missing", "'content'", "text_field", "--max-errors 100%"):
        assert said in text
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert report["status"] != "finished"


@pytest.mark.parametrize("where", ["reader", "writer"])
@pytest.mark.parametrize("form", [JsonlWriter, ParquetWriter])
def test_fields_that_no_record_has_give_no_empty_records(tmp_path: Path, where: str, form: Any) -> None:
    source = write_input(tmp_path / "in", 5)
    fields = {"reader": None, "writer": None, where: ["txet"]}
    stages = [JsonlReader(str(source), fields=fields["reader"]), form(str(tmp_path / "out"), fields=fields["writer"])]
    with pytest.raises(TooManyErrorsError, match=r"none of the fields 'txet'; it has 'id', 'text'"):
        Pipeline("typo", stages=stages).run(SerialExecutor(), progress="none")
    assert not list((tmp_path / "out").glob("*.*"))


def test_a_record_that_lacks_all_fields_of_the_writer_is_set_aside_alone(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"body": "two"}\n{"te\\u0078t": "three"}\n')
    stages = [JsonlReader(str(tmp_path / "a.jsonl")), JsonlWriter(str(tmp_path / "out"), fields=["text"])]
    result = Pipeline("some", stages=stages).run(SerialExecutor(), progress="none")
    assert result.counts["written"] == 2
    assert result.to_dict()["quarantine_reasons"] == {"JsonlWriter/field-missing": 1}


def read_as(form: str, folder: Path, fields: list[str] | None) -> Any:
    """Return a reader of three records with `id` and `text`, each in a file of its own."""
    folder.mkdir()
    for n in range(3):
        table = pa.table({"id": [str(n)], "text": ['"idd": \\u0069']})
        if form == "parquet":
            pq.write_table(table, folder / f"{n}.parquet")
        else:
            (folder / f"{n}.jsonl").write_text(json.dumps(table.to_pylist()[0] | {"more": {"idd": "idd"}}) + "\n")
    return ParquetReader(str(folder), fields=fields) if form == "parquet" else JsonlReader(str(folder), fields=fields)


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("where", ["reader", "writer"])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_field_that_no_record_has_is_named_in_the_report(tmp_path: Path, form: str, where: str, name: str) -> None:
    fields = {"reader": None, "writer": None, where: ["text", "idd"]}
    reader = read_as(form, tmp_path / "in", fields["reader"])
    writer = (JsonlWriter if form == "jsonl" else ParquetWriter)(str(tmp_path / "out"), fields=fields["writer"])
    make: Any = EXECUTORS[name]
    result = Pipeline("typo", stages=[reader, writer]).run(make(), progress="none")
    stage = {"reader": reader, "writer": writer}[where].name
    # A Parquet reader leaves out the columns that no writer keeps, so that the writer cannot know their names.
    hint = "" if (form, where) == ("parquet", "writer") else " Did you mean 'id'?"
    told = f"{stage}: no record has the field 'idd'.{hint}"
    assert result.to_dict()["warnings"] == [told]
    assert f"warning: {told}" in summary_text(result.to_dict(), color=False)
    assert all(not entry["user_counts"] for entry in result.stages)


@pytest.mark.parametrize("where", ["reader", "writer"])
def test_a_field_that_some_record_has_gives_no_warning(tmp_path: Path, where: str) -> None:
    folder = write_input(tmp_path / "in", 5, files=3)
    (folder / "last.jsonl").write_text('{"text": "one", "l\\u0061ng": "en"}\n{"text": "two", "stra\u00dfe": 1}\n')
    fields = {"reader": None, "writer": None, where: ["text", "lang", "stra\u00dfe"]}
    stages = [
        JsonlReader(str(folder), files_per_partition=1, fields=fields["reader"]),
        JsonlWriter(str(tmp_path / "out"), fields=fields["writer"]),
    ]
    assert Pipeline("rare", stages=stages).run(SerialExecutor(), progress="none").to_dict()["warnings"] == []


def test_a_run_that_failed_at_its_end_does_not_succeed_by_being_started_again(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 20, field="content")
    for _ in range(2):
        with pytest.raises(TooManyErrorsError):
            run(source, tmp_path / "out")
    assert run(source, tmp_path / "out", max_errors="100%").counts["quarantined"] == 20


def test_the_rest_of_the_input_is_not_read_when_the_first_unit_fails_as_a_whole(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 200, files=40, field="content")
    with pytest.raises(TooManyErrorsError, match="stopped: ScoreFilter failed on all"):
        run(source, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert report["counts"]["read"] < 40 * 200


def test_most_of_a_small_input_may_not_fail(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 40)
    write_input(tmp_path / "in2", 60, field="content")
    (tmp_path / "in2" / "f0.jsonl").rename(source / "g.jsonl")
    with pytest.raises(TooManyErrorsError, match="60 of 100 records failed"):
        run(source, tmp_path / "out")
    assert len(outputs(tmp_path / "out")) == 1


class MakesRecords(ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task: EmptyTask) -> DocumentBatch:
        return DocumentBatch([{"text": f"{number}"} for number in range(100)])


class FailsOn(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, bad: int) -> None:
        self.bad = bad

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.set_aside(range(self.bad), "corrupt", [f"frame {row} is damaged" for row in range(self.bad)])


def test_failures_are_a_share_of_what_stages_made_where_nothing_was_read() -> None:
    pipeline = Pipeline("p", stages=[MakesRecords(), FailsOn(4)])
    assert pipeline.run(SerialExecutor(), progress="none", ledger=False).counts["quarantined"] == 4
    with pytest.raises(TooManyErrorsError, match="60 of 100 records failed"):
        Pipeline("p", stages=[MakesRecords(), FailsOn(60)]).run(SerialExecutor(), progress="none", ledger=False)


def test_a_run_that_may_lose_all_its_records_says_so_when_it_did(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline = Pipeline("p", stages=[MakesRecords(), FailsOn(60)])
    result = pipeline.run(SerialExecutor(), progress="lines", run_dir=str(tmp_path / "run"), max_errors="100%")
    warning = (
        "FailsOn failed on 60 of 100 records that reached it, for the same reason: corrupt, such as "
        "task-000000/0:0: frame 0 is damaged. They are not in the output"
    )
    assert f"warning: {warning}" in capfd.readouterr().err
    assert result.warnings == [warning]
    assert "quarantined 60" in repr(result)
    summary = summary_text(result.to_dict(), color=False)
    assert "finished, but most records failed" in summary
    assert f"warning: {warning}" in summary
    assert warning in (tmp_path / "run" / "report.html").read_text()


def test_a_few_failures_are_no_reason_for_a_warning() -> None:
    pipeline = Pipeline("p", stages=[MakesRecords(), FailsOn(4)])
    assert pipeline.run(SerialExecutor(), progress="none", ledger=False).warnings == []


# -- going on after the cause was corrected ---------------------------------------------------------------------------


def test_a_corrected_recipe_goes_on_where_nothing_was_written(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 300, field="content")
    with pytest.raises(TooManyErrorsError):
        run(source, tmp_path / "out")
    result = run(source, tmp_path / "out", text_field="content")
    assert result.counts["quarantined"] == 0
    assert result.counts["written"] > 0


def test_a_corrected_input_goes_on_where_nothing_was_written(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 300, field="content")
    with pytest.raises(TooManyErrorsError):
        run(source, tmp_path / "out")
    write_input(source, 200)
    result = run(source, tmp_path / "out")
    assert result.counts["read"] == 200
    assert result.counts["quarantined"] == 0


def test_a_changed_recipe_or_input_is_still_refused_where_something_was_written(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 30)
    run(source, tmp_path / "out")
    with pytest.raises(OutputRefusedError, match="different pipeline"):
        run(source, tmp_path / "out", text_field="content")
    write_input(source, 31)
    with pytest.raises(OutputRefusedError, match="input is not what it was"):
        run(source, tmp_path / "out")


# -- output files that are gone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, "1kB"], ids=["a file per unit", "joined files"])
@pytest.mark.parametrize("name", EXECUTORS)
def test_output_files_that_were_removed_are_made_again(tmp_path: Path, name: str, size: str | None) -> None:
    source = write_input(tmp_path / "in", 60, files=4)
    make: Any = EXECUTORS[name]
    run(source, tmp_path / "out", make(), target_file_size=size)
    before = outputs(tmp_path / "out")
    first = next(iter(before))
    (tmp_path / "out" / first).unlink()
    again = run(source, tmp_path / "out", make(), target_file_size=size)
    assert outputs(tmp_path / "out") == before
    assert again.status == "finished"
    assert 0 < again.units_resumed < again.units_total
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert run(source, tmp_path / "out", make(), target_file_size=size).status == "nothing-to-do"


def test_units_of_a_stream_are_made_again(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"{n} " * 20}) for n in range(3000)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    stages = [JsonlReader(str(tmp_path / "in"), blocksize="50kB"), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("stream", stages=stages).run(SerialExecutor(), progress="none")
    before = outputs(tmp_path / "out")
    assert len(before) > 2
    for name in list(before)[1:3]:
        (tmp_path / "out" / name).unlink()
    Pipeline("stream", stages=stages).run(SerialExecutor(), progress="none")
    assert outputs(tmp_path / "out") == before


def test_dropped_records_that_were_removed_are_made_again(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 60, files=3)
    run(source, tmp_path / "out", dropped_to=str(tmp_path / "dropped"))
    before = outputs(tmp_path / "dropped")
    (tmp_path / "dropped" / next(iter(before))).unlink()
    run(source, tmp_path / "out", dropped_to=str(tmp_path / "dropped"))
    assert outputs(tmp_path / "dropped") == before


def test_an_output_file_that_somebody_changed_is_never_replaced(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 60)
    run(source, tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*.jsonl")
    file.write_text("mine\n")
    with pytest.raises(OutputRefusedError, match="5 bytes"):
        run(source, tmp_path / "out")
    assert file.read_text() == "mine\n"


# -- options that come too late ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["dropped_to", "keep_scores"])
def test_an_option_that_comes_after_the_work_is_refused_and_given_by_starting_over(tmp_path: Path, option: str) -> None:
    source = write_input(tmp_path / "in", 60)
    given: dict[str, Any] = {option: True if option == "keep_scores" else str(tmp_path / "dropped")}
    run(source, tmp_path / "out")
    with pytest.raises(OutputRefusedError, match=f"{option}=.* --fresh"):
        run(source, tmp_path / "out", **given)
    assert run(source, tmp_path / "out", **given, accept_changes=True).status == "nothing-to-do"
    run(source, tmp_path / "out2", **given)
    assert run(source, tmp_path / "out2").status == "nothing-to-do"
    result = run(source, tmp_path / "out", **given, fresh=True)
    kept = tmp_path / "dropped" if option == "dropped_to" else tmp_path / "out" / "_thresher" / "scores"
    assert result.status == "finished"
    assert any(kept.iterdir())


def test_dropped_records_of_one_run_do_not_go_to_two_folders(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 60)
    run(source, tmp_path / "out", dropped_to=str(tmp_path / "one"))
    with pytest.raises(OutputRefusedError, match="began with --dropped-to"):
        run(source, tmp_path / "out", dropped_to=str(tmp_path / "two"))


@pytest.mark.parametrize("option", [{"fresh": True}, {"accept_changes": True}, {"run_dir": "runs"}])
def test_options_about_the_run_folder_are_refused_where_there_is_none(tmp_path: Path, option: dict[str, Any]) -> None:
    source = write_input(tmp_path / "in", 6)
    with pytest.raises(UsageError, match="no-ledger"):
        run(source, tmp_path / "out", ledger=False, **option)


@pytest.mark.parametrize(
    "option",
    [
        {"dropped_to": "out/dropped"},
        {"dropped_to": "in"},
        {"dropped_to": "in/dropped"},
        {"run_dir": "in/run"},
        {"run_dir": "."},
    ],
)
def test_folders_that_would_be_taken_for_data_are_refused_before_anything_is_made(
    tmp_path: Path, option: dict[str, str]
) -> None:
    source = write_input(tmp_path / "in", 6)
    with pytest.raises(RefusedError, match=r"inside the|is the input"):
        run(source, tmp_path / "out", **{name: str(tmp_path / path) for name, path in option.items()})
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("options", [[], ["--no-ledger"], ["--run-dir", "run"]], ids=" ".join)
def test_an_output_in_a_place_that_takes_no_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_input(tmp_path / "in", 6)
    path = recipe(tmp_path, {"JsonlReader": {"file_paths": str(source)}}, {"JsonlWriter": {"path": "/proc/none/out"}})
    assert main(["run", path, *options]) == 2
    told = capsys.readouterr().err
    assert "/proc/none: cannot make a folder: No such file or directory. Choose another" in told
    assert "committed" not in told


@pytest.mark.parametrize("option", ["--run-dir", "--dropped-to"])
@pytest.mark.parametrize(("folder", "exit_code"), [("/proc/none", 2), ("file", 4)])
def test_a_folder_that_cannot_be_made_is_refused_and_not_called_the_output(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    folder: str,
    exit_code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    source = write_input(tmp_path / "in", 6)
    path = recipe(tmp_path, {"JsonlReader": {"file_paths": str(source)}}, {"JsonlWriter": {"path": "out"}})
    assert main(["run", path, option, folder]) == exit_code
    told = capsys.readouterr().err
    assert f"{folder}: cannot make a folder" in told
    assert not {"committed", "output"}.intersection(told.split())


@pytest.mark.parametrize("name", ["dropped_to", "run_dir"])
@pytest.mark.parametrize(("folder", "what"), [("-", "standard output"), ("", "empty")])
def test_folders_that_are_none_are_refused(tmp_path: Path, name: str, folder: str, what: str) -> None:
    with pytest.raises(UsageError, match=f"{name}=….: '{folder}' is {what}, not a folder"):
        run(write_input(tmp_path / "in", 6), tmp_path / "out", **{name: folder})
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_web_server_as_output_is_refused_before_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    source = write_input(tmp_path / "in", 6)
    out = "http://user:pass-word@localhost:1/out"
    stages = [{"JsonlReader": {"file_paths": str(source)}}, {"JsonlWriter": {"path": out}}]
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "web", "stages": stages}))
    assert main([command, str(tmp_path / "recipe.yaml")]) == 2
    told = capsys.readouterr().err
    assert "the output http://localhost:1/out is on a web server, and http:// URLs can only be read" in told
    assert "pass-word" not in told


@pytest.mark.parametrize("port", ["1", "99999"])
def test_a_run_on_a_server_that_does_not_answer_is_refused(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert main(["report", f"http://user:pass-word@localhost:{port}/out"]) == 2
    told = capsys.readouterr().err
    assert f"localhost:{port}" in told
    assert not {"bucket", "Traceback", "pass-word"}.intersection(told.replace(":", " ").split())


@pytest.mark.parametrize("port", ["99999", "abc"])
def test_a_port_that_cannot_be_is_not_called_a_missing_file(tmp_path: Path, port: str) -> None:
    reader = JsonlReader(f"http://user:pass-word@localhost:{port}/a.jsonl")
    with pytest.raises(RefusedError, match=f"nothing can answer at localhost:{port}") as caught:
        Pipeline("p", stages=[reader, JsonlWriter(str(tmp_path / "out"))]).run(SerialExecutor(), progress="none")
    assert "pass-word" not in str(caught.value)


LIST = "http://user:pass-word@localhost:1/list.txt"
LISTS = {
    "UrlBlocklistFilter.domains": {"domains": LIST},
    "UrlBlocklistFilter.banned_words": {"banned_words": [LIST]},
    "Decontamination.evaluation_sets": {"evaluation_sets": LIST},
    "C4BadWordsFilter.word_lists": {"word_lists": {"en": LIST}},
}


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize("parameter", LISTS)
def test_a_list_at_a_url_that_cannot_be_read_is_refused_before_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, parameter: str
) -> None:
    source = write_input(tmp_path / "in", 6)
    path = recipe(
        tmp_path,
        {"JsonlReader": {"file_paths": str(source)}},
        {parameter.partition(".")[0]: LISTS[parameter]},
        {"JsonlWriter": {"path": str(tmp_path / "out")}},
    )
    assert main([command, path]) == 2
    told = capsys.readouterr().err
    assert f"{parameter}: http://***@localhost:1/list.txt: cannot connect to the server" in told
    assert not {"Traceback", "pass-word"}.intersection(told.replace(":", " ").split())
    assert not (tmp_path / "out").exists()


def test_dropped_records_are_not_promised_where_no_writer_keeps_them(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", 6)
    pipeline = Pipeline("p", stages=[JsonlReader(str(source)), ScoreFilter(WordCountFilter(4))])
    with pytest.raises(RefusedError, match=r"dropped_to: .* put a writer at the end"):
        pipeline.run(SerialExecutor(), dropped_to=str(tmp_path / "dropped"), ledger=False, progress="none")
    assert not (tmp_path / "dropped").exists()


class _Own(ProcessingStage[EmptyTask, DocumentBatch]):
    name = "Own"

    def process(self, task: EmptyTask) -> DocumentBatch:
        return DocumentBatch([{"text": "a"}, {"text": "b"}])


class _Refusing(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "Refusing"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.set_aside([0, 1], "bad", ["not good", "not good"])


def test_a_record_that_came_from_no_file_is_shown_by_the_task_that_it_was_made_in() -> None:
    with pytest.raises(TooManyErrorsError, match="reason: bad, such as task-000000/0:0: not good"):
        Pipeline("own", stages=[_Own(), _Refusing()]).run(SerialExecutor(), ledger=False, progress="none")


# -- words ------------------------------------------------------------------------------------------------------------


def recipe(tmp_path: Path, *stages: Any) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps({"name": "r", "stages": list(stages)}))
    return str(path)


def test_a_recipe_without_a_writer_does_not_say_that_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = write_input(tmp_path / "in", 60)
    path = recipe(tmp_path, {"JsonlReader": {"file_paths": str(source)}}, {"WordCountFilter": {"min_words": 4}})
    assert main(["run", path, "--executor", "serial"]) == 0
    (run_id,) = (folder.name for folder in Path(".thresher/runs").iterdir())
    assert main(["report", run_id]) == 0
    assert main(["audit", run_id]) == 0
    text = capsys.readouterr().out
    assert "60 read = 32 passed + 28 dropped" in text
    assert "no writer" in text
    assert "written" not in text


def test_a_result_in_memory_is_not_called_written() -> None:
    tasks: list[Task] = [DocumentBatch([{"text": "a b c d e"}])]
    result = Pipeline("m", stages=[ScoreFilter(WordCountFilter(4))]).run(
        SerialExecutor(), initial_tasks=tasks, progress="none", ledger=False
    )
    assert "passed 1" in repr(result)
    assert "written" not in repr(result)


def test_a_run_that_wrote_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_input(tmp_path / "in", 60)
    stages = [{"JsonlReader": {"file_paths": str(source)}}, {"WordCountFilter": {"min_words": 400}}]
    path = recipe(tmp_path, *stages, {"JsonlWriter": {"path": str(tmp_path / "out")}})
    assert main(["run", path, "--executor", "serial"]) == 0
    assert "no record was written: 60 dropped, 0 quarantined" in capsys.readouterr().out
