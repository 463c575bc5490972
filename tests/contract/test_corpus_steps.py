# SPDX-License-Identifier: Apache-2.0
"""Steps over a whole corpus that are made of phases and outlets: blending, joining, packing, statistics."""

from __future__ import annotations

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    Blend,
    BloomDeduplication,
    BucketSample,
    Copy,
    CorpusStatistics,
    ExactDeduplication,
    FuzzyDeduplication,
    GlobalShuffle,
    GlobalSort,
    GroupBy,
    Join,
    JsonlReader,
    JsonlWriter,
    LineDeduplication,
    NGramCounts,
    PackSequences,
    ParquetReader,
    ParquetWriter,
    PercentileRange,
    PercentileRank,
    Pipeline,
    QualityBuckets,
    RunResult,
    ScoreEnsemble,
    SemanticDeduplication,
    SerialExecutor,
    StratifiedSample,
    SubstringDeduplication,
)
from thresher.errors import UsageError
from thresher.observe.summary import report_text

FILES, ROWS = 4, 250
ALL = FILES * ROWS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(FILES):
        rows = range(file * ROWS, (file + 1) * ROWS)
        lines = [
            json.dumps(
                {
                    "n": n,
                    "text": "word " * (1 + n % 10),
                    "source": ("web", "books", "code")[n % 3],
                    "url": f"https://www.site{n % 5}.org/page/{n}",
                    "words": 1 + n % 10,
                    "vector": [n % 7, n % 11, n % 5 + 1],
                }
            )
            for n in rows
        ]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def run(corpus: Path, out: Path, *stages: Any, executor: Any = None) -> RunResult:
    reader = JsonlReader(str(corpus), blocksize=8_000)
    pipeline = Pipeline("steps", stages=[reader, *stages, JsonlWriter(str(out))])
    return pipeline.run(executor or SerialExecutor(), progress="none")


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


STEPS: dict[str, Callable[[], list[Any]]] = {
    "blend": lambda: [Blend("source", {"web": 0.5, "code": 2.5}), GlobalShuffle(blocksize=8_000)],
    "join": lambda: [Join("words", blocksize=8_000)],
    "pack": lambda: [
        PackSequences(25, "words"),
        PackSequences(7, tokens_field="vector"),
        PackSequences(20, tokens_field="vector", strategy="best-fit", pad_id=0, window=3),
    ],
    "statistics": lambda: [CorpusStatistics(["source", "domain"])],
    "samples": lambda: [
        StratifiedSample("source", number=200, blocksize=8_000),
        BucketSample("n", quantiles=[0.3], shares=[0.5, 0.9], blocksize=8_000),
        PercentileRange("n", 10, 90, blocksize=8_000),
    ],
    "quality": lambda: [
        PercentileRank("words", levels=5, blocksize=8_000),
        ScoreEnsemble({"words_percentile": 1, "n": 2}, ranges={"words_percentile": [0, 4], "n": [0, ALL]}),
        QualityBuckets([0.3, 0.7]),
    ],
    "n-grams": lambda: [NGramCounts(2, blocksize=8_000)],
    "fuzzy": lambda: [FuzzyDeduplication(word_ngrams=2)],
    "verified": lambda: [FuzzyDeduplication(word_ngrams=2, threshold=0.7, verify=True)],
    "substring": lambda: [SubstringDeduplication(24, blocksize=4000)],
    "semantic": lambda: [SemanticDeduplication(3, 0.001, embedding_field="vector")],
    "lines": lambda: [LineDeduplication("sentence", min_length=5, span=2, blocksize=500)],
    "bloom": lambda: [BloomDeduplication(0.01)],
    "exact": lambda: [ExactDeduplication(keep="best", keep_by="n")],
}


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jsonl")}


@pytest.fixture(scope="module")
def expected(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Run a step serially, once, and give its files."""

    @functools.cache
    def files_of(step: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("expected")
        run(corpus, folder, *STEPS[step]())
        return digests(folder)

    return files_of


@pytest.mark.parametrize("step", STEPS)
def test_every_step_gives_the_same_files_wherever_it_runs(
    executor: Any, corpus: Path, tmp_path: Path, step: str, expected: Callable[[str], dict[str, str]]
) -> None:
    run(corpus, tmp_path / "out", *STEPS[step](), executor=executor)
    assert digests(tmp_path / "out") == expected(step)


CHARTED: dict[str, Callable[[], Any]] = {
    "documents by percent of the random order, from": lambda: GlobalShuffle(),
    "documents by source": lambda: Blend("source", {"web": 0.5}),
    "documents by n, from": lambda: GlobalSort("n"),
    "groups by documents, from": lambda: GroupBy("source"),
    "joined documents by documents of a key, from": lambda: Join("words"),
    "sequences by percent full, from": lambda: PackSequences(25, "words"),
    "documents by characters, from": lambda: CorpusStatistics(),
    "most frequent n-grams": lambda: NGramCounts(2),
}


@pytest.mark.parametrize("chart", CHARTED)
def test_every_step_has_a_picture_in_the_report(corpus: Path, tmp_path: Path, chart: str) -> None:
    result = run(corpus, tmp_path / "out", CHARTED[chart]())
    charts = {name: bars for stage in result.to_dict()["stages"] for name, bars in stage.get("charts", {}).items()}
    assert sum(bar["n"] for bar in charts[chart]) > 0
    assert any(line.endswith(f": {chart}") for line in report_text(result.to_dict()).splitlines())


# -- blending ----------------------------------------------------------------------------------------------------------


def test_a_blend_repeats_and_leaves_out_documents_by_weight(corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", Blend("source", {"web": 0.5, "books": 0, "code": 2.5}))
    found = documents(tmp_path / "out")
    times = Counter(document["n"] for document in found)
    of = {source: [times[n] for n in range(ALL) if n % 3 == k] for k, source in enumerate(("web", "books", "code"))}
    assert set(of["web"]) == {0, 1}
    assert 0.4 < sum(of["web"]) / len(of["web"]) < 0.6
    assert set(of["books"]) == {0}
    assert set(of["code"]) == {2, 3}
    assert 2.4 < sum(of["code"]) / len(of["code"]) < 2.6
    assert result.counts["created"] == sum(n - 1 for n in of["code"])
    assert result.drop_reasons == {"Blend/weight": result.counts["dropped"]}


def test_copies_have_ids_of_their_own(corpus: Path, tmp_path: Path) -> None:
    from thresher import AddId

    run(corpus, tmp_path / "out", Blend("source", {}, other=3), AddId("id"))
    ids = [document["id"] for document in documents(tmp_path / "out")]
    assert len(set(ids)) == len(ids) == 3 * ALL


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), "2", True])
def test_a_weight_is_a_number(weight: Any) -> None:
    with pytest.raises(UsageError, match=r"Blend\.weights"):
        Blend("source", {"web": weight})


# -- joining -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_sets(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = [json.dumps({"id": n, "text": f"text {n}"}) for n in range(300)]
    labels = [json.dumps({"id": n, "label": n % 2, "text": "never"}) for n in reversed(range(200, 500))]
    (folder / "a-texts.jsonl").write_text("\n".join(texts) + "\n")
    (folder / "b-labels.jsonl").write_text("\n".join(labels) + '\n{"label": 7}\n{"label": 8}\n')
    return folder


def test_a_join_adds_the_fields_of_the_second_set_to_the_first(two_sets: Path, tmp_path: Path) -> None:
    result = run(two_sets, tmp_path / "out", Join("id", blocksize=3_000))
    found = {document.get("id"): document for document in documents(tmp_path / "out") if "id" in document}
    assert found[250] == {"id": 250, "text": "text 250", "label": 0}
    assert found[100] == {"id": 100, "text": "text 100"}
    assert found[450] == {"id": 450, "label": 0, "text": "never"}
    assert result.counts["merged"] == 100
    assert [d["label"] for d in documents(tmp_path / "out") if "id" not in d] == [7, 8], "they have no key to share"


def test_a_join_can_keep_what_has_a_partner_alone(two_sets: Path, tmp_path: Path) -> None:
    result = run(two_sets, tmp_path / "out", Join("id", require=["id", "label"], blocksize=3_000))
    assert {document["id"] for document in documents(tmp_path / "out")} == set(range(200, 500))
    assert result.drop_reasons == {"Join-neighbours/incomplete": 202}


# -- packing -----------------------------------------------------------------------------------------------------------


def test_sequences_are_full_and_no_longer_than_allowed(corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", PackSequences(25, "words", separator=" "))
    found = documents(tmp_path / "out")
    assert all(document["words"] <= 25 for document in found)
    assert sum(document["documents"] for document in found) == ALL
    assert sum(len(document["text"].split()) for document in found) == sum(1 + n % 10 for n in range(ALL))
    assert result.counts["merged"] == ALL - len(found)
    assert [document["n"] for document in found] == sorted(document["n"] for document in found)


def test_sequences_of_characters_count_separators(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", PackSequences(120, separator="<|end|>"))
    lengths = [len(document["text"]) for document in documents(tmp_path / "out")]
    assert max(lengths) <= 120
    assert sum(lengths) / len(lengths) > 90


def test_a_document_that_is_too_long_is_a_sequence_of_its_own(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", PackSequences(5, "words"))
    found = documents(tmp_path / "out")
    assert all(document["documents"] == 1 for document in found if document["words"] > 5)
    assert max(document["words"] for document in found) == 10


def test_a_document_without_a_length_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [{"text": "a", "tokens": 1}, {"text": "b"}, {"text": None, "tokens": 1}, {"text": "c", "tokens": 1}]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = run(tmp_path / "in", tmp_path / "out", PackSequences(10, "tokens", separator="|"))
    assert result.counts["quarantined"] == 2
    assert [document["text"] for document in documents(tmp_path / "out")] == ["a|c"]


def test_packing_works_on_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": ["a", "b", "c"], "tokens": [4, 4, 4]}), tmp_path / "in" / "a.parquet")
    stages = [ParquetReader(str(tmp_path / "in")), PackSequences(9, "tokens"), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("packed", stages=stages).run(SerialExecutor(), progress="none")
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert [(row["text"], row["tokens"], row["documents"]) for row in found] == [("a\n\nb", 9, 2), ("c", 4, 1)]


# -- statistics --------------------------------------------------------------------------------------------------------


def test_statistics_count_every_document_by_each_column(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", CorpusStatistics(["source", "domain"], top=3))
    rows = documents(tmp_path / "out")
    (whole,) = [row for row in rows if row["by"] == "all"]
    assert (whole["documents"], whole["words"]) == (ALL, sum(1 + n % 10 for n in range(ALL)))
    assert sum(whole["lengths"].values()) == ALL
    sources = {row["value"]: row["documents"] for row in rows if row["by"] == "source"}
    assert sources == {"web": 334, "books": 333, "code": 333}
    domains = [row for row in rows if row["by"] == "domain"]
    assert [(row["value"], row["values"], row["documents"]) for row in domains] == [
        ("site0.org", 1, 200),
        ("site1.org", 1, 200),
        ("site2.org", 1, 200),
        (None, 2, 400),
    ]


def test_copies_go_to_an_outlet_while_the_documents_go_on(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(
        "both", stages=[JsonlReader(str(corpus)), Copy("statistics"), JsonlWriter(str(tmp_path / "main"))]
    )
    pipeline.outlet("statistics").add_stage(CorpusStatistics("source"))
    pipeline.outlet("statistics").add_stage(JsonlWriter(str(tmp_path / "statistics")))
    result = pipeline.run(SerialExecutor(), progress="none")
    assert (result.counts["written"], result.counts["created"], result.counts["sent"]) == (ALL, ALL, ALL)
    assert len(documents(tmp_path / "statistics")) == 4
