# SPDX-License-Identifier: Apache-2.0
"""Tokens are counted and encoded alike by every stage, with any of the packages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.core.tally import context_of
from thresher.errors import InputError, MissingPackageError, UsageError
from thresher.models import tokenizer as module
from thresher.models.tokenizer import TokenizerOptions, load_tokenizer, token_type
from thresher.stages.text import token_counter
from thresher.stages.text.rules.words.tokens import TokenCountFilter
from thresher.stages.text.token_counter import TokenCounter

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `tokenizers`")
TEXTS = ["the cat sat", "the the the", "", "cat \ud800 dog", "a" * 50]


@pytest.fixture(scope="session")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Words and punctuation are tokens, and every text begins with one more."""
    vocabulary = {"[UNK]": 0, "[BOS]": 1, "the": 2, "cat": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[BOS] $A", special_tokens=[("[BOS]", 1)])
    made.enable_padding(length=64)
    made.enable_truncation(max_length=4)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def test_the_score_is_the_number_of_tokens(word_tokenizer: str) -> None:
    rule = TokenCountFilter(word_tokenizer, min_tokens=2, max_tokens=4)
    assert [rule.score_document(text) for text in TEXTS] == [4, 4, 1, 4, 2]
    assert [rule.keep_document(score) for score in (1, 2, 4, 5)] == [False, True, True, False]
    assert TokenCountFilter(word_tokenizer, add_special_tokens=False).score_document("") == 0
    assert TokenCountFilter(word_tokenizer).keep_document(10**9)


def test_a_file_that_asks_for_padding_or_cutting_is_not_obeyed(word_tokenizer: str) -> None:
    assert load_tokenizer("x", word_tokenizer).count(["the " * 100]) == [101]


def test_a_folder_may_stand_for_its_file(word_tokenizer: str) -> None:
    assert load_tokenizer("x", str(Path(word_tokenizer).parent)).count(["the cat"]) == [3]


def test_the_stage_writes_the_same_numbers(word_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for chunk in (1, 12, 2**20):
        monkeypatch.setattr(token_counter, "_CHUNK", chunk)
        stage = TokenCounter(word_tokenizer, count_field="n")
        made = stage.process(batch_of([{"text": text.replace("\ud800", "x")} for text in TEXTS]))
        assert [record["n"] for record in written(made)] == [3, 3, 0, 3, 1]
        assert context_of(stage).noted.counts == {"tokens": 10}


def test_the_stage_sets_records_without_text_aside(word_tokenizer: str) -> None:
    made = TokenCounter(word_tokenizer).process(batch_of([{}, {"text": "the"}, {"text": 5}]))
    assert written(made) == [{"text": "the", "token_count": 1}]
    assert sorted(rows.error for rows in made._failed) == ["field-missing", "not-a-string"]
    assert written(TokenCounter(word_tokenizer).process(batch_of([]))) == []


def test_any_text_has_a_number(word_tokenizer: str) -> None:
    loaded = load_tokenizer("x", word_tokenizer)

    @given(st.text(st.characters(exclude_categories=()), max_size=30))
    def check(text: str) -> None:
        assert loaded.count([text, "the"]) == [loaded.count([text])[0], 2]

    check()


def test_sentencepiece_models_count_too(tmp_path: Path) -> None:
    sentencepiece: Any = pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
    (tmp_path / "text").write_text("the cat sat on the mat and the dog sat too\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=20, model_type="bpe", minloglevel=9
    )
    path = str(tmp_path / "m.model")
    plain = load_tokenizer("x", path, special=False)
    assert [n - m for n, m in zip(load_tokenizer("x", path).count(TEXTS), plain.count(TEXTS), strict=True)] == [1] * 5
    assert plain.count(["", "the"])[0] == 0
    assert plain.count(["the the"])[0] > 0
    assert plain.encode_batch(TEXTS).to_arrow().value_lengths().to_pylist() == plain.count(TEXTS)
    assert plain.encode_batch(TEXTS).to_arrow().type == pa.list_(pa.uint16())
    assert (plain.vocabulary_size, plain.end_id, plain.id_of("</s>"), plain.id_of("none")) == (20, 2, 2, None)


def test_encodings_of_tiktoken_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken: Any = pytest.importorskip("tiktoken", reason="needs the extra `tokenizers`")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257}
    made = tiktoken.Encoding("small", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|end|>": 258})
    monkeypatch.setattr(tiktoken, "get_encoding", {"small": made}.__getitem__)
    loaded = load_tokenizer("x", "tiktoken:small")
    assert loaded.count(["the the", "", "<|end|>", "\ud800"]) == [3, 0, 7, 3]
    assert loaded.encode_batch(["the the", ""]).to_arrow().to_pylist() == [[257, 32, 257], []]
    assert (loaded.vocabulary_size, loaded.end_id) == (259, None)
    assert (loaded.id_of("<|end|>"), loaded.id_of("<|none|>")) == (258, None)
    with pytest.raises(InputError, match="'tiktoken:nonsense' cannot be loaded as a tokenizer"):
        load_tokenizer("x", "tiktoken:nonsense")


def test_the_ids_of_a_batch_come_as_one_arrow_array(word_tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_tokenizer("x", word_tokenizer, special=False)
    for chunk in (1, 12, 2**20):
        monkeypatch.setattr(module, "_CHUNK", chunk)
        made = loaded.encode_batch(TEXTS).to_arrow()
        assert made.to_pylist() == [[2, 3, 0], [2, 2, 2], [], [3, 0, 0], [0]]
        assert made.type == pa.list_(pa.uint16())
    assert loaded.encode_batch([]).to_arrow().to_pylist() == []
    assert [len(ids) for ids in loaded.encode_batch(TEXTS).to_arrow().to_pylist()] == loaded.count(TEXTS)


@pytest.mark.parametrize(("size", "kind"), [(2**16, "uint16"), (2**16 + 1, "int32"), (None, "int32")])
def test_ids_take_two_bytes_where_the_vocabulary_allows_it(size: int | None, kind: str) -> None:
    assert token_type(size) == kind


def test_a_vocabulary_with_gaps_counts_up_to_its_last_id(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 70_000}, unk_token="a"))
    made.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer("x", str(tmp_path))
    assert loaded.vocabulary_size == 70_001
    assert loaded.encode_batch(["b"]).to_arrow().type == pa.list_(pa.int32())


def test_the_end_token_is_the_one_of_the_settings_or_has_a_usual_name(word_tokenizer: str, tmp_path: Path) -> None:
    assert load_tokenizer("x", word_tokenizer).end_id is None
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "</s>": 1, "[DONE]": 2}, unk_token="a"))
    made.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer("x", str(tmp_path)).end_id == 1
    for settings in ('{"eos_token": "[DONE]"}', '{"eos_token": {"content": "[DONE]"}}'):
        (tmp_path / "tokenizer_config.json").write_text(settings)
        assert load_tokenizer("x", str(tmp_path)).end_id == 2
    for settings in ('{"eos_token": null}', "[", "[]"):
        (tmp_path / "tokenizer_config.json").write_text(settings)
        assert load_tokenizer("x", str(tmp_path)).end_id == 1
    assert load_tokenizer("x", str(tmp_path)).id_of("[DONE]") == 2
    assert load_tokenizer("x", str(tmp_path)).id_of("no such token") is None


def test_the_name_of_a_special_token_in_a_text_can_be_text(tmp_path: Path) -> None:
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "a": 1}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.add_special_tokens(["<|end|>"])
    made.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer("x", str(tmp_path)).encode_batch(["a <|end|>"]).to_arrow().to_pylist() == [[1, 2]]
    options = TokenizerOptions(split_special_tokens=True)
    split = load_tokenizer("x", str(tmp_path), options=options).encode_batch(["a <|end|>"]).to_arrow().to_pylist()
    assert split == [[1, 0, 0, 0]]


def test_a_tokenizer_of_the_hub_is_found_where_its_tools_keep_it(
    word_tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs the extra `tokenizers`")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    kept = tmp_path / "models--owner--name"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("abc")
    (kept / "snapshots" / "abc").mkdir(parents=True)
    shutil.copy(word_tokenizer, kept / "snapshots" / "abc" / "tokenizer.json")
    options = TokenizerOptions(cache_dir=str(tmp_path))
    assert load_tokenizer("x", "hf:owner/name", options=options).count(["the cat"]) == [3]

    (kept / "snapshots" / "abc" / "tokenizer_config.json").write_text('{"eos_token": "cat"}')
    assert load_tokenizer("x", "hf:owner/name", options=options).end_id == 3
    with pytest.raises(InputError, match="x: 'hf:owner/other' cannot be loaded as a tokenizer"):
        load_tokenizer("x", "hf:owner/other", options=options)
    assert "secret" not in repr(TokenizerOptions(token="secret"))


def test_what_cannot_be_a_tokenizer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"TokenCountFilter\.tokenizer: None is not a tokenizer"):
        TokenCountFilter()
    with pytest.raises(UsageError, match="give tokenizer or hf_model_name, not both"):
        TokenCountFilter("tokenizer.json", hf_model_name="owner/name")
    assert TokenCountFilter(hf_model_name="owner/name").tokenizer == "hf:owner/name"
    with pytest.raises(InputError, match="there is no file"):
        TokenCounter(str(tmp_path / "missing.json")).setup()
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InputError, match=r"'.*bad\.json' cannot be loaded as a tokenizer"):
        TokenCounter(str(tmp_path / "bad.json")).setup()

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"needs the package sentencepiece: pip install 'thresher\["):
        TokenCounter(str(tmp_path / "x.model"))
