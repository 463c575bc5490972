# SPDX-License-Identifier: Apache-2.0
"""Files of token ids are the same, byte for byte, on every executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.io.megatron.tokenizer_files import word_tokenizer
from thresher import JsonlReader, MegatronTokenizerWriter, Pipeline, SerialExecutor

pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
RECORDS = [*({"text": "a b c z " * (n % 40)} for n in range(300)), {"text": 5}, {}]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given")
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    word_tokenizer(folder / "_tokenizer")
    return folder


def run(given: Path, out: Path, executor: Any) -> tuple[dict[str, bytes], dict[str, int]]:
    """The files of a run, by name, and its counts."""
    writer = MegatronTokenizerWriter(str(out), str(given / "_tokenizer"), append_eod=True)
    pipeline = Pipeline("tokens", stages=[JsonlReader(str(given), blocksize=4_000), writer])
    result = pipeline.run(executor, progress="none", max_errors=2)
    return {Path(path).name: Path(path).read_bytes() for path in result.output_paths}, result.counts


def test_token_files_are_the_same_wherever_they_are_made(executor: Any, given: Path, tmp_path: Path) -> None:
    files, counts = run(given, tmp_path / "out", executor)
    assert (files, counts) == run(given, tmp_path / "serial", SerialExecutor())
    assert len(files) > 6
    assert (counts["written"], counts["dropped"], counts["quarantined"]) == (292, 8, 2)
