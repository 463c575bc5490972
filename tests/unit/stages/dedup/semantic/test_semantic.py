# SPDX-License-Identifier: Apache-2.0
"""Of documents with close vectors one is kept: what the plain definition says, however the input is divided."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.stages.dedup.runs import clusters, run_over, write_corpus, written
from thresher import LocalExecutor, SemanticDeduplication, processing_stage
from thresher.cli.main import main
from thresher.errors import RunFailedError, TooManyErrorsError, UsageError
from thresher.stages.dedup.semantic.vectors import rounded, similarities
from thresher.workflows import SemanticDeduplicationWorkflow, TextSemanticDeduplicationWorkflow


def documents(seed: int, count: int = 240, dimensions: int = 12) -> list[dict[str, Any]]:
    """Documents whose vectors form groups of close ones, some of them equal."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(count // 4, dimensions))
    noise = random.choice([0, 0.02, 0.1], size=(count, 1)) * random.normal(size=(count, dimensions))
    vectors = centres[random.integers(0, len(centres), count)] + noise
    return [{"n": n, "text": "x" * (n % 7), "embeddings": row} for n, row in enumerate(vectors.tolist())]


def expected(given: list[dict[str, Any]], eps: float, order: list[int]) -> list[int]:
    """The definition, for one cluster: each is kept that is not similar to one that was kept before."""
    vectors = rounded(np.array([one["embeddings"] for one in given]))
    cosines = similarities(vectors, vectors)
    kept: list[int] = []
    for one in order:
        if not any(cosines[one, other] >= 1 - eps for other in kept):
            kept.append(one)
    return sorted(kept)


@pytest.mark.parametrize("blocksize", ["64MB", 9_000])
def test_of_similar_documents_the_first_is_kept(tmp_path: Path, blocksize: int | str) -> None:
    given = documents(1)
    stage = SemanticDeduplication(n_clusters=1, eps=0.02, which_to_keep="first")
    result = run_over(given, tmp_path, stage, blocksize=blocksize)
    wanted = expected(given, 0.02, list(range(len(given))))
    assert written(result) == [given[n] for n in wanted]
    assert 0.2 < len(wanted) / len(given) < 0.9, "a quarter of the documents have a centre of their own"
    assert result.drop_reasons == {"SemanticDeduplication/duplicate": len(given) - len(wanted)}


def test_the_longest_is_kept(tmp_path: Path) -> None:
    given = documents(2)
    result = run_over(given, tmp_path, SemanticDeduplication(n_clusters=1, which_to_keep="longest"))
    order = sorted(range(len(given)), key=lambda n: (-len(given[n]["text"]), n))
    assert [one["n"] for one in written(result)] == expected(given, 0.01, order)


@pytest.mark.parametrize("which", ["hard", "easy", "random"])
def test_the_result_does_not_depend_on_how_the_input_is_divided(tmp_path: Path, which: Any) -> None:
    given = documents(3)
    found = []
    for number, blocksize in enumerate(("64MB", 5_000, 21_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        stage = SemanticDeduplication(n_clusters=7, which_to_keep=which)
        result = run_over(given, folder, stage, blocksize=blocksize)
        found.append(([one["n"] for one in written(result)], clusters(result)))
    assert found[0] == found[1] == found[2]
    assert 0.2 < len(found[0][0]) / len(given) < 0.9


def test_the_file_of_clusters_has_the_document_that_is_kept_and_the_similarity(tmp_path: Path) -> None:
    given = documents(4)
    result = run_over(given, tmp_path, SemanticDeduplication(n_clusters=5, eps=0.02))
    rows = clusters(result)
    assert [row["row"] for row in rows] == sorted(row["row"] for row in rows)
    by_id = {row["id"]: row for row in rows}
    dropped = set(range(len(given))) - {one["n"] for one in written(result)}
    assert {row["row"] for row in rows if not row["kept"]} == dropped
    vectors = rounded(np.array([one["embeddings"] for one in given]))
    for row in rows:
        kept = by_id[row["kept_id"]]
        assert kept["kept"]
        assert (kept["cluster"], kept["size"]) == (row["cluster"], row["size"])
        assert by_id[row["cluster"]]["row"] == min(one["row"] for one in rows if one["cluster"] == row["cluster"])
        pair = vectors[[row["row"], kept["row"]]]
        assert row["similarity"] == pytest.approx(similarities(pair, pair)[0, 1])
        assert row["similarity"] >= 0.98 - 1e-6
        assert row["size"] == sum(one["kept_id"] == row["kept_id"] for one in rows) > 1


def test_a_corpus_of_the_same_vector(tmp_path: Path) -> None:
    given = [{"n": n, "embeddings": [1, 2, 3]} for n in range(3_000)]
    result = run_over(given, tmp_path, SemanticDeduplication(eps=0), blocksize=20_000)
    assert written(result) == given[:1]
    assert {row["similarity"] for row in clusters(result)} == {1.0}


def test_vectors_of_zeros_are_like_no_other(tmp_path: Path) -> None:
    given = [{"n": n, "embeddings": [0, 0] if n % 2 else [1, n // 6]} for n in range(20)]
    found = [one["n"] for one in written(run_over(given, tmp_path, SemanticDeduplication(n_clusters=3)))]
    assert [n for n in found if n % 2] == [n for n in range(20) if n % 2]
    assert [n for n in found if not n % 2] == [0, 6, 12, 18]


@pytest.mark.parametrize(
    "given",
    [
        [],
        [{"embeddings": [0.0, 0.0]}],
        [{"embeddings": [1.0, 0.0]}],
        [{"embeddings": [1e300, 1]}, {"embeddings": [1, 1e-300]}][:1],
    ],
)
def test_nothing_to_compare(tmp_path: Path, given: list[dict[str, Any]]) -> None:
    assert written(run_over(given, tmp_path, SemanticDeduplication())) == given


def test_fewer_documents_than_clusters(tmp_path: Path) -> None:
    given = [{"n": n, "embeddings": vector} for n, vector in enumerate([[1, 0], [0, 1], [1, 0], [-1, 0]])]
    found = written(run_over(given, tmp_path, SemanticDeduplication(n_clusters=1000)))
    assert [one["n"] for one in found] == [0, 1, 3]


def test_documents_without_a_vector_are_quarantined(tmp_path: Path) -> None:
    wrong = [None, "text", [], [1, "a"], [[1], [2]], [1, [2]], 5, [True, False], [1, 2, 3], [1, None]]
    given = [
        {"n": 0, "embeddings": [1, 0]},
        *({"n": n, "embeddings": one} for n, one in enumerate(wrong, 1)),
        {"n": 99},
    ]
    result = run_over(given, tmp_path, SemanticDeduplication(embedding_dim=2), max_errors="100%")
    assert [one["n"] for one in written(result)] == [0]
    assert result.counts["quarantined"] == len(given) - 1


def test_nan_and_infinity_in_parquet_are_quarantined(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    rows = [[1.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0, 0.0], [0.0, 1.0]]
    pq.write_table(
        pa.table({"n": range(5), "embeddings": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "in" / "a.parquet"
    )
    workflow = SemanticDeduplicationWorkflow(str(tmp_path / "in"), str(tmp_path / "out"), n_clusters=2)
    result = workflow.run("serial", progress="none", max_errors="100%")
    assert pq.read_table(tmp_path / "out")["n"].to_pylist() == [0, 4]
    assert result.counts["quarantined"] == 2
    assert result.clusters["duplicates"] == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    given = [{"text": "a"}] * 50
    with pytest.raises(TooManyErrorsError, match="embeddings"):
        run_over(given, tmp_path, SemanticDeduplication())


@pytest.mark.parametrize("blocksize", ["64MB", 60])
def test_vectors_of_different_lengths_are_refused(tmp_path: Path, blocksize: int | str) -> None:
    given = [{"embeddings": [1.0, 2.0]}, {"embeddings": [1.0, 2.0, 3.0]}]
    with pytest.raises(RunFailedError, match=r"vectors of 2 and of 3 numbers.*embedding_dim"):
        run_over(given, tmp_path, SemanticDeduplication(), blocksize=blocksize)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_clusters": 0},
        {"eps": 1},
        {"eps": float("nan")},
        {"eps": "0.1"},
        {"which_to_keep": "best"},
        {"which_to_keep": "worst"},
        {"keep_by": "n"},
        {"embedder": "word2vec"},
        {"embedding_field": ""},
        {"max_iter": 0},
        {"random_state": -1},
        {"action": "keep"},
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="SemanticDeduplication"):
        SemanticDeduplication(**arguments)


TEXTS = [
    "The cat sat on the mat in the warm kitchen.",
    "Parliament passed the new budget after a long debate.",
    "the cat sat on the mat, in the warm kitchen!",
    "A recipe for bread needs flour, water, salt and yeast.",
]


@pytest.mark.skipif(find_spec("wordllama") is None, reason="needs the package wordllama")
def test_texts_are_embedded_and_written_as_they_came(tmp_path: Path) -> None:
    given = [{"n": n, "text": text} for n, text in enumerate(TEXTS)]
    corpus = str(write_corpus(tmp_path / "in", given, files=2))
    workflow = TextSemanticDeduplicationWorkflow(
        corpus, str(tmp_path / "out"), n_clusters=1, eps=0.2, which_to_keep="first"
    )
    result = workflow.run(LocalExecutor(workers=2), progress="none")
    assert written(result.run) == [given[0], given[1], given[3]]
    assert result.clusters["clusters"] == 1


@processing_stage(name="letters")
def letters(batch: Any) -> Any:
    rows = [[float(text.lower().count(letter)) for letter in "abcdefghij"] for text in batch.values("text")]
    return batch.replace("embeddings", rows)


def test_a_stage_may_add_the_vectors(tmp_path: Path) -> None:
    given = [{"n": n, "text": text} for n, text in enumerate(TEXTS)]
    corpus = str(write_corpus(tmp_path / "in", given))
    workflow = TextSemanticDeduplicationWorkflow(
        corpus, str(tmp_path / "out"), embedder=letters, n_clusters=1, which_to_keep="first"
    )
    found = written(workflow.run("serial", progress="none").run)
    assert [one["n"] for one in found] == [0, 1, 3]


def test_lists_and_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = documents(6)
    corpus = str(write_corpus(tmp_path / "in", given, files=3))
    command = ["dedup", "semantic", corpus, str(tmp_path / "out"), "n_clusters=6", "eps=0.02"]
    assert main([*command, "--executor", "serial", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert main(["dedup", "show", str(tmp_path / "out"), "text_field=n"]) == 0
    workflow = SemanticDeduplicationWorkflow(
        corpus, str(tmp_path / "list"), n_clusters=6, eps=0.02, perform_removal=False, output_filetype="jsonl"
    )
    listed = written(workflow.run("serial", progress="none").run)
    assert sum(not row["kept"] for row in listed) == counts["dropped"]
