# SPDX-License-Identifier: Apache-2.0
"""Documents become sequences of token ids that a reader of the published format finds again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.core.json_batches import batch_of
from tests.unit.stages.io.megatron.reading import IndexedDataset, read_folder
from tests.unit.stages.io.megatron.tokenizer_files import word_tokenizer
from thresher import JsonlReader, MegatronTokenizerWriter, Pipeline, RunResult, SerialExecutor
from thresher.core.planning.plan import make_plan
from thresher.errors import InputError, PlanError, UsageError
from thresher.stages.io.megatron.writer import TokenFileWriter, tokenizer_name

pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")


def run(folder: Path, records: list[dict[str, Any]], **parameters: Any) -> RunResult:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if "tokens_field" not in parameters:
        parameters.setdefault("model_identifier", word_tokenizer(folder / "tokenizer"))
    stages = [JsonlReader(str(folder / "in")), MegatronTokenizerWriter(str(folder / "out"), **parameters)]
    return Pipeline("tokens", stages=stages).run(SerialExecutor(), progress="none", max_errors="100%")


def texts(*values: Any) -> list[dict[str, Any]]:
    return [{"text": value} for value in values]


def test_a_document_is_a_sequence_of_its_token_ids(tmp_path: Path) -> None:
    result = run(tmp_path, texts("a b", "c", "b z b"))
    assert read_folder(tmp_path / "out") == [[1, 2], [3], [2, 0, 2]]
    (bin_path, idx_path) = result.output_paths
    assert (bin_path.removesuffix(".bin"), Path(bin_path).suffix) == (idx_path.removesuffix(".idx"), ".bin")
    found = IndexedDataset(bin_path.removesuffix(".bin"))
    assert found.dtype == np.uint16
    assert found.document_indices.tolist() == [0, 1, 2, 3]
    assert result.stages[1]["user_counts"] == {"tokens": 6}


def test_the_bytes_are_those_of_the_published_layout(tmp_path: Path) -> None:
    result = run(tmp_path, texts("a b", "c"))
    bin_path, idx_path = map(Path, result.output_paths)
    assert bin_path.read_bytes() == bytes([1, 0, 2, 0, 3, 0])
    eight = [number.to_bytes(8, "little") for number in (1, 2, 3, 0, 4, 0, 1, 2)]
    version, sequences, borders, *rest = eight
    head = b"MMIDIDX\x00\x00" + version + b"\x08" + sequences + borders
    assert idx_path.read_bytes() == head + bytes([2, 0, 0, 0, 1, 0, 0, 0]) + b"".join(rest)


def test_the_end_of_documents_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    run(tmp_path, texts("a", "b c"), append_eod=True)
    assert read_folder(tmp_path / "out") == [[1, 4], [2, 3, 4]]


@pytest.mark.parametrize("end", ["?", 0])
def test_another_token_may_end_documents(tmp_path: Path, end: str | int) -> None:
    run(tmp_path, texts("a"), append_eod=True, eod_token=end)
    assert read_folder(tmp_path / "out") == [[1, 0]]


def test_ids_of_a_large_vocabulary_take_four_bytes(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(tmp_path / "large", {"?": 0, "a": 70_000})
    result = run(tmp_path, texts("a", "a z"), model_identifier=tokenizer)
    assert IndexedDataset(result.output_paths[0].removesuffix(".bin")).dtype == np.int32
    assert read_folder(tmp_path / "out") == [[70_000], [70_000, 0]]


def test_documents_without_tokens_are_dropped_and_leave_no_end_of_document(tmp_path: Path) -> None:
    result = run(tmp_path, texts("", "a", "   ", "b"), append_eod=True)
    assert read_folder(tmp_path / "out") == [[1, 4], [2, 4]]
    assert result.drop_reasons == {"MegatronTokenizerWriter-tokens/no-tokens": 2}


@pytest.mark.parametrize("records", [[], texts("", "")])
def test_without_documents_there_is_no_file(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    result = run(tmp_path, records)
    assert result.output_paths == []
    assert list((tmp_path / "out").glob("[!_]*")) == []


def test_hostile_documents_are_set_aside_or_encoded(tmp_path: Path) -> None:
    huge = "a " * 300_000
    result = run(tmp_path, [*texts("a \ud800 b", 5, None, huge, "\x00", "</s>"), {}])
    assert read_folder(tmp_path / "out") == [[1] * 300_000, [0], [4]]
    assert result.counts["quarantined"] == 4  # a lone surrogate is no UTF-8, which the reader says


def test_token_ids_that_documents_bring_along_are_written_as_they_are(tmp_path: Path) -> None:
    records = [{"ids": [5, 6]}, {"ids": []}, {"ids": [65_535]}, {"ids": [65_536]}, {"ids": "5"}, {"ids": [1, -1]}, {}]
    result = run(tmp_path, records, tokens_field="ids", vocab_size=65_536, append_eod=True, eod_token=7)
    assert read_folder(tmp_path / "out") == [[5, 6, 7], [65_535, 7]]
    assert IndexedDataset(result.output_paths[0].removesuffix(".bin")).dtype == np.uint16
    assert result.drop_reasons == {"MegatronTokenizerWriter-tokens/no-tokens": 1}
    assert result.to_dict()["quarantine_reasons"] == {
        "MegatronTokenizerWriter-tokens/not-token-ids": 3,
        "MegatronTokenizerWriter-tokens/field-missing": 1,
    }


def test_without_a_vocabulary_ids_take_four_bytes(tmp_path: Path) -> None:
    result = run(tmp_path, [{"ids": [1, 2**31 - 1]}, {"ids": [2**31]}], tokens_field="ids")
    assert read_folder(tmp_path / "out") == [[1, 2**31 - 1]]
    assert result.counts["quarantined"] == 1


def test_a_text_column_may_have_the_name_of_the_internal_one(tmp_path: Path) -> None:
    run(tmp_path, [{"tokens": "a b"}], text_field="tokens")
    assert read_folder(tmp_path / "out") == [[1, 2]]


def test_the_bytes_do_not_depend_on_how_documents_are_cut_into_batches(tmp_path: Path) -> None:
    lines = texts(*("a b c " * (n % 5 + 1) for n in range(50)))
    documents, files = MegatronTokenizerWriter(str(tmp_path), word_tokenizer(tmp_path)).decompose()
    made = []
    for size in (1, 7, 50):
        opened = files.open_writer(str(tmp_path / f"{size}"))
        for start in range(0, 50, size):
            opened.write(documents.process(batch_of(lines[start : start + size])))
        opened.close()
        made.append((tmp_path / f"{size}.bin").read_bytes() + (tmp_path / f"{size}.idx").read_bytes())
    assert made[0] == made[1] == made[2]


def test_an_aborted_pair_leaves_nothing(tmp_path: Path) -> None:
    documents, files = MegatronTokenizerWriter(str(tmp_path), word_tokenizer(tmp_path / "t")).decompose()
    for closes in (False, True):
        opened = files.open_writer(str(tmp_path / "one"))
        opened.write(documents.process(batch_of(texts("a"))))
        if closes:
            opened.close()
        opened.abort()
        assert list(tmp_path.glob("one*")) == []
    empty = files.open_writer(str(tmp_path / "one"))
    assert empty.close() == []
    assert list(tmp_path.glob("one*")) == []


# -- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "neither is given"),
        ({"model_identifier": "hf:a/b", "tokens_field": "ids"}, "both are given"),
        ({"model_identifier": "hf:a/b", "vocab_size": 5}, "the tokenizer knows it"),
        ({"tokens_field": "ids", "vocab_size": 0}, r"vocab_size: 0 is not a whole number of 1 or more"),
        ({"tokens_field": "ids", "append_eod": True}, "name a token of the tokenizer, or its id, with eod_token"),
        (
            {"tokens_field": "ids", "append_eod": True, "eod_token": 9, "vocab_size": 9},
            "eod_token: 9 is no token id; ids are from 0 to 8",
        ),
        ({"model_identifier": "a/b", "transformers_init_kwargs": {"use_fast": True}}, "'use_fast' has no meaning"),
        ({"model_identifier": "a/b", "tokenization_batch_size": 0}, "tokenization_batch_size: 0 is not a whole number"),
        ({"model_identifier": "a/b", "mode": "ignore"}, "mode: 'ignore' is not one of error, overwrite, append"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MegatronTokenizerWriter("out", **parameters)


def test_what_is_missing_is_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"there is no file '.*none\.json'"):
        run(tmp_path, texts("a"), model_identifier=str(tmp_path / "none.json"))
    no_end = word_tokenizer(tmp_path / "no-end", {"?": 0})
    with pytest.raises((PlanError, UsageError), match="no token that ends a document is known; name a token"):
        run(tmp_path, texts("a"), model_identifier=no_end, append_eod=True)
    with pytest.raises((PlanError, UsageError), match="there is no token '<end>'; name a token"):
        run(tmp_path, texts("a"), model_identifier=no_end, append_eod=True, eod_token="<end>")
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_no_file_is_one_of_the_hub(tmp_path: Path) -> None:
    assert [tokenizer_name(name) for name in ("gpt2", "owner/name", "hf:a/b", "tiktoken:gpt2", "x.model")] == [
        "hf:gpt2",
        "hf:owner/name",
        "hf:a/b",
        "tiktoken:gpt2",
        "x.model",
    ]
    assert tokenizer_name(str(tmp_path)) == str(tmp_path)


def test_secrets_and_places_of_downloads_do_not_tell_runs_apart(tmp_path: Path) -> None:
    from thresher.core.planning.fingerprint import fingerprint

    def prints(**parameters: Any) -> dict[str, str]:
        writer = MegatronTokenizerWriter("out", "hf:a/b", **parameters)
        return fingerprint(make_plan(Pipeline("p", stages=[JsonlReader("in"), writer])).stages, "1.0")

    assert prints() == prints(hf_token="abcdefgh", cache_dir="somewhere")
    assert prints() != prints(append_eod=True)
    assert prints() != prints(transformers_init_kwargs={"revision": "main"})


def test_the_writer_of_files_is_the_end_of_the_plan_under_the_name_of_the_whole() -> None:
    plan = make_plan(Pipeline("p", stages=[JsonlReader("in"), MegatronTokenizerWriter("out", "hf:a/b")]))
    assert isinstance(plan.sink, TokenFileWriter)
    assert plan.groups() == [["JsonlReader", "MegatronTokenizerWriter-tokens", "MegatronTokenizerWriter"]]


def test_a_missing_file_is_an_input_error_in_a_worker_too(tmp_path: Path) -> None:
    documents, _ = MegatronTokenizerWriter("out", str(tmp_path / "none.json")).decompose()
    with pytest.raises(InputError, match="there is no file"):
        documents.setup()
