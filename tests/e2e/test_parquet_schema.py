# SPDX-License-Identifier: Apache-2.0
"""All Parquet files of a run have one schema, whatever unit comes first in time, and other tools read them as one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from thresher import (
    DocumentBatch,
    JsonlReader,
    LocalExecutor,
    ParquetReader,
    ParquetWriter,
    Pipeline,
    SerialExecutor,
    processing_stage,
)
from thresher.cli.main import main
from thresher.errors import RunFailedError, UsageError

PLAIN: list[dict[str, Any]] = [{"id": 9, "text": "z", "score": 7, "rating": 0.5, "mixed": 2}]
UNITS: list[list[dict[str, Any]]] = [
    [{"id": 1, "text": "a", "score": 1, "rating": 1.5, "note": None, "mixed": 1}, {"id": 2, "text": "b", "mixed": "x"}],
    # Of sixteen units the second, fourth and sixth are not sampled: what comes there is a surprise.
    [{"id": 3, "text": "c", "score": 2.5, "rating": 2, "note": "said", "mixed": [1]}],
    PLAIN,
    [{"id": 4, "text": None, "score": None, "rating": 2**60 + 1, "note": {"deep": [1, None]}, "later": True}],
    PLAIN,
    [{"id": "five", "text": 5, "rating": None, "later": "now a text"}],
    *([PLAIN] * 10),
]
"""The records of each unit; types change from one to the next."""
EXPECTED = {
    "id": "int64",
    "text": "large_string",
    "score": "int64",
    "rating": "double",
    "note": "json",
    "mixed": "json",
    "_extra": "json",
}


def write_input(folder: Path, units: list[list[dict[str, Any]]] = UNITS) -> Path:
    folder.mkdir(parents=True)
    for number, records in enumerate(units):
        (folder / f"{number:x}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def restored(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A record as it was: JSON is decoded, and what is in `_extra` put back."""
    values = {}
    for name, value in row.items():
        is_json = isinstance(schema.field(name).type, pa.JsonType)
        values[name] = json.loads(value) if is_json and value is not None else value
    return {key: value for key, value in (values | (values.pop("_extra", None) or {})).items() if value is not None}


def files_in(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))}


def run(source: Path, out: Path, executor: Any = None, **options: Any) -> Any:
    reader = JsonlReader(str(source), files_per_partition=1)
    return Pipeline("one-schema", stages=[reader, ParquetWriter(str(out), **options)]).run(
        executor or SerialExecutor(), progress="none"
    )


def names_and_types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: "json" if isinstance(field.type, pa.JsonType) else str(field.type) for field in schema}


def test_all_files_have_one_schema_and_no_value_is_lost(tmp_path: Path) -> None:
    run(write_input(tmp_path / "in"), tmp_path / "out")
    schemas = [pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(schemas) == len(UNITS)
    assert all(schema.equals(schemas[0]) for schema in schemas)
    assert names_and_types(schemas[0]) == EXPECTED
    table = pyarrow.dataset.dataset(tmp_path / "out", format="parquet").to_table()
    records = [{key: value for key, value in one.items() if value is not None} for unit in UNITS for one in unit]
    assert [restored(row, table.schema) for row in table.to_pylist()] == records
    kept = json.loads((tmp_path / "out" / "_thresher" / "schema.json").read_text())
    assert kept["columns"] == EXPECTED


@pytest.mark.parametrize("options", [{}, {"target_file_size": 4000}, {"target_file_size": "1MB"}])
def test_files_are_the_same_whichever_unit_ends_first(tmp_path: Path, options: dict[str, Any]) -> None:
    source = write_input(tmp_path / "in")
    run(source, tmp_path / "serial", **options)
    expected = files_in(tmp_path / "serial")
    for number, executor in enumerate((LocalExecutor(workers=1), LocalExecutor(workers=3), LocalExecutor(workers=3))):
        run(source, tmp_path / f"local-{number}", executor, **options)
        assert files_in(tmp_path / f"local-{number}") == expected
    assert len({pq.read_schema(path) for path in (tmp_path / "serial").glob("*.parquet")}) == 1


def test_the_first_unit_settles_the_schema_also_when_it_ends_last(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    run(source, tmp_path / "plain")

    @processing_stage(name="wait")
    def wait(batch: DocumentBatch) -> DocumentBatch:
        import time

        if batch.ids is not None and batch.ids.source_at(0)[1].endswith("0.jsonl"):
            out, deadline = Path(str(tmp_path / "slow")), time.monotonic() + 100
            while len(list((out / "_thresher" / "parts").glob("*.parquet"))) < len(UNITS) - 1:
                assert time.monotonic() < deadline, "the other units were not committed"
                time.sleep(0.01)
        time.sleep(0.05)  # too long to be given to a busy worker in advance: no unit waits behind the first
        return batch

    reader = JsonlReader(str(source), files_per_partition=1)
    pipeline = Pipeline("one-schema", stages=[reader, wait, ParquetWriter(str(tmp_path / "slow"))])
    pipeline.run(LocalExecutor(workers=2), progress="none")
    assert files_in(tmp_path / "slow") == files_in(tmp_path / "plain")
    assert main(["audit", str(tmp_path / "slow")]) == 0


def test_a_unit_without_output_settles_nothing(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in", UNITS[:-2])  # sixteen files again, with the two that follow
    (source / "!empty.jsonl").write_text("\n")
    (source / "-broken.jsonl").write_text("no json\n")
    reader = JsonlReader(str(source), files_per_partition=1)
    for name, executor in (("serial", SerialExecutor()), ("local", LocalExecutor(workers=3))):
        stages = [reader, ParquetWriter(str(tmp_path / name))]
        Pipeline("one-schema", stages=stages).run(executor, progress="none", max_errors="100%")
    assert files_in(tmp_path / "serial") == files_in(tmp_path / "local")
    assert {str(names_and_types(pq.read_schema(path))) for path in (tmp_path / "local").glob("*.parquet")} == {
        str(EXPECTED)
    }


def test_a_run_that_goes_on_keeps_its_schema(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    run(source, tmp_path / "whole")
    flag = tmp_path / "failing"
    flag.touch()

    @processing_stage(name="fail")
    def fail(batch: DocumentBatch) -> DocumentBatch:
        if flag.exists() and batch.ids is not None and batch.ids.source_at(0)[1].endswith("2.jsonl"):
            import os

            os.kill(os.getppid(), 2)
        return batch

    reader = JsonlReader(str(source), files_per_partition=1)
    pipeline = Pipeline("one-schema", stages=[reader, fail, ParquetWriter(str(tmp_path / "out"))])
    for executor in (LocalExecutor(workers=1), LocalExecutor(workers=2)):
        try:
            pipeline.run(executor, progress="none")
        except KeyboardInterrupt:
            flag.unlink(missing_ok=True)
    pipeline.run(LocalExecutor(workers=2), progress="none")
    assert files_in(tmp_path / "out") == files_in(tmp_path / "whole")


def test_retried_records_and_files_made_again_have_the_schema_of_the_run(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    flag = tmp_path / "failing"
    flag.touch()
    out = tmp_path / "out"
    (tmp_path / "picky.py").write_text(
        "import os\nfrom thresher import DocumentBatch, ProcessingStage\n\n\n"
        "class Picky(ProcessingStage):\n    name = 'picky'\n\n    def process(self, batch):\n"
        f"        if os.path.exists({str(flag)!r}) and 3 in batch.values('id'):\n"
        "            raise ValueError('no three')\n"
        "        return batch\n"
    )
    stages = [
        {"JsonlReader": {"file_paths": str(source), "files_per_partition": 1}},
        {"_target_": "picky.Picky"},
        {"ParquetWriter": {"path": str(out)}},
    ]
    (tmp_path / "picky.yaml").write_text(json.dumps({"name": "picky", "stages": stages}))
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        common = ["--trust", "picky", "--quiet", "--workers", "2"]
        assert main(["run", "picky.yaml", *common, "--max-errors", "100%"]) == 0
        before = files_in(out)
        flag.unlink()
        assert main(["retry", str(out), *common]) == 0
    finally:
        os.chdir(here)
    assert len(files_in(out)) == len(UNITS)
    assert {str(names_and_types(pq.read_schema(path))) for path in out.glob("*.parquet")} == {str(EXPECTED)}
    assert pyarrow.dataset.dataset(out, format="parquet").count_rows() == sum(map(len, UNITS))
    assert main(["audit", str(out)]) == 0
    assert before.items() <= files_in(out).items()


def test_files_that_were_removed_are_made_again_as_they_were(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    run(source, tmp_path / "out", LocalExecutor(workers=3))
    before = files_in(tmp_path / "out")
    for path in (tmp_path / "out").glob("*.parquet"):
        if not path.name.startswith("2-"):
            path.unlink()
    run(source, tmp_path / "out", LocalExecutor(workers=3))
    assert files_in(tmp_path / "out") == before


def test_without_a_ledger_files_have_one_schema_too(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    run(source, tmp_path / "kept")
    stages = [JsonlReader(str(source), files_per_partition=1), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("one-schema", stages=stages).run(LocalExecutor(workers=2), progress="none", ledger=False)
    assert files_in(tmp_path / "out") == files_in(tmp_path / "kept")
    assert [path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".parquet"] == []


# -- a sample of the input --------------------------------------------------------------------------------------------

EXECUTORS = [SerialExecutor(), LocalExecutor(workers=1), LocalExecutor(workers=3)]


@pytest.mark.parametrize("options", [{}, {"target_file_size": 4000}])
def test_types_that_come_later_in_the_input_are_known_from_a_sample(tmp_path: Path, options: dict[str, Any]) -> None:
    later = [{"text": "b", "score": 2.5, "note": "said", "tag": "x"}]
    units = [[{"text": "a", "score": 1, "note": None}], later, [{"text": "c", "score": 3, "tag": "y"}]]
    source = write_input(tmp_path / "in", units)
    written = []
    for number, executor in enumerate(EXECUTORS):
        result = run(source, tmp_path / str(number), executor, **options)
        assert result.to_dict()["extra_values"] == {}
        written.append(files_in(tmp_path / str(number)))
    assert written[1:] == written[:1] * 2
    table = pyarrow.dataset.dataset(tmp_path / "0", format="parquet").to_table()
    expected = {"text": "large_string", "score": "double", "note": "large_string", "tag": "large_string"}
    assert names_and_types(table.schema) == expected | {"_extra": "json"}
    assert table.column("score").to_pylist() == [1.0, 2.5, 3.0]
    assert table.column("_extra").null_count == 3


def test_one_large_file_is_sampled_in_several_places(tmp_path: Path) -> None:
    lines = [json.dumps({"text": "x" * 100, "n": n if n < 3000 else n + 0.5}) + "\n" for n in range(6000)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    for executor in EXECUTORS[:2]:
        out = tmp_path / executor.name
        stages = [JsonlReader(str(tmp_path / "in.jsonl"), blocksize="100KB"), ParquetWriter(str(out))]
        Pipeline("large", stages=stages).run(executor, progress="none")
    assert files_in(tmp_path / "serial") == files_in(tmp_path / "local")
    table = pyarrow.dataset.dataset(tmp_path / "serial", format="parquet").to_table()
    assert names_and_types(table.schema) == {"text": "large_string", "n": "double", "_extra": "json"}
    assert table.column("_extra").null_count == len(lines)


def test_a_stage_decides_on_the_types_and_columns_that_it_makes(tmp_path: Path) -> None:
    units = [[{"id": 1, "text": "a", "secret": 1}], [{"id": "two", "text": "b", "other": 2}]]
    source = write_input(tmp_path / "in", units)

    @processing_stage(name="narrow")
    def narrow(batch: DocumentBatch) -> DocumentBatch:
        ids = pa.array([str(value) for value in batch.values("id")])
        return DocumentBatch(pa.table({"id": ids, "text": batch.to_pyarrow().column("text")}))

    reader = JsonlReader(str(source), files_per_partition=1)
    Pipeline("narrow", stages=[reader, narrow, ParquetWriter(str(tmp_path / "out"))]).run(
        SerialExecutor(), progress="none"
    )
    schema = pyarrow.dataset.dataset(tmp_path / "out", format="parquet").schema
    assert {name: kind.removeprefix("large_") for name, kind in names_and_types(schema).items()} == {
        "id": "string",
        "text": "string",
        "_extra": "json",
    }


@pytest.mark.parametrize("options", [{}, {"target_file_size": 4000}])
def test_values_that_no_sample_showed_are_counted_by_field_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    source = write_input(tmp_path / "in")
    expected = {"id": 1, "later": 2, "rating": 1, "score": 1, "text": 1}
    for number, executor in enumerate(EXECUTORS):
        stages = [
            JsonlReader(str(source), files_per_partition=1),
            ParquetWriter(str(tmp_path / str(number)), **options),
        ]
        for _ in range(2):  # the second run finds everything done, and the output as it was
            result = Pipeline("one-schema", stages=stages).run(executor, progress="lines")
            assert result.to_dict()["extra_values"] == expected
            said = [line for line in capfd.readouterr().err.splitlines() if "_extra" in line]
            assert len(said) == 1
            assert "6 values in `_extra`" in said[0]
            assert "id (1), later (2), rating (1), score (1), text (1)" in said[0]
    assert main(["report", str(tmp_path / "0")]) == 0
    assert "6 values in `_extra`" in capfd.readouterr().out


# -- Parquet to Parquet -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [SerialExecutor(), LocalExecutor(workers=3)], ids=["serial", "local"])
def test_the_types_of_all_source_files_are_unified(tmp_path: Path, executor: Any) -> None:
    source = tmp_path / "in"
    source.mkdir()
    whens = pa.array([0, 1], pa.timestamp("ms"))
    tables = [
        {"text": pa.array(["a", None], pa.string()), "n": pa.array([1, 2], pa.int16()), "when": whens},
        {"text": pa.array(["b"], pa.large_string()), "n": pa.array([2**40], pa.int64()), "new": pa.array([1.5])},
        {"text": pa.nulls(1), "n": pa.array([0.5]), "when": pa.nulls(1), "new": pa.array([2], pa.int32())},
    ]
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), source / f"{number}.parquet")
    stages = [ParquetReader(str(source), files_per_partition=1), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("unify", stages=stages).run(executor, progress="none")
    schemas = [pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert [names_and_types(schema) for schema in schemas] == [
        {"text": "large_string", "n": "double", "when": "timestamp[ms]", "new": "double"}
    ] * 3
    rows = pyarrow.dataset.dataset(tmp_path / "out").to_table().to_pylist()
    assert [row["n"] for row in rows] == [1.0, 2.0, float(2**40), 0.5]
    assert [row["new"] for row in rows] == [None, None, 1.5, 2.0]


def test_a_source_of_one_type_comes_out_as_it_went_in(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    kinds = {"a": pa.int8(), "b": pa.float32(), "c": pa.list_(pa.field("element", pa.int32())), "d": pa.date32()}
    columns = {name: pa.array([None, None], kind) for name, kind in kinds.items()}
    pq.write_table(pa.table(columns | {"e": [{"x": 1}, None]}), source / "0.parquet")
    stages = [ParquetReader(str(source)), ParquetWriter(str(tmp_path / "out"))]
    Pipeline("same", stages=stages).run(SerialExecutor(), progress="none")
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_schema(path).remove_metadata().equals(pq.read_schema(source / "0.parquet"))


def test_a_column_that_a_stage_took_out_does_not_come_back(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"text": ["a"], "secret": ["x"]}), source / "0.parquet")

    @processing_stage(name="narrow")
    def narrow(batch: DocumentBatch) -> pa.Table:
        return DocumentBatch(batch.to_pyarrow().select(["text"]).append_column("length", pa.array([1])))

    stages = [ParquetReader(str(source)), narrow, ParquetWriter(str(tmp_path / "out"))]
    Pipeline("narrow", stages=stages).run(SerialExecutor(), progress="none")
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert names_and_types(pq.read_schema(path)) == {"text": "string", "length": "int64", "_extra": "json"}


# -- a given schema ---------------------------------------------------------------------------------------------------


def test_a_given_schema_is_the_schema_and_what_does_not_fit_is_quarantined(tmp_path: Path) -> None:
    source = write_input(tmp_path / "in")
    given = {"id": "int64", "text": "string", "score": "float64", "rating": "double", "note": "json", "mixed": "json"}
    recipe = tmp_path / "given.yaml"
    stages = [
        {"JsonlReader": {"file_paths": str(source)}},
        {"ParquetWriter": {"path": str(tmp_path / "out"), "schema": given}},
    ]
    recipe.write_text(json.dumps({"name": "given", "stages": stages}))
    assert main(["run", str(recipe), "--quiet"]) == 0
    (path,) = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path)
    assert names_and_types(table.schema) == {**given, "score": "double"}
    assert table.column("id").to_pylist() == [1, 2, 3, *[9] * 12]
    report = json.loads((tmp_path / "out" / "_thresher" / "report.json").read_text())
    assert report["quarantine_reasons"] == {"ParquetWriter/does-not-fit-schema": 2}
    assert report["counts"]["written"] == 15
    assert main(["audit", str(tmp_path / "out")]) == 0


def test_a_given_schema_with_a_column_for_extras_loses_nothing(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("_extra", pa.json_(pa.large_string()))])
    run(write_input(tmp_path / "in"), tmp_path / "out", schema=schema)
    table = pyarrow.dataset.dataset(tmp_path / "out").to_table()
    records = [{key: value for key, value in one.items() if value is not None} for unit in UNITS for one in unit]
    assert [restored(row, table.schema) for row in table.to_pylist()] == records


@pytest.mark.parametrize(
    "schema",
    [
        5,
        {},
        {"a": "integer"},
        {"a": 5},
        {1: "int64"},
        pa.schema([("a", pa.int64()), ("a", pa.string())]),
        pa.schema([]),
    ],
)
def test_a_schema_that_is_none_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(UsageError, match=r"ParquetWriter\.schema"):
        ParquetWriter("out", schema=schema)


# -- other tools ------------------------------------------------------------------------------------------------------


def rows_of_pandas(folder: Path) -> list[tuple[Any, Any]]:
    import pandas as pd

    frame = pd.read_parquet(folder)
    return [
        (None if pd.isna(n) else int(n), None if pd.isna(t) else t)
        for n, t in zip(frame["id"], frame["text"], strict=True)
    ]


def rows_of_duckdb(folder: Path) -> list[tuple[Any, Any]]:
    duckdb = pytest.importorskip("duckdb")
    return list(duckdb.sql(f"select id, text from '{folder}/*.parquet' order by filename, file_row_number").fetchall())


def rows_of_polars(folder: Path) -> list[tuple[Any, Any]]:
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(f"{folder}/*.parquet").select("id", "text").collect()
    return list(frame.rows())


def rows_of_datasets(folder: Path) -> list[tuple[Any, Any]]:
    datasets = pytest.importorskip("datasets")
    files = [str(path) for path in sorted(folder.glob("*.parquet"))]
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder / "_cache"))
    return [(row["id"], row["text"]) for row in loaded]


@pytest.fixture
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    return


@pytest.mark.usefixtures("_offline")
@pytest.mark.filterwarnings("ignore")  # what other packages warn of is not ours
@pytest.mark.parametrize("rows_of", [rows_of_pandas, rows_of_duckdb, rows_of_polars, rows_of_datasets])
def test_other_tools_read_the_folder_as_one_table(tmp_path: Path, rows_of: Callable[[Path], list[Any]]) -> None:
    run(write_input(tmp_path / "in"), tmp_path / "out")
    assert rows_of(tmp_path / "out") == [
        *[(1, "a"), (2, "b"), (3, "c"), (9, "z"), (4, None), (9, "z"), (None, None)],
        *[(9, "z")] * 10,
    ]


def test_columns_with_one_name_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(twice, source / "0.parquet")
    pq.write_table(pa.table({"text": ["c"]}), source / "1.parquet")
    stages = [ParquetReader(str(source)), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("twice", stages=stages).run(SerialExecutor(), progress="none", max_errors="100%")
    assert result.to_dict()["quarantine_reasons"] == {"ParquetReader/duplicate-columns": 1}
    with pytest.raises(ValueError, match="the columns 'text' come twice"):
        DocumentBatch(twice).to_pyarrow()


def test_a_column_that_the_schema_of_the_source_has_no_room_for_ends_the_run_by_name(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"text": [f"text {number}"]}), source / f"{number}.parquet")

    @processing_stage(name="sometimes")
    def sometimes(batch: DocumentBatch) -> DocumentBatch:
        return batch.replace("found", [1]) if "1" in batch.values("text")[0] else batch

    stages = [ParquetReader(str(source), files_per_partition=1), sometimes, ParquetWriter(str(tmp_path / "out"))]
    for executor in (SerialExecutor(), LocalExecutor(workers=2)):
        with pytest.raises(RunFailedError, match="column 'found' has the value 1, which does not fit the schema"):
            Pipeline("sometimes", stages=stages).run(executor, progress="none")
