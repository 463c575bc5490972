# SPDX-License-Identifier: Apache-2.0
"""An index of earlier documents: what is in it already is dropped, without reading it again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.dedup.runs import clusters, run_over, write_corpus, written
from thresher import ExactDeduplication, FuzzyDeduplication
from thresher.cli.main import main
from thresher.errors import PlanError, UsageError
from thresher.workflows import DeduplicationIndexWorkflow, FuzzyDeduplicationWorkflow

OLD, NEW = ("a", "b", "c", "c"), ("d", "b", "e", "a", "d", "b")


def documents(names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"n": n, "text": " ".join(f"{name}{k}" for k in range(80))} for n, name in enumerate(names)]


def index_of(folder: Path, **arguments: Any) -> str:
    corpus = write_corpus(folder / "old", documents(OLD), files=2)
    path = str(folder / f"index-{len(list(folder.iterdir()))}")
    DeduplicationIndexWorkflow(str(corpus), path, input_blocksize=600, **arguments).run("serial", progress="none")
    shutil.rmtree(corpus)
    return path


@pytest.mark.parametrize("blocksize", ["64MB", 700])
@pytest.mark.parametrize("keep", ["first", "longest"])
def test_what_is_in_an_index_is_dropped(tmp_path: Path, blocksize: int | str, keep: Any) -> None:
    stage = FuzzyDeduplication(index=index_of(tmp_path), keep=keep)
    result = run_over(documents(NEW), tmp_path, stage, blocksize=blocksize)
    assert [document["n"] for document in written(result)] == [0, 2]
    rows = clusters(result)
    assert [(row["size"], row["kept"]) for row in rows] == [
        *((2, True), (3, True)),  # in the index: a, b
        *((2, True), (3, False), (2, False), (2, False), (3, False)),
    ]
    charts = next(stage for stage in result.stages if stage["name"] == "FuzzyDeduplication")["charts"]
    assert [(bar["bar"], bar["n"]) for bar in charts["duplicates by source"]] == [("in", 4)]
    pairs = charts["duplicates by source and that of the document kept"]
    assert [(bar["bar"], bar["n"]) for bar in pairs] == [("in → index-1", 3), ("in → in", 1)]
    old = {row["id"] for row in rows if row["row"] < len(OLD)}
    assert {row["kept_id"] for row in rows if row["size"] == 3} <= old


def test_an_index_for_exact_deduplication(tmp_path: Path) -> None:
    index = index_of(tmp_path, method="exact")
    assert run_over(documents(NEW), tmp_path, ExactDeduplication(index=[index])).counts["written"] == 2


def test_several_indexes_count_together(tmp_path: Path) -> None:
    first = index_of(tmp_path)
    corpus = write_corpus(tmp_path / "more", documents(("d",)))
    second = DeduplicationIndexWorkflow(str(corpus), str(tmp_path / "second"))
    second.run("serial", progress="none")
    result = run_over(documents(NEW), tmp_path, FuzzyDeduplication(index=[first, second.output_path]))
    assert [document["n"] for document in written(result)] == [2]


def test_the_documents_that_a_run_keeps_may_go_to_an_index_in_the_same_run(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "in", documents(OLD))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: crawl\nstages:\n  - JsonlReader: {{file_paths: {corpus}}}\n  - FuzzyDeduplication\n"
        f"  - Copy: {{outlet: index}}\n  - JsonlWriter: {{path: {tmp_path / 'out1'}}}\n"
        f"outlets:\n  index:\n    - IndexWriter: {{path: {tmp_path / 'index'}}}\n"
    )
    assert main(["run", str(recipe), "--executor", "serial", "--quiet"]) == 0
    result = run_over(documents(NEW), tmp_path / "next", FuzzyDeduplication(index=str(tmp_path / "index")))
    assert [document["n"] for document in written(result)] == [0, 2]


def test_an_index_that_was_made_otherwise_is_refused(tmp_path: Path) -> None:
    index = index_of(tmp_path, mode="datatrove")
    with pytest.raises(PlanError, match="ngrams 5 and not 24, bands 14 and not 20"):
        run_over(documents(NEW), tmp_path, FuzzyDeduplication(index=index))
    with pytest.raises(UsageError, match="has no such argument"):
        index_of(tmp_path, method="exact", seed=3)
    with pytest.raises(UsageError, match="verify needs texts"):
        FuzzyDeduplication(index=index, verify=0.8)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (write_corpus(tmp_path / name, documents(some)) for name, some in (("old", OLD), ("new", NEW)))
    index, out = str(tmp_path / "index"), str(tmp_path / "out")
    assert main(["dedup", "index", str(old), index, "threshold=0.8", "--executor", "serial", "--quiet"]) == 0
    arguments = ["dedup", "fuzzy", str(new), out, "threshold=0.8", f"index={index}", "--executor", "serial", "--quiet"]
    assert main(arguments) == 0
    assert main(["audit", out]) == 0
    assert main(["dedup", "show", out]) == 0
    assert "which is in an index" in capsys.readouterr().out


def test_data_sets_may_have_priorities(tmp_path: Path) -> None:
    write_corpus(tmp_path / "a-web", documents(("a", "b", "c")))
    write_corpus(tmp_path / "b-books", documents(("x", "b", "a")))
    paths = [str(tmp_path / name) for name in ("a-web", "b-books")]
    workflow = FuzzyDeduplicationWorkflow(paths, str(tmp_path / "out"), keep="source", prefer=["b-books", "a-web"])
    found = written(workflow.run("serial", progress="none").run)
    assert [document["text"][0] for document in found] == ["c", "x", "b", "a"]
