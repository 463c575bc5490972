# SPDX-License-Identifier: Apache-2.0
"""Configurations of datatrove, Data-Juicer and Dolma: what becomes of them, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.cli.main import main
from thresher.compat.importing import data_juicer, datatrove, dolma
from thresher.compat.importing.operators import Operator
from thresher.compat.importing.read import read_config, recipe_text
from thresher.core.arguments.parameters import parameters_of
from thresher.core.recipes.recipe import load_recipe
from thresher.core.registry import lookup, wrapper_of
from thresher.errors import UsageError

JUICER = """\
project_name: demo
dataset_path: data/in.jsonl
export_path: data/out/kept.jsonl
np: 2
open_tracer: true
text_keys: text
process:
  - language_id_score_filter: {lang: en, min_score: 0.8}
  - words_num_filter: {min_num: 20}
  - alphanumeric_filter: {min_ratio: 0.3}
  - clean_email_mapper:
  - clean_links_mapper
  - text_length_filter: {min_len: 5}
  - document_minhash_deduplicator: {tokenization: space, window_size: 5, jaccard_threshold: 0.8, lowercase: true}
  - topk_specified_field_selector: {field_key: score, top_ratio: 0.5}
  - fancy_mapper: {a: 1}
"""
TROVE = """\
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
BASE = "out"
N = 4
if __name__ == "__main__":
    ex = LocalPipelineExecutor(
        pipeline=[
            JsonlReader("data/in", glob_pattern="*.jsonl", limit=100, text_key="text"),
            GopherQualityFilter(min_doc_words=10, exclusion_writer=JsonlWriter(f"{BASE}/removed")),
            LanguageFilter(languages=["en"]),
            LambdaFilter(lambda doc: True),
            JsonlWriter(f"{BASE}/kept", max_file_size=2 * 2**30),
        ],
        tasks=N, workers=N, logging_dir="logs")
    config = MinhashConfig(n_grams=6, num_buckets=20)
    sigs = LocalPipelineExecutor(pipeline=[JsonlReader(f"{BASE}/kept"), MinhashDedupSignature("sigs", config=config)])
    steps = [JsonlReader(f"{BASE}/kept"), MinhashDedupFilter("rm"), ParquetWriter("final")]
    f = LocalPipelineExecutor(pipeline=steps, depends=sigs)
"""
MIX = """\
streams:
  - name: wiki
    documents: [wiki/documents/*.gz]
    attributes: [exp1]
    output: {path: out, max_size_in_bytes: 4000000000}
    filter:
      exclude:
        - "$.attributes[?(@.exp__gopher_v1__word_count[0][2] < 50)]"
        - "$@.attributes[?(@.e__gopher_v1__symbol_to_word_ratio && @.e__gopher_v1__symbol_to_word_ratio[0][2] > 0.1)]"
      include:
        - "$.attributes[?(@.exp__ft__en[0][2] > 0.5)]"
processes: 4
"""


def read(tmp_path: Path, tool: str, text: str) -> Any:
    path = tmp_path / ("config.py" if tool == "datatrove" else "config.yaml")
    path.write_text(text)
    return read_config(tool, str(path))


def names(made: Any) -> list[str]:
    return [item if isinstance(item, str) else next(iter(item)) for item in made.stages]


def test_a_configuration_of_data_juicer_is_a_recipe_of_the_same_steps(tmp_path: Path) -> None:
    made = read(tmp_path, "data-juicer", JUICER)
    assert names(made) == [
        *("DocumentReader", "LanguageFilter", "WordCountFilter", "AlphaFilter", "PiiRedactor", "UrlRemover"),
        *("FuzzyDeduplication", "TopK", "JsonlWriter"),
    ]
    assert made.stages[6] == {"FuzzyDeduplication": {"word_ngrams": 5, "threshold": 0.8, "normalize": ["case"]}}
    assert made.stages[7] == {"TopK": {"by": "score", "share": 0.5, "smallest": False}}
    assert made.params == {"input_path": "data/in.jsonl", "output_path": "data/out"}
    assert made.executor == {"workers": 2}
    assert [note.partition(":")[0] for note in made.missing] == ["text_length_filter", "fancy_mapper"]


def test_a_script_of_datatrove_is_read_and_not_run(tmp_path: Path) -> None:
    made = read(tmp_path, "datatrove", "raise SystemExit(9)\n" + TROVE)
    assert names(made) == [
        "JsonlReader",
        "GopherQualityFilter",
        "LanguageFilter",
        "FuzzyDeduplication",
        "ParquetWriter",
    ]
    assert made.stages[0] == {"JsonlReader": {"file_paths": "data/in/*.jsonl", "limit": 100}}
    assert made.stages[3] == {"FuzzyDeduplication": {"mode": "datatrove", "word_ngrams": 6, "num_bands": 20}}
    assert made.options == {"dropped_to": "out/removed"}
    assert made.executor == {"workers": 4}
    assert any("LambdaFilter" in note for note in made.missing)


def test_what_only_running_a_script_would_tell_is_named(tmp_path: Path) -> None:
    text = "LocalPipelineExecutor(pipeline=[JsonlReader(folder(), limit=len(x)), steps[0], JsonlWriter('out')])"
    made = read(tmp_path, "datatrove", text)
    assert made.missing == [
        "JsonlReader.data_folder: folder() is known only when the script runs",
        "JsonlReader.limit: len(x) is known only when the script runs",
        "steps[0]: only a call of a class can be translated",
    ]


def test_filters_of_a_mix_are_rules_with_the_bounds_of_what_is_kept(tmp_path: Path) -> None:
    made = read(tmp_path, "dolma", MIX)
    assert made.name == "wiki"
    assert made.stages[1:4] == [
        {"WordCountFilter": {"min_words": 50}},
        {"SymbolsToWordsFilter": {"max_symbol_to_word_ratio": 0.1}},
        "GlobalShuffle",
    ]
    assert [note for note in made.missing if "exp__ft__en" in note]


def test_taggers_and_deduplication_of_dolma(tmp_path: Path) -> None:
    made = read(tmp_path, "dolma", "documents: [a]\ntaggers: [gopher_v2, c4_v2, ft_lang_id_en_paragraph_v2, odd_v1]\n")
    assert names(made)[1:5] == ["GopherQualityFilter", "GopherRepetitionFilter", "C4QualityFilter", "LanguageFilter"]
    assert made.options == {"keep_scores": True}
    assert made.missing[0].startswith("odd_v1:")
    text = "documents: [a]\ndedupe: {name: d, documents: {key: $.url}, paragraphs: {attribute_name: p}, min_words: 3}\n"
    made = read(tmp_path, "dolma", text + "bloom_filter: {file: b, read_only: false}\n")
    assert made.stages[1:3] == [
        {"LineDeduplication": {"unit": "paragraph"}},
        {"ExactDeduplication": {"text_field": "url"}},
    ]
    assert made.missing == ["dedupe.min_words: 3 has no counterpart"]


@pytest.mark.parametrize(("tool", "text"), [("data-juicer", JUICER), ("datatrove", TROVE), ("dolma", MIX)])
def test_what_is_printed_is_a_recipe_that_loads(tmp_path: Path, tool: str, text: str) -> None:
    made = read(tmp_path, tool, text)
    given = {name: "x" for name, value in made.params.items() if value == "???"}
    loaded = load_recipe(recipe_text(made, "a test"), given)
    assert len(loaded.stages) == len(made.stages)


ALL = [
    *data_juicer.OPERATORS.items(),
    *datatrove.OPERATORS.items(),
    *((pattern, operator) for pattern, operators in dolma.TAGGERS for operator in operators),
]


@pytest.mark.parametrize(("name", "operator"), ALL, ids=[name for name, _ in ALL])
def test_every_name_in_the_tables_is_a_parameter_of_the_stage(name: str, operator: Operator) -> None:
    entry = lookup(operator.stage)
    wrapper = wrapper_of(entry.kind)
    legal = {*parameters_of(entry.load()), *(parameters_of(wrapper) if wrapper is not None else ())}
    assert {*operator.renamed.values(), *operator.defaults, *operator.needs} <= legal
    assert set(operator.values) <= {*operator.renamed, *legal}


@pytest.mark.parametrize(
    ("tool", "text", "message"),
    [
        ("dask", "a: 1", "'dask' is not a tool that is known. "),
        ("data-juicer", "a: 1", "has a list `process`"),
        ("dolma", "a: 1", "has `taggers`, `streams` or `dedupe`"),
        ("dolma", "- a", "not a configuration of dolma"),
        ("datatrove", "a = 1", "there is no LocalPipelineExecutor"),
        ("datatrove", "a = ", "line 1: not a Python script"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, tool: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(tmp_path, tool, text)


def test_the_command_writes_a_file_once_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dj.yaml").write_text(JUICER)
    command = ["import", "data-juicer", str(tmp_path / "dj.yaml"), "--output", str(tmp_path / "recipe.yaml")]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "recipe.yaml")
    assert "not translated: fancy_mapper" in printed.err
    assert main(command) == 2
    assert main([*command[:3], "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"recipe", "missing", "differences"}
