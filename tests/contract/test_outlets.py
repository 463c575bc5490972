# SPDX-License-Identifier: Apache-2.0
"""Outlets: a pipeline with several writers gives the same files on every executor, and no document is lost between
them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.item_records import ItemBatch, ItemReader, ItemWriter, encode_item
from thresher import (
    DocumentBatch,
    GlobalShuffle,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    Route,
    RunResult,
    SamplerFilter,
    SerialExecutor,
    Split,
    TopK,
    WordCountFilter,
    load_recipe,
)
from thresher.errors import OutputRefusedError, PlanError, RecipeError, RunFailedError, UsageError

FILES, ROWS = 4, 250
ALL = FILES * ROWS


class SendMultiples(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Sends every document whose number is a multiple of `of` to an outlet."""

    def __init__(self, outlet: str, of: int) -> None:
        self.outlet, self.of = outlet, of

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.to(self.outlet, [row for row, n in enumerate(task.values("n")) if n % self.of == 0])


class FailOnSeventeen(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises for the document with the number 17."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if 17 in task.values("n"):
            raise ValueError("seventeen")
        return task


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for file in range(FILES):
        rows = range(file * ROWS, (file + 1) * ROWS)
        lines = [json.dumps({"n": n, "text": "word " * (1 + n % 10), "lang": ["de", "en", "fr"][n % 3]}) for n in rows]
        (folder / f"{file}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def branched(corpus: Path, out: Path) -> Pipeline:
    """Two stages send to one outlet, what a filter drops goes to another, and one continues in two phases."""
    pipeline = Pipeline(
        "branched",
        stages=[
            JsonlReader(str(corpus), blocksize=4_000),
            SendMultiples("odd", 7),
            Route("lang", {"fr": "french"}),
            SendMultiples("odd", 11),
            SamplerFilter(0.8).with_(drops_to="odd"),
            WordCountFilter(min_words=4),
            JsonlWriter(str(out / "main")),
        ],
    )
    pipeline.outlet("odd").add_stage(WordCountFilter(min_words=2)).add_stage(JsonlWriter(str(out / "odd")))
    pipeline.outlet("french").add_stage(GlobalShuffle(3, blocksize=2_000)).add_stage(JsonlWriter(str(out / "french")))
    pipeline.outlet("dropped").add_stage(JsonlWriter(str(out / "dropped")))
    return pipeline


def documents(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def numbers(folder: Path) -> list[int]:
    return [document["n"] for document in documents(folder)]


def digests(out: Path) -> dict[str, str]:
    found = sorted(path for path in out.glob("*/*.jsonl"))
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def test_a_pipeline_with_outlets_gives_the_same_files_on_every_executor(
    every_executor: Any, corpus: Path, tmp_path: Path
) -> None:
    branched(corpus, tmp_path / "expected").run(SerialExecutor(), progress="none")
    result = branched(corpus, tmp_path / "out").run(every_executor, progress="none")
    assert digests(tmp_path / "out") == digests(tmp_path / "expected")
    assert result.counts["read"] == ALL


def test_every_document_is_in_one_branch(corpus: Path, tmp_path: Path) -> None:
    result = branched(corpus, tmp_path).run(SerialExecutor(), progress="none")
    counts = {name: outlet.counts for name, outlet in result.outlets.items()}
    assert result.counts["sent"] == counts["odd"]["read"] + counts["french"]["read"]
    assert result.counts["dropped"] == counts["dropped"]["read"] == counts["dropped"]["written"]
    dropped_there = ALL - sum(
        [result.counts["written"], *(counts[name]["written"] for name in ("odd", "french", "dropped"))]
    )
    assert dropped_there == counts["odd"]["dropped"] > 0
    everywhere = [n for name in ("main", "odd", "french", "dropped") for n in numbers(tmp_path / name)]
    assert len(set(everywhere)) == len(everywhere) == ALL - dropped_there


def test_documents_of_an_outlet_come_in_input_order_whichever_stage_sent_them(corpus: Path, tmp_path: Path) -> None:
    branched(corpus, tmp_path).run(SerialExecutor(), progress="none")
    found = numbers(tmp_path / "odd")
    assert found == sorted(found)
    assert {7, 14, 22} <= set(found)


def test_what_a_stage_drops_goes_to_its_outlet_with_all_columns(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(
        "short",
        stages=[
            JsonlReader(str(corpus)),
            WordCountFilter(min_words=4),
            WordCountFilter(min_words=8),
            JsonlWriter(str(tmp_path / "long"), fields=["text"]),
        ],
    )
    pipeline.stages[0:2] = [pipeline.stages[0], pipeline.stages[1].with_(drops_to="short")]
    pipeline.outlet("short").add_stage(JsonlWriter(str(tmp_path / "short")))
    result = pipeline.run(SerialExecutor(), progress="none")
    assert result.drop_reasons == {"WordCountFilter-2/WordCountFilter": 4 * ALL // 10}
    assert result.counts["sent"] == 3 * ALL // 10
    assert sorted(numbers(tmp_path / "short")) == [n for n in range(ALL) if n % 10 < 3]
    assert {"n", "text", "lang"} == set(documents(tmp_path / "short")[0])
    assert set(documents(tmp_path / "long")[0]) == {"text"}


def test_the_rest_of_a_top_k_can_go_to_an_outlet(corpus: Path, tmp_path: Path) -> None:
    best = TopK("n", k=10).with_(drops_to="rest")
    pipeline = Pipeline("best", stages=[JsonlReader(str(corpus)), best, JsonlWriter(str(tmp_path / "best"))])
    pipeline.outlet("rest").add_stage(JsonlWriter(str(tmp_path / "rest")))
    pipeline.run(SerialExecutor(), progress="none")
    assert sorted(numbers(tmp_path / "best")) == list(range(ALL - 10, ALL))
    assert sorted(numbers(tmp_path / "rest")) == list(range(ALL - 10))


def test_a_split_keeps_documents_of_one_key_together_and_every_run_draws_the_same(corpus: Path, tmp_path: Path) -> None:
    sides = []
    for folder, blocksize in (("a", 2_000), ("b", "1MB")):
        out = tmp_path / folder
        split = Split("validation", share=0.3, by="text", seed=1)
        pipeline = Pipeline(
            "split", stages=[JsonlReader(str(corpus), blocksize=blocksize), split, JsonlWriter(str(out / "train"))]
        )
        pipeline.outlet("validation").add_stage(JsonlWriter(str(out / "validation")))
        pipeline.run(SerialExecutor(), progress="none")
        texts = [{document["text"] for document in documents(out / side)} for side in ("train", "validation")]
        assert not texts[0] & texts[1]
        assert texts[1], "ten texts, so three of them on average"
        sides.append(sorted(numbers(out / "validation")))
    assert sides[0] == sides[1]


def test_a_share_of_documents_is_about_what_was_asked_for(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(
        "split", stages=[JsonlReader(str(corpus)), Split("validation", 0.2), JsonlWriter(str(tmp_path / "train"))]
    )
    pipeline.outlet("validation").add_stage(JsonlWriter(str(tmp_path / "validation")))
    result = pipeline.run(SerialExecutor(), progress="none")
    assert 0.15 * ALL < result.counts["sent"] < 0.25 * ALL


def test_values_of_parquet_keep_their_types_on_the_way_through_an_outlet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    moments = pa.array(range(20), pa.timestamp("us"))
    table = pa.table({"n": list(range(20)), "at": moments, "raw": [bytes([n]) for n in range(20)]})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet")
    pipeline = Pipeline(
        "typed",
        stages=[ParquetReader(str(tmp_path / "in")), SendMultiples("even", 2), ParquetWriter(str(tmp_path / "main"))],
    )
    pipeline.outlet("even").add_stage(ParquetWriter(str(tmp_path / "even")))
    pipeline.run(SerialExecutor(), progress="none")
    assert pq.read_table(tmp_path / "even").equals(table.take(list(range(0, 20, 2))))


def test_quarantined_records_and_scores_can_be_continued(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(
        "kept",
        stages=[
            JsonlReader(str(corpus)),
            FailOnSeventeen(),
            WordCountFilter(min_words=4),
            JsonlWriter(str(tmp_path / "main")),
        ],
    )
    pipeline.outlet("quarantined").add_stage(JsonlWriter(str(tmp_path / "quarantined")))
    pipeline.outlet("scores").add_stage(JsonlWriter(str(tmp_path / "scores")))
    result = pipeline.run(SerialExecutor(), progress="none")
    assert result.counts["quarantined"] == 1
    (entry,) = documents(tmp_path / "quarantined")
    assert (entry["stage"], entry["error"], json.loads(entry["record"])["n"]) == ("FailOnSeventeen", "ValueError", 17)
    assert len(documents(tmp_path / "scores")) == ALL - 1


def test_scores_of_a_pipeline_with_phases_are_refused_when_it_is_planned(corpus: Path, tmp_path: Path) -> None:
    stages = [JsonlReader(str(corpus)), WordCountFilter(min_words=4), GlobalShuffle(), JsonlWriter(str(tmp_path / "a"))]
    pipeline = Pipeline("kept", stages=stages)
    pipeline.outlet("scores").add_stage(JsonlWriter(str(tmp_path / "scores")))
    with pytest.raises(PlanError, match="leave keep_scores and the outlet scores out, or put GlobalShuffle into"):
        SerialExecutor().plan(pipeline)


def test_an_outlet_may_have_outlets(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline(
        "nested", stages=[JsonlReader(str(corpus)), SendMultiples("even", 2), JsonlWriter(str(tmp_path / "odd"))]
    )
    even = pipeline.outlet("even").add_stage(SendMultiples("sixth", 3)).add_stage(JsonlWriter(str(tmp_path / "even")))
    even.outlet("sixth").add_stage(JsonlWriter(str(tmp_path / "sixth")))
    result = pipeline.run(LocalExecutor(workers=1), progress="none")
    assert sorted(numbers(tmp_path / "sixth")) == list(range(0, ALL, 6))
    assert result.outlets["even"].outlets["sixth"].counts["written"] == len(range(0, ALL, 6))


# -- mistakes ----------------------------------------------------------------------------------------------------------


def simple(corpus: Path, out: Path, stage: Any) -> Pipeline:
    pipeline = Pipeline("simple", stages=[JsonlReader(str(corpus)), stage, JsonlWriter(str(out / "main"))])
    pipeline.outlet("short").add_stage(JsonlWriter(str(out / "short")))
    return pipeline


def test_an_unknown_outlet_is_refused_before_the_run_where_the_plan_knows_it(corpus: Path, tmp_path: Path) -> None:
    filter_stage = Pipeline("x", stages=[WordCountFilter()]).stages[0].with_(drops_to="shrt")
    with pytest.raises(PlanError, match=r"'shrt', which the pipeline does not have\. Did you mean 'short'"):
        simple(corpus, tmp_path, filter_stage).run(SerialExecutor(), progress="none")
    assert not (tmp_path / "main").exists()


def test_an_unknown_outlet_ends_the_run_where_a_stage_names_it(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="SendMultiples sends documents to the outlet 'shrt'"):
        simple(corpus, tmp_path, SendMultiples("shrt", 2)).run(SerialExecutor(), progress="none")


def test_no_stage_can_send_to_an_outlet_of_the_framework(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="the outlet 'dropped', which is for records that rules dropped"):
        simple(corpus, tmp_path, SendMultiples("dropped", 2)).run(SerialExecutor(), progress="none")


def test_an_outlet_needs_a_writer_and_so_does_the_pipeline(corpus: Path, tmp_path: Path) -> None:
    pipeline = Pipeline("x", stages=[JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "main"))])
    pipeline.outlet("short").add_stage(WordCountFilter())
    with pytest.raises(PlanError, match="the outlet short has no writer"):
        pipeline.run(SerialExecutor(), progress="none")
    pipeline = Pipeline("x", stages=[JsonlReader(str(corpus))])
    pipeline.outlet("short").add_stage(JsonlWriter(str(tmp_path / "short")))
    with pytest.raises(PlanError, match="a pipeline with outlets needs a writer"):
        pipeline.run(SerialExecutor(), progress="none")
    with pytest.raises(PlanError, match="outlets need a run folder"):
        simple(corpus, tmp_path, WordCountFilter()).run(SerialExecutor(), progress="none", ledger=False)
    assert not list(tmp_path.iterdir())


def test_folders_that_hold_other_files_are_refused_before_anything_runs(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / "mine.jsonl").write_text("{}\n")
    with pytest.raises(OutputRefusedError, match=r"mine\.jsonl"):
        simple(corpus, tmp_path, SendMultiples("short", 2)).run(SerialExecutor(), progress="none")
    assert not (tmp_path / "main").exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("main", r"the output .* is the output of the outlet short; choose a path outside it"),
        ("main/short", r"the output of the outlet short .* lies inside the output; choose a path outside it"),
    ],
)
def test_outputs_inside_each_other_are_refused(corpus: Path, tmp_path: Path, place: str, message: str) -> None:
    pipeline = Pipeline("x", stages=[JsonlReader(str(corpus)), JsonlWriter(str(tmp_path / "main"))])
    pipeline.outlet("short").add_stage(JsonlWriter(str(tmp_path / place)))
    with pytest.raises(PlanError, match=message):
        pipeline.run(SerialExecutor(), progress="none")


def test_a_name_of_an_outlet_has_no_odd_characters() -> None:
    with pytest.raises(UsageError, match="'a/b' is not a name"):
        Pipeline("x").outlet("a/b")


class DropWide(ProcessingStage[ItemBatch, ItemBatch]):
    """Drops items."""

    def process(self, task: ItemBatch) -> ItemBatch:
        return task.drop([row for row, width in enumerate(task.columns["width"]) if width > 3], "wide")


@pytest.mark.parametrize("drops_to", ["wide", None])
def test_outlets_for_other_records_than_documents_are_refused_before_the_run(
    tmp_path: Path, drops_to: str | None
) -> None:
    (tmp_path / "0.items").write_bytes(encode_item({"width": 7}, b"payload"))
    stage = DropWide().with_(drops_to=drops_to) if drops_to else DropWide()
    pipeline = Pipeline("items", stages=[ItemReader(str(tmp_path)), stage, ItemWriter(str(tmp_path / "out"))])
    pipeline.outlet("wide").add_stage(JsonlWriter(str(tmp_path / "wide")))
    with pytest.raises(PlanError, match="the outlet wide would get ItemBatch, but outlets take documents"):
        pipeline.run(SerialExecutor(), progress="none")
    assert not (tmp_path / "out").exists()


def test_dropped_records_of_any_type_can_be_continued(tmp_path: Path) -> None:
    items = b"".join(encode_item({"width": width}, b"payload") for width in range(10))
    (tmp_path / "0.items").write_bytes(items)
    pipeline = Pipeline("items", stages=[ItemReader(str(tmp_path)), DropWide(), ItemWriter(str(tmp_path / "out"))])
    pipeline.outlet("dropped").add_stage(JsonlWriter(str(tmp_path / "wide")))
    result = pipeline.run(SerialExecutor(), progress="none")
    assert [document["width"] for document in documents(tmp_path / "wide")] == [4, 5, 6, 7, 8, 9]
    assert result.outlets["dropped"].counts["written"] == result.counts["dropped"] == 6


def test_other_records_than_documents_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="only documents"):
        ItemBatch.from_dicts([]).to("short", [])


@pytest.mark.parametrize("stage", [GlobalShuffle(), TopK("width", k=1)], ids=lambda stage: stage.name)
def test_other_records_than_documents_are_not_shuffled(tmp_path: Path, stage: Any) -> None:
    pipeline = Pipeline("items", stages=[ItemReader(str(tmp_path)), stage, ItemWriter(str(tmp_path / "out"))])
    with pytest.raises(PlanError, match=f"{stage.name} takes a DocumentBatch, but items before it gives an ItemBatch"):
        pipeline.run(SerialExecutor(), progress="none")


# -- recipes -----------------------------------------------------------------------------------------------------------

RECIPE = """
name: routed
params: {{out: "{out}"}}
stages:
  - JsonlReader: {{file_paths: "{corpus}"}}
  - WordCountFilter: {{min_words: 4, drops_to: short}}
  - JsonlWriter: {{path: "${{out}}/main"}}
outlets:
  short:
    - WordCountFilter: {{min_words: 2}}
    - JsonlWriter: {{path: "${{out}}/short"}}
"""


def run_recipe(corpus: Path, out: Path, **overrides: Any) -> RunResult:
    recipe = load_recipe(RECIPE.format(corpus=corpus, out=out), overrides)
    return recipe.run(SerialExecutor(), progress="none")


def test_a_recipe_has_outlets(corpus: Path, tmp_path: Path) -> None:
    result = run_recipe(corpus, tmp_path)
    assert result.outlets["short"].counts["written"] == 2 * ALL // 10
    saved = (tmp_path / "main" / "_thresher" / "recipe.yaml").read_text()
    assert load_recipe(saved).outlets["short"][0].name == "WordCountFilter"


def test_a_parameter_of_an_outlets_stage_can_be_given_on_the_command_line(corpus: Path, tmp_path: Path) -> None:
    result = run_recipe(corpus, tmp_path, **{"short.WordCountFilter.min_words": 3})
    assert result.outlets["short"].counts["written"] == ALL // 10


@pytest.mark.parametrize(
    ("outlets", "message"),
    [
        ("outlets: [a]", "is not a mapping of outlets"),
        ("outlets: {short: JsonlWriter}", "is not a list of stages"),
        ("outlets: {a b: [JsonlWriter]}", "'a b' is not a name"),
        ("outlets: {short: [{JsonlWriter: {pth: x}}]}", r"outlets\.short.*pth"),
    ],
)
def test_a_mistake_in_outlets_names_its_place(outlets: str, message: str) -> None:
    text = f"name: x\nstages:\n  - JsonlReader: {{file_paths: a}}\n  - JsonlWriter: {{path: b}}\n{outlets}\n"
    with pytest.raises(RecipeError, match=message):
        load_recipe(text)
