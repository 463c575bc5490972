# SPDX-License-Identifier: Apache-2.0
"""A pipeline with outlets that ended early goes on in the branch in which it ended; `audit`, `report` and `why` know
all branches."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    RunResult,
    SerialExecutor,
    Split,
    WordCountFilter,
)
from thresher.cli.main import main
from thresher.errors import OutputRefusedError, RunFailedError, UsageError
from thresher.inspect.retry import RetryOptions, retry_run

ROWS = 2000


class Full(JsonlWriter):
    """Finds no room for the file of one unit while another file exists."""

    def __init__(self, path: str, unit: int) -> None:
        super().__init__(path)
        self.unit = unit

    def open_writer(self, local_path: str) -> Any:
        if f"-{self.unit:06d}-" in os.path.basename(local_path) and Path(f"{self.path}.full").exists():
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open_writer(local_path)


class Scene:
    """Short documents go to an outlet, whose writer may fail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.input = folder, folder / "in"
        self.input.mkdir()
        for file in range(4):
            self.add_input(f"{file}.jsonl", range(file * ROWS // 4, (file + 1) * ROWS // 4))

    def add_input(self, name: str, rows: range) -> None:
        lines = [json.dumps({"n": n, "text": "word " * (1 + n % 10)}) for n in rows]
        (self.input / name).write_text("\n".join(lines) + "\n")

    @property
    def recipe(self) -> Path:
        path = self.folder / "recipe.yaml"
        path.write_text(
            f"name: branched\nstages:\n  - JsonlReader: {{file_paths: {self.input}, blocksize: 10kB}}\n"
            "  - WordCountFilter: {min_words: 4, drops_to: short}\n"
            f"  - JsonlWriter: {{path: {self.folder}/long}}\noutlets:\n  short:\n"
            f"    - WordCountFilter: {{min_words: 2}}\n    - JsonlWriter: {{path: {self.folder}/short}}\n"
        )
        return path

    def run(self, executor: Any = None, folder: Path | None = None, **options: Any) -> RunResult:
        folder = folder or self.folder
        short = Pipeline("x", stages=[WordCountFilter(min_words=4)]).stages[0].with_(drops_to="short")
        reader = JsonlReader(str(self.input), blocksize=10_000)
        pipeline = Pipeline("branched", stages=[reader, short, Full(str(folder / "long"), unit=2)])
        pipeline.outlet("short").add_stage(WordCountFilter(min_words=2))
        pipeline.outlet("short").add_stage(Full(str(folder / "short"), unit=0))
        return pipeline.run(executor or SerialExecutor(), progress="none", **options)

    def numbers(self, branch: str) -> list[int]:
        files = sorted((self.folder / branch).glob("*.jsonl"))
        return sorted(json.loads(line)["n"] for path in files for line in path.read_text().splitlines())

    def sent_files(self) -> list[Path]:
        return list((self.folder / "long" / "_thresher" / "outlets" / "short").glob("*-*"))

    def assert_complete(self, rows: int = ROWS) -> None:
        assert self.numbers("long") == [n for n in range(rows) if n % 10 > 2]
        assert self.numbers("short") == [n for n in range(rows) if 0 < n % 10 <= 2]
        assert not self.sent_files()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_run_that_failed_before_its_outlets_goes_on_and_then_runs_them(scene: Scene) -> None:
    fault = scene.folder / "long.full"
    fault.touch()
    with pytest.raises(RunFailedError, match="disk is full"):
        scene.run()
    assert scene.sent_files()
    assert not (scene.folder / "short").exists()
    fault.unlink()
    result = scene.run(LocalExecutor(workers=2))
    assert result.units_resumed > 0
    scene.assert_complete()


def test_an_outlet_that_failed_goes_on_alone(scene: Scene) -> None:
    fault = scene.folder / "short.full"
    fault.touch()
    with pytest.raises(RunFailedError, match="disk is full"):
        scene.run()
    assert scene.sent_files()
    fault.unlink()
    result = scene.run(LocalExecutor(workers=2))
    assert (result.status, result.outlets["short"].status) == ("nothing-to-do", "finished")
    scene.assert_complete()
    assert scene.run().outlets["short"].status == "nothing-to-do"


def test_an_interrupt_in_an_outlet_says_where_the_run_is(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            os.kill(os.getpid(), signal.SIGINT)
            return task

    pipeline = Pipeline("branched", stages=[JsonlReader(str(scene.input)), Split("half", 0.5)])
    pipeline.add_stage(JsonlWriter(str(scene.folder / "long")))
    pipeline.outlet("half").add_stage(Interrupted()).add_stage(JsonlWriter(str(scene.folder / "half")))
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(SerialExecutor())
    assert "the pipeline is done, and of its outlet half 1 of 1 units are done. Run" in capsys.readouterr().err


def test_each_branch_begins_by_saying_what_it_gets(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(scene.recipe), "--executor", "serial"]) == 0
    found = [line for line in capsys.readouterr().err.splitlines() if "executor serial" in line]
    assert ", branch 1/2, then short, " in found[0]
    assert f", branch 2/2 with {3 * ROWS // 10} records, " in found[1]


def test_a_lost_file_for_an_outlet_is_made_again(scene: Scene) -> None:
    fault = scene.folder / "long.full"
    fault.touch()
    with pytest.raises(RunFailedError):
        scene.run()
    fault.unlink()
    scene.sent_files()[0].unlink()
    scene.run()
    scene.assert_complete()


def test_fresh_replaces_the_output_of_outlets(scene: Scene) -> None:
    scene.run()
    scene.add_input("0.jsonl", range(100))
    result = scene.run(fresh=True)
    left = [*range(100), *range(ROWS // 4, ROWS)]
    assert scene.numbers("short") == [n for n in left if 0 < n % 10 <= 2]
    assert result.outlets["short"].status == "finished"
    assert main(["audit", str(scene.folder / "long")]) == 0


def test_an_outlet_that_is_done_refuses_what_was_sent_later(scene: Scene) -> None:
    scene.run()
    scene.add_input("9.jsonl", range(ROWS, ROWS + 100))
    with pytest.raises(OutputRefusedError, match="the outlet short cannot go on: it was finished before more was sent"):
        scene.run(accept_changes=True)


def test_a_file_of_a_finished_outlet_that_is_missing_is_not_passed_over(scene: Scene) -> None:
    scene.run()
    next((scene.folder / "short").glob("*.jsonl")).unlink()
    with pytest.raises(OutputRefusedError, match="files of it are missing"):
        scene.run()


def test_an_output_of_another_run_is_refused(scene: Scene) -> None:
    other = Pipeline("other", stages=[JsonlReader(str(scene.input)), JsonlWriter(str(scene.folder / "short"))])
    other.run(SerialExecutor(), progress="none")
    with pytest.raises(OutputRefusedError, match="not from this run"):
        scene.run()
    assert not (scene.folder / "long").exists()


def test_audit_report_and_plan_show_all_branches(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(scene.recipe)
    assert main(["plan", recipe]) == 0
    assert "outlet short" in capsys.readouterr().out
    assert main(["run", recipe]) == 0
    assert f"{2 * ROWS // 10:,} written" in capsys.readouterr().out.split("outlet short")[1]
    long = str(scene.folder / "long")
    assert main(["report", long]) == 0
    assert f"{3 * ROWS // 10:,} read" in capsys.readouterr().out.split("outlet short")[1]
    assert main(["audit", long, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outlets"]["short"]["status"] == "proven"


# -- why ---------------------------------------------------------------------------------------------------------------


def why(run: Path, capsys: pytest.CaptureFixture[str], n: int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["why", str(run), "--field", f"n={n}", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert not any("changed since" in note for note in found["notes"])
    return found


def test_why_follows_a_document_to_its_line_in_the_file_of_an_outlet(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(scene.recipe), "--quiet"]) == 0
    (end,) = why(scene.folder / "long", capsys, 12)["ends"]
    assert (end["end"], end["outlet"]) == ("written", "short")
    assert end["text"].startswith("sent to the outlet short by WordCountFilter: written: ")
    assert json.loads(Path(end["file"]).read_text().splitlines()[end["line"] - 1])["n"] == 12
    (main_end,) = why(scene.folder / "long", capsys, 9)["ends"]
    assert (main_end["end"], main_end["outlet"]) == ("written", None)


def test_why_tells_the_rule_and_score_that_dropped_a_document_in_an_outlet(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(scene.recipe), "--quiet"]) == 0
    found = why(scene.folder / "long", capsys, 10)
    assert found["stages"][-1]["stage"] == "short.WordCountFilter"
    assert found["stages"][-1]["rules"][0]["score"] == 1
    (end,) = found["ends"]
    assert (end["end"], end["outlet"]) == ("dropped", "short")
    assert "score 1 with min_words=2" in end["text"]


def test_why_tells_that_an_outlet_has_not_been_run(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(scene.recipe), "--quiet"]) == 0
    (scene.folder / "long" / "_thresher" / "outlets" / "short" / "_done").unlink()
    (end,) = why(scene.folder / "long", capsys, 12)["ends"]
    assert end["end"] == "sent"
    assert end["text"].endswith("which has not been run to its end")


def test_the_run_of_an_outlet_says_which_run_to_ask(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(scene.recipe), "--quiet"]) == 0
    assert main(["why", str(scene.folder / "short"), "--field", "n=12"]) == 2
    assert f"thresher why {scene.folder}/long/_thresher ID" in capsys.readouterr().err
    assert main(["retry", str(scene.folder / "short")]) == 2
    error = capsys.readouterr().err
    assert "is the run of the outlet short" in error
    assert "--fresh" in error


def test_why_follows_copies_phases_and_outlets_of_the_framework(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = scene.folder / "best.yaml"
    recipe.write_text(
        f"name: best\nstages:\n  - JsonlReader: {{file_paths: {scene.input}}}\n  - Copy: {{outlet: all}}\n"
        f"  - TopK: {{by: n, k: 10}}\n  - JsonlWriter: {{path: {scene.folder}/best}}\noutlets:\n"
        f"  all:\n    - GlobalShuffle\n    - JsonlWriter: {{path: {scene.folder}/all}}\n"
        f"  dropped:\n    - JsonlWriter: {{path: {scene.folder}/rest}}\n"
    )
    assert main(["run", str(recipe), "--quiet"]) == 0
    best, copy = why(scene.folder / "best", capsys, ROWS - 1)["ends"]
    assert (best["end"], best["outlet"], copy["end"], copy["outlet"]) == ("written", None, "written", "all")
    found = why(scene.folder / "best", capsys, 0)
    dropped, copy = found["ends"]
    assert (dropped["end"], copy["end"]) == ("dropped", "written")
    assert "dropped by TopK-read, rule rank" in dropped["text"]
    line = json.loads(Path(dropped["file"]).read_text().splitlines()[dropped["line"] - 1])
    assert (line["n"], line["_dropped"]["threshold"]) == (0, {"k": 10})
    assert [(stage["stage"], stage["result"]) for stage in found["stages"]][:3] == [
        ("Copy", "copied"),
        ("TopK", "passed"),
        ("TopK-read", "dropped"),
    ]


# -- audit and retry ---------------------------------------------------------------------------------------------------


def test_audit_finds_a_damaged_file_of_an_outlet(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.run()
    path = next((scene.folder / "short").glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b"word", b"wort", 1))
    assert main(["audit", str(scene.folder / "long")]) == 5
    assert "was changed" in capsys.readouterr().out


def test_audit_says_that_an_outlet_is_not_done(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    fault = scene.folder / "long.full"
    fault.touch()
    with pytest.raises(RunFailedError):
        scene.run()
    main(["audit", str(scene.folder / "long")])
    assert "the outlet short has not been run to its end" in capsys.readouterr().err


@pytest.mark.parametrize("outlet", ["short", "dropped", "quarantined"])
def test_a_retry_is_refused_because_outlets_have_been_run(scene: Scene, outlet: str) -> None:
    stages = [JsonlReader(str(scene.input)), WordCountFilter(min_words=4), JsonlWriter(str(scene.folder / "long"))]
    pipeline = Pipeline("branched", stages=stages)
    pipeline.outlet(outlet).add_stage(JsonlWriter(str(scene.folder / outlet)))
    pipeline.run(SerialExecutor(), progress="none")
    with pytest.raises(UsageError, match=rf"could go to an outlet \({outlet}\)"):
        retry_run(SerialExecutor(), pipeline, str(scene.folder / "long" / "_thresher"), RetryOptions())


def test_a_run_folder_elsewhere_has_those_of_outlets_beside_it(scene: Scene) -> None:
    scene.run(run_dir=str(scene.folder / "runs" / "one"))
    assert (scene.folder / "runs" / "one-short" / "run.json").exists()
    assert not (scene.folder / "short" / "_thresher").exists()
    assert scene.run(run_dir=str(scene.folder / "runs" / "one")).status == "nothing-to-do"
    assert main(["audit", str(scene.folder / "runs" / "one")]) == 0
