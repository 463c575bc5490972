# SPDX-License-Identifier: Apache-2.0
"""Token ids of texts in a column: as the tokenizer gives them, whatever a text is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.json_batches import batch_of, written
from tests.unit.stages.io.megatron.tokenizer_files import word_tokenizer
from thresher import TokenEncoder
from thresher.core.tally import context_of
from thresher.errors import UsageError

pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
RECORDS = [{"text": "a b"}, {"text": ""}, {"text": "c z"}]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return word_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
def test_the_ids_of_a_text_stand_beside_it(tokenizer: str, batch_size: int) -> None:
    stage = TokenEncoder(tokenizer, tokenization_batch_size=batch_size)
    made = stage.process(batch_of(RECORDS))
    assert written(made) == [
        {"text": "a b", "tokens": [1, 2]},
        {"text": "", "tokens": []},
        {"text": "c z", "tokens": [3, 0]},
    ]
    assert made.column("tokens").type == pa.list_(pa.uint16())
    assert context_of(stage).noted.counts == {"tokens": 4}


def test_every_document_ends_with_the_token_for_it(tokenizer: str) -> None:
    made = TokenEncoder(tokenizer, tokens_field="ids", append_eod=True).process(batch_of(RECORDS))
    assert [record["ids"] for record in written(made)] == [[1, 2, 4], [4], [3, 0, 4]]


def test_a_column_of_that_name_is_replaced(tokenizer: str) -> None:
    made = TokenEncoder(tokenizer).process(batch_of([{"tokens": "old", "text": "a"}]))
    assert written(made) == [{"tokens": [1], "text": "a"}]


def test_records_without_text_are_set_aside(tokenizer: str) -> None:
    made = TokenEncoder(tokenizer).process(batch_of([{}, {"text": "a"}, {"text": 5}]))
    assert written(made) == [{"text": "a", "tokens": [1]}]
    assert sorted(rows.error for rows in made._failed) == ["field-missing", "not-a-string"]
    assert written(TokenEncoder(tokenizer).process(batch_of([]))) == []
    assert len(TokenEncoder(tokenizer).process(batch_of([{}]))) == 0


def test_what_cannot_work_is_refused_before_the_run(tokenizer: str, tmp_path: Path) -> None:
    assert TokenEncoder(tokenizer, append_eod=True).check_before_run() == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"eod_token": "<none>"}, "there is no token '<none>'"),
        ({"eod_token": 5}, "5 is no token id; ids are from 0 to 4"),
    ]
    for parameters, said in wrong:
        (problem,) = TokenEncoder(tokenizer, append_eod=True, **parameters).check_before_run()
        assert said in problem
    (problem,) = TokenEncoder(str(tmp_path / "none.json")).check_before_run()
    assert "there is no file" in problem
    with pytest.raises(UsageError, match="is the text field; name another"):
        TokenEncoder(tokenizer, tokens_field="text")


def test_a_token_for_the_hub_is_not_shown() -> None:
    from thresher.core.recipes.params import without_secrets

    assert without_secrets({"hf_token": "hf_abcdef"}) == {"hf_token": "***"}
