# SPDX-License-Identifier: Apache-2.0
"""Documents with the same text: one is kept, in its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import clusters, run_over, write_corpus, written
from thresher import ExactDeduplication, ParquetWriter, WordCountFilter
from thresher.cli.main import main
from thresher.errors import UsageError
from thresher.workflows import ExactDeduplicationWorkflow, TextDuplicatesRemovalWorkflow

TEXTS = ["a", "b", "a", "", "c", "b", "a", "", "d", "B"]
DOCUMENTS = [{"n": n, "text": text, "score": (n * 7) % 10, "source": "xyz"[n % 3]} for n, text in enumerate(TEXTS)]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return [document["n"] for document in found]


def test_the_first_of_equal_texts_stays_and_the_order_is_that_of_the_input(tmp_path: Path) -> None:
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication())
    assert numbers(written(result)) == [0, 1, 3, 4, 8, 9]
    assert result.counts == {"read": 10, "created": 0, "merged": 0, "written": 6, "dropped": 4, "quarantined": 0}
    assert result.drop_reasons == {"ExactDeduplication/duplicate": 4}


@pytest.mark.parametrize("blocksize", [20, 60, 150])
def test_the_result_does_not_depend_on_units(tmp_path: Path, blocksize: int) -> None:
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication(), blocksize=blocksize)
    assert result.units_total > 1
    assert numbers(written(result)) == [0, 1, 3, 4, 8, 9]


@pytest.mark.parametrize(
    "choice",
    [
        {"keep": "best", "keep_by": "score"},
        {"keep": "source", "keep_by": "source", "prefer": ["z", "x"]},
        {"keep": "longest"},
    ],
)
def test_which_one_stays_is_a_choice(tmp_path: Path, choice: dict[str, Any]) -> None:
    def best(one: dict[str, Any]) -> Any:
        if choice["keep"] == "best":
            return one["score"]
        if choice["keep"] == "source":
            return -(choice["prefer"].index(one["source"]) if one["source"] in choice["prefer"] else 9)
        return 0

    expected = [
        one["n"]
        for one in DOCUMENTS
        if one["n"] == max((o for o in DOCUMENTS if o["text"] == one["text"]), key=best)["n"]
    ]
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication(**choice))
    assert numbers(written(result)) == expected


def test_clusters_name_all_documents_and_the_one_that_is_kept(tmp_path: Path) -> None:
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication(), blocksize=60)
    found = clusters(result)
    assert [(row["row"], row["size"], row["kept"]) for row in found] == [
        *((0, 3, True), (1, 2, True), (2, 3, False), (3, 2, True)),
        *((5, 2, False), (6, 3, False), (7, 2, False)),
    ]
    ids = {row["row"]: row["id"] for row in found}
    assert [row["kept_id"] for row in found] == [ids[0], ids[1], ids[0], ids[3], ids[1], ids[0], ids[3]]
    assert all(row["cluster"] == row["kept_id"] and row["similarity"] == 1 for row in found)
    assert ids[0].endswith(":0")


def test_dropped_documents_say_what_they_are_duplicates_of(tmp_path: Path) -> None:
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication(), dropped_to=str(tmp_path / "dropped"))
    lines = [
        json.loads(line) for path in (tmp_path / "dropped").glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert numbers(lines) == [2, 5, 6, 7]
    assert lines[0]["_dropped"]["rule"] == "duplicate"
    kept = next(row["id"] for row in clusters(result) if row["row"] == 0)
    assert lines[0]["_dropped"]["score"] == {"kept_id": kept, "cluster": kept, "size": 3, "similarity": 1.0}


def test_filters_before_and_after_are_part_of_the_run(tmp_path: Path) -> None:
    documents = [{"n": n, "text": f"{'word ' * (n % 4)}{n % 4}"} for n in range(12)]
    result = run_over(documents, tmp_path, WordCountFilter(min_words=2), ExactDeduplication(), WordCountFilter(3))
    assert numbers(written(result)) == [2, 3]
    assert result.counts["dropped"] == 10


def test_documents_without_a_text_are_quarantined(tmp_path: Path) -> None:
    documents = [{"n": 0, "text": "a"}, {"n": 1}, {"n": 2, "text": 5}, {"n": 3, "text": "a"}]
    result = run_over(documents, tmp_path, ExactDeduplication(), max_errors="100%")
    assert numbers(written(result)) == [0]
    assert result.counts["quarantined"] == 2


def test_without_duplicates_everything_stays(tmp_path: Path) -> None:
    documents = [{"n": n, "text": str(n)} for n in range(5)]
    result = run_over(documents, tmp_path, ExactDeduplication())
    assert numbers(written(result)) == [0, 1, 2, 3, 4]
    assert clusters(result) == []


def test_an_empty_corpus_gives_an_empty_result(tmp_path: Path) -> None:
    assert run_over([], tmp_path, ExactDeduplication()).counts["written"] == 0


def test_texts_may_be_compared_without_case_and_white_space(tmp_path: Path) -> None:
    result = run_over(DOCUMENTS, tmp_path, ExactDeduplication(normalize=["case", "space"]))
    assert numbers(written(result)) == [0, 1, 3, 4, 8]
    assert [document["text"] for document in written(result)] == ["a", "b", "", "c", "d"]


def test_a_run_takes_no_time_to_import_pandas(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "in", DOCUMENTS)
    code = (
        "import sys; from thresher.workflows import ExactDeduplicationWorkflow as Workflow; "
        f"Workflow({str(corpus)!r}, {str(tmp_path / 'out')!r}).run('serial', progress='none'); "
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_all_documents_the_same(tmp_path: Path) -> None:
    documents = [{"n": n, "text": "same"} for n in range(500)]
    result = run_over(documents, tmp_path, ExactDeduplication(), blocksize=1000)
    assert numbers(written(result)) == [0]
    assert {row["size"] for row in clusters(result)} == {500}


@pytest.mark.parametrize(
    "arguments",
    [{"keep": "last"}, {"keep": "best"}, {"keep_by": "n"}, {"keep": "source", "keep_by": "n"}, {"action": "mark"}],
)
def test_a_choice_that_makes_no_sense_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="ExactDeduplication"):
        ExactDeduplication(**arguments)


# -- workflows and the command line ------------------------------------------------------------------------------------


def test_finding_and_removing_may_be_two_runs_with_other_block_sizes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "in", DOCUMENTS, files=3)
    found = ExactDeduplicationWorkflow(
        str(corpus), str(tmp_path / "list"), perform_removal=False, input_blocksize=50
    ).run("serial", progress="none")
    assert found.clusters["duplicates"] == 4
    assert found.counts["created"] == found.counts["written"] == 7, "the list has a row for each member of a cluster"
    removal = TextDuplicatesRemovalWorkflow(
        str(corpus), str(tmp_path / "out"), ids_to_remove_path=str(tmp_path / "list"), input_blocksize=120
    ).run("serial", progress="none")
    assert numbers(written(removal.run)) == [0, 1, 3, 4, 8, 9]


def test_parquet_in_and_json_lines_out(tmp_path: Path) -> None:
    from thresher import JsonlReader, Pipeline

    corpus = write_corpus(tmp_path / "in", DOCUMENTS)
    stages = [JsonlReader(str(corpus)), ParquetWriter(str(tmp_path / "parquet"))]
    Pipeline("convert", stages=stages).run("serial", progress="none")
    workflow = ExactDeduplicationWorkflow(str(tmp_path / "parquet"), str(tmp_path / "out"), output_filetype="jsonl")
    result = workflow.run("serial", progress="none")
    assert numbers(written(result.run)) == [0, 1, 3, 4, 8, 9]
    assert result.timings["wall_s"] > 0


@pytest.mark.parametrize(("asked", "ending"), [(None, ".jsonl"), ("parquet", ".parquet"), ("jsonl", ".jsonl")])
def test_a_folder_with_json_lines_and_parquet(tmp_path: Path, asked: str | None, ending: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    corpus = tmp_path / "in"
    write_corpus(corpus / "a", DOCUMENTS[:4])
    pq.write_table(pa.Table.from_pylist(DOCUMENTS[4:8]), corpus / "b.parquet")
    write_corpus(corpus / "c", DOCUMENTS[8:])
    workflow = ExactDeduplicationWorkflow(str(corpus), str(tmp_path / "out"), output_filetype=asked)
    result = workflow.run("serial", progress="none")
    assert {Path(path).suffix for path in result.run.output_paths} == {ending}
    if ending == ".jsonl":
        assert numbers(written(result.run)) == [0, 1, 3, 4, 8, 9]
    else:
        assert [n for path in result.run.output_paths for n in pq.read_table(path)["n"].to_pylist()] == [
            *(0, 1, 3, 4, 8, 9)
        ]
    assert main(["dedup", "show", str(tmp_path / "out")]) == 0
    kept = next(row for row in clusters(result.run) if not row["kept"])
    assert main(["why", str(tmp_path / "out"), kept["id"]]) == 0


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "in", DOCUMENTS)
    code = main(
        ["dedup", "exact", str(corpus), str(tmp_path / "out"), "keep=longest", "--executor", "serial", "--json"]
    )
    assert code == 0
    assert json.loads(capsys.readouterr().out)["counts"]["written"] == 6
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert main(["dedup", "exact", str(corpus), str(tmp_path / "out2"), "kep=first"]) == 2
    assert "Did you mean 'keep'" in capsys.readouterr().err
    assert main(["dedup", "exactly", str(corpus), str(tmp_path / "out2")]) == 2
    assert main(["dedup", "exact", str(corpus)]) == 2


def charts(result: Any, name: str) -> dict[str, dict[Any, int]]:
    """The charts of a stage of a run, as bars by their names."""
    stage = next(stage for stage in result.run.stages if stage["name"] == name)
    return {title: {bar["bar"]: bar["n"] for bar in bars} for title, bars in stage["charts"].items()}


@pytest.mark.parametrize("perform_removal", [True, False])
@pytest.mark.parametrize("blocksize", ["64MB", 60])
def test_the_report_has_sizes_the_largest_clusters_and_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], perform_removal: bool, blocksize: int | str
) -> None:
    corpus = tmp_path / "in"
    for number, folder in enumerate(("books", "web", "wiki")):  # a b a "" | c b a "" | d B
        write_corpus(corpus / folder, DOCUMENTS[4 * number : 4 * number + 4])
    workflow = ExactDeduplicationWorkflow(
        str(corpus), str(tmp_path / "out"), perform_removal=perform_removal, input_blocksize=blocksize
    )
    result = workflow.run("serial", progress="none")
    found = charts(result, "ExactDeduplication")
    assert found["clusters by size, from"] == {2: 3}
    assert list(found["largest clusters"].values()) == [3, 2, 2]
    assert found["duplicates by source"] == {"books": 1, "web": 3}
    assert found["duplicates by source and that of the document kept"] == {"books → books": 1, "web → books": 3}
    assert main(["report", str(tmp_path / "out")]) == 0
    assert "web → books" in capsys.readouterr().out


def test_files_are_sources_if_all_are_in_one_folder(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "in", DOCUMENTS, files=3)
    result = ExactDeduplicationWorkflow(str(corpus), str(tmp_path / "out")).run("serial", progress="none")
    found = charts(result, "ExactDeduplication")
    assert found["duplicates by source and that of the document kept"] == {
        "0.jsonl → 0.jsonl": 1,
        "1.jsonl → 0.jsonl": 3,
    }


def test_why_names_the_document_that_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "in", DOCUMENTS)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: once\nstages:\n  - JsonlReader: {{file_paths: {corpus}}}\n  - ExactDeduplication\n"
        f"  - JsonlWriter: {{path: {tmp_path / 'out'}}}\n"
    )
    assert main(["run", str(recipe), "--executor", "serial", "--quiet"]) == 0
    import pyarrow.parquet as pq

    rows = pq.read_table(tmp_path / "out" / "_thresher" / "clusters.parquet").to_pylist()
    kept, dropped = (next(row for row in rows if row["kept"] is stays) for stays in (True, False))
    for row, word in ((kept, "written"), (dropped, "dropped by ExactDeduplication, rule duplicate")):
        assert main(["why", str(tmp_path / "out"), row["id"]]) == 0
        assert word in capsys.readouterr().out
    assert main(["why", str(tmp_path / "out"), dropped["id"]]) == 0
    assert kept["id"] in capsys.readouterr().out
