# SPDX-License-Identifier: Apache-2.0
"""Similar documents: one of each cluster is kept, and as many are found as the bands promise."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard

from tests.unit.kernels.texts import DATA
from tests.unit.stages.dedup.runs import clusters, run_over, write_corpus, written
from thresher import FuzzyDeduplication
from thresher.cli.main import main
from thresher.errors import UsageError
from thresher.stages.dedup.banding import Banding, propose
from thresher.workflows import FuzzyDeduplicationWorkflow

RANDOM = Random(1)
LONG = [" ".join(f"{RANDOM.choice('bcdfg')}{RANDOM.choice('aeiou')}{n}" for n in range(300)) for _ in range(3)]


def kept(texts: list[str], folder: Path, blocksize: int | str = "64MB", **arguments: Any) -> list[int]:
    documents = [{"n": n, "text": text} for n, text in enumerate(texts)]
    result = run_over(documents, folder, FuzzyDeduplication(**arguments), blocksize=blocksize)
    assert result.counts["dropped"] == len(texts) - result.counts["written"]
    return [document["n"] for document in written(result)]


@pytest.mark.parametrize("arguments", [{}, {"mode": "datatrove"}, {"word_ngrams": 3}, {"threshold": 0.8}])
@pytest.mark.parametrize("blocksize", ["64MB", 2000])
def test_documents_that_differ_in_one_character_are_duplicates(
    tmp_path: Path, arguments: dict[str, Any], blocksize: int | str
) -> None:
    changed = f"{LONG[0][:700]}X{LONG[0][701:]}"
    assert kept([LONG[0], LONG[1], changed, LONG[2], LONG[1]], tmp_path, blocksize, **arguments) == [0, 1, 3]


def test_documents_shorter_than_a_shingle_are_compared_as_a_whole(tmp_path: Path) -> None:
    assert kept(["short", "shorter", "short", "sho rt", "shorter"], tmp_path) == [0, 1, 3]


def test_empty_documents_are_like_no_other(tmp_path: Path) -> None:
    assert kept(["", "a", "", ""], tmp_path) == [0, 1, 2, 3]


def test_many_identical_documents_cost_an_edge_each(tmp_path: Path) -> None:
    documents = [{"n": n, "text": LONG[0]} for n in range(400)]
    result = run_over(documents, tmp_path, FuzzyDeduplication(), blocksize=200_000)
    assert [document["n"] for document in written(result)] == [0]
    edges = next(stage for stage in result.stages if stage["name"] == "FuzzyDeduplication-graph")["in_docs"]
    assert edges < 400 + 20 * result.units_total
    assert {row["size"] for row in clusters(result)} == {400}


def test_texts_may_be_compared_without_case_white_space_and_punctuation(tmp_path: Path) -> None:
    texts = [LONG[0], LONG[0].upper(), LONG[0].replace(" ", " -- "), LONG[0].replace(" ", "\n ")]
    assert kept(texts, tmp_path / "case", normalize="case") == [0, 2, 3]
    assert kept(texts, tmp_path / "space", normalize=["space"]) == [0, 1, 2]
    assert kept(texts, tmp_path / "all", normalize=True) == [0]
    assert kept(["\ufb01ne" * 30, "fine" * 30], tmp_path / "unicode", normalize="unicode") == [0]


def test_pairs_below_the_verified_similarity_are_no_duplicates(tmp_path: Path) -> None:
    half = f"{LONG[0][: len(LONG[0]) // 2]}{LONG[1][len(LONG[1]) // 2 :]}"
    loose = {"num_bands": 60, "minhashes_per_band": 1}
    texts = [LONG[0], half, half, LONG[0], f"{LONG[0]} end"]
    assert kept(texts, tmp_path / "all", **loose) == [0]
    for blocksize in ("64MB", 3000):
        assert kept(texts, tmp_path / str(blocksize), blocksize, **loose, verify=0.8) == [0, 1]
    result = run_over([{"text": text} for text in texts], tmp_path / "known", FuzzyDeduplication(**loose, verify=0.8))
    found = [(row["row"], row["size"], row["similarity"] == 1) for row in clusters(result)]
    assert found == [(0, 3, True), (1, 2, True), (2, 2, True), (3, 3, True), (4, 3, False)]


def test_a_list_of_duplicates_may_be_verified(tmp_path: Path) -> None:
    documents = [{"text": text} for text in (LONG[0], LONG[1], f"{LONG[0]}!")]
    result = run_over(documents, tmp_path, FuzzyDeduplication(threshold=0.8, verify=True, action="list"))
    rows = written(result)
    assert [row["kept"] for row in rows] == [True, False]
    assert rows[0]["similarity"] == 1
    assert 0.99 < rows[1]["similarity"] < 1


def test_a_document_of_one_repeated_character_has_one_shingle(tmp_path: Path) -> None:
    assert kept(["x" * 1_000_000, "x" * 30, "y" * 30], tmp_path) == [0, 2]


def test_the_longest_of_similar_documents_may_stay(tmp_path: Path) -> None:
    assert kept([LONG[0], LONG[1], f"{LONG[0]} and more"], tmp_path, keep="longest") == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "other"}, "mode"),
        ({"char_ngrams": 3, "word_ngrams": 3}, "either"),
        ({"char_ngrams": 0}, "char_ngrams"),
        ({"threshold": 0.8, "num_bands": 3}, "either"),
        ({"threshold": 1.5}, "threshold"),
        ({"num_bands": 0}, "num_bands"),
        ({"seed": -1}, "seed"),
        ({"verify": True}, "needs threshold"),
        ({"verify": 1.5}, "verify"),
        ({"normalize": ["cases"]}, "Did you mean 'case'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FuzzyDeduplication(**arguments)


def test_bands_for_a_threshold_find_what_they_promise() -> None:
    for threshold in (0.5, 0.7, 0.8, 0.9, 0.95):
        chosen = propose(threshold)
        assert chosen.bands * chosen.rows <= 260
        assert chosen.found(threshold) >= 0.95
        assert Banding(260 // (chosen.rows + 1), chosen.rows + 1).found(threshold) < 0.95
    assert Banding(20, 13).found(0.8) == pytest.approx(0.677, abs=0.001)


# -- recall on documents with known similarities -----------------------------------------------------------------------


def gold(name: str) -> list[dict[str, Any]]:
    path = DATA / "dedup" / f"{name}.jsonl.zst"
    if not path.exists():
        pytest.skip("the documents with known duplicates are not there")
    content = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    return [json.loads(line) for line in content.splitlines()]


@pytest.mark.parametrize(("mode", "measure"), [("nemo", "char24"), ("datatrove", "word5")])
def test_recall_is_what_the_bands_promise(tmp_path: Path, mode: str, measure: str) -> None:
    documents = gold("docs")
    corpus = write_corpus(tmp_path / "in", documents, files=3)
    workflow = FuzzyDeduplicationWorkflow(str(corpus), str(tmp_path / "out"), mode=mode, input_blocksize="4MB")
    result = workflow.run("serial", progress="none")
    cluster = {documents[row["row"]]["id"]: row["cluster"] for row in clusters(result.run)}
    banding = Banding(20, 13) if mode == "nemo" else Banding(14, 8)
    for at_least, promised in ((0.9, 0.995), (0.8, None)):
        pairs = [pair for pair in gold("pairs") if pair[measure] >= at_least]
        found = sum(pair["a"] in cluster and cluster[pair["a"]] == cluster.get(pair["b"]) for pair in pairs)
        expected = sum(banding.found(pair[measure]) for pair in pairs) / len(pairs)
        assert found / len(pairs) >= (promised or expected - 0.01)


@pytest.mark.parametrize("arguments", [{"mode": "nemo", "verify": 0.8}, {"threshold": 0.8, "verify": True}])
def test_with_verification_nothing_is_dropped_that_is_less_similar(tmp_path: Path, arguments: dict[str, Any]) -> None:
    documents, pairs = gold("docs"), gold("pairs")
    corpus = write_corpus(tmp_path / "in", documents, files=3)
    workflow = FuzzyDeduplicationWorkflow(str(corpus), str(tmp_path / "out"), input_blocksize="4MB", **arguments)
    rows = clusters(workflow.run("serial", progress="none").run)
    names = {row["id"]: documents[row["row"]]["id"] for row in rows}
    known = {frozenset((pair["a"], pair["b"])): pair["char24"] for pair in pairs}
    dropped = {names[row["id"]]: names[row["kept_id"]] for row in rows if not row["kept"]}
    similarities = [known.get(frozenset(pair), 0) for pair in dropped.items()]
    assert min(similarities) >= 0.8, "precision is 1"
    banding = FuzzyDeduplication(**arguments).banding
    for at_least, promised in ((0.9, 0.995), (0.8, None)):
        wanted = [pair for pair in pairs if pair["char24"] >= at_least]
        found = sum(pair["a"] in dropped or pair["b"] in dropped for pair in wanted)
        expected = sum(banding.found(pair["char24"]) for pair in wanted) / len(wanted)
        assert found / len(wanted) >= (promised or expected - 0.01)


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_run_folder_may_be_elsewhere(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "in", [{"n": n, "text": "the same words again and again"} for n in range(3)])
    workflow = FuzzyDeduplicationWorkflow(
        input_path=str(corpus),
        cache_path=str(tmp_path / "cache"),
        output_path=str(tmp_path / "out"),
        text_field="text",
        perform_removal=True,
        num_bands=20,
        minhashes_per_band=13,
        char_ngrams=24,
        seed=42,
    )
    found = workflow.run(executor="serial", progress="none")
    assert found.counts["written"] == 1
    assert found.clusters["path"] == str(tmp_path / "cache" / "clusters.parquet")
    assert found.timings["wall_s"] > 0


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_corpus(tmp_path / "in", [{"text": text} for text in (*LONG, LONG[0])])
    arguments = ["dedup", "fuzzy", str(corpus), str(tmp_path / "out"), "threshold=0.8", "--executor", "serial"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["dropped"] == 1
    assert main(["audit", str(tmp_path / "out")]) == 0
