# SPDX-License-Identifier: Apache-2.0
"""Configurations of Data-Juicer: `dataset_path`, `export_path` and the list `process`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from thresher.compat.importing.operators import Imported, Operator
from thresher.core.arguments.parameters import show_value
from thresher.errors import UsageError, nearest

_NO_BOUND = {sys.maxsize: None}
_WORDS = "words are found by white space there, too, but stripped of punctuation"
_MODEL = "the model that comes with the extra langid; give model_path for lid.176.bin, which Data-Juicer takes"

OPERATORS: dict[str, Operator] = {
    "words_num_filter": Operator(
        "WordCountFilter",
        {"min_num": "min_words", "max_num": "max_words"},
        {"min_words": 10, "max_words": 10**9},
        values={"max_num": {sys.maxsize: 10**9}},
        dropped=("tokenization",),
        difference=_WORDS,
    ),
    "alphanumeric_filter": Operator(
        "AlphaFilter",
        {"min_ratio": "min_alpha_ratio"},
        {"min_alpha_ratio": 0.25},
        dropped=("tokenization", "max_ratio"),
        difference="letters count, and digits do not",
    ),
    "special_characters_filter": Operator(
        "NonAlphaNumericFilter",
        {"max_ratio": "max_non_alpha_numeric_to_text_ratio"},
        {"max_non_alpha_numeric_to_text_ratio": 0.25},
        dropped=("min_ratio",),
        difference="what counts is every character but letters and digits of English, . , ? ! and line feeds",
    ),
    "word_repetition_filter": Operator(
        "RepeatingDuplicateNGramsFilter",
        {"rep_len": "n", "max_ratio": "max_repeating_duplicate_ngram_ratio"},
        {"n": 10, "max_repeating_duplicate_ngram_ratio": 0.5},
        dropped=("tokenization", "min_ratio"),
        difference="the share is that of characters in repeated n-grams, not of n-grams",
    ),
    "token_num_filter": Operator(
        "TokenCountFilter",
        {"hf_tokenizer": "hf_model_name", "min_num": "min_tokens", "max_num": "max_tokens"},
        {"min_tokens": 10},
        values={"max_num": _NO_BOUND},
        needs={"hf_model_name": "the tokenizer, a file or hf:OWNER/NAME"},
    ),
    "document_deduplicator": Operator("ExactDeduplication"),
    "document_minhash_deduplicator": Operator(
        "FuzzyDeduplication",
        {
            "window_size": "word_ngrams",
            "jaccard_threshold": "threshold",
            "num_rows_per_band": "minhashes_per_band",
        },
        {"word_ngrams": 5, "threshold": 0.7},
        dropped=("num_permutations", "tokenizer_model", "ignore_pattern", "lowercase", "tokenization"),
        difference="the first document of a cluster stays; bands follow from the threshold",
    ),
    "clean_email_mapper": Operator("PiiRedactor", dropped=("pattern",), difference="the address becomes a mark"),
    "clean_ip_mapper": Operator("PiiRedactor", dropped=("pattern",), difference="the address becomes a mark"),
    "clean_links_mapper": Operator("UrlRemover", dropped=("pattern", "repl")),
    "fix_unicode_mapper": Operator("UnicodeReformatter", {}, {"normalization": "NFC"}),
    "topk_specified_field_selector": Operator(
        "TopK", {"field_key": "by", "topk": "k", "top_ratio": "share", "reverse": "smallest"}
    ),
    "random_selector": Operator("SamplerFilter", {"select_ratio": "rate"}),
}
"""By the name of the operator."""

_KINDS = {"clean_email_mapper": ["email"], "clean_ip_mapper": ["ip"]}
_RUN = {
    "executor_type": "`--executor` chooses who runs it",
    "use_cache": "a stage is never run twice: the ledger knows what is done",
    "use_checkpoint": "runs resume by themselves",
    "open_tracer": "`--dropped-to` keeps what is dropped, with the reason",
    "op_fusion": "stages are fused by themselves",
}
_IGNORED = frozenset(
    {"project_name", "dataset_path", "export_path", "np", "text_keys", "process", *_RUN, "temp_dir", "ds_cache_dir"}
)


def read(data: Mapping[str, Any], name: str) -> Imported:
    """Return the recipe for a configuration."""
    process = data.get("process")
    if not isinstance(process, list):
        raise UsageError(f"{name}: a configuration of Data-Juicer has a list `process` of operators")
    made = Imported(str(data.get("project_name") or name))
    field = _text_field(data, made)
    made.params = {"input_path": data.get("dataset_path") or "???", "output_path": _folder(data.get("export_path"))}
    made.executor = {"workers": data["np"]} if isinstance(data.get("np"), int) else {}
    made.stages.append({"DocumentReader": {"file_paths": "${input_path}"}})
    for key in data:
        if key in _RUN:
            made.differences.append(f"{key}: not needed here: {_RUN[key]}")
        elif key not in _IGNORED:
            made.missing.append(f"{key}: {show_value(data[key])} is not a part of recipes")
    for item in process:
        operator, given = (item, {}) if isinstance(item, str) else next(iter(item.items()))
        _add(made, str(operator), dict(given or {}), field)
    made.stages.append({"JsonlWriter": {"path": "${output_path}"}})
    return made


def _add(made: Imported, operator: str, given: dict[str, Any], field: str) -> None:
    """Add the stage for one operator."""
    given.pop("accelerator", None)
    given.pop("text_key", None)
    if operator == "language_id_score_filter":
        _add_language(made, given, field)
        return
    known = OPERATORS.get(operator)
    if known is None:
        made.add_unknown(operator, f"there is no such stage here.{nearest(operator, OPERATORS)}".rstrip("."))
        return
    fixed: dict[str, Any] = {} if field == "text" else {_field_of(known.stage): field}
    if operator in _KINDS:
        fixed |= {"kinds": _KINDS[operator]}
        if "repl" in given:
            fixed |= {"replacements": {_KINDS[operator][0]: given.pop("repl")}}
    if operator in ("document_deduplicator", "document_minhash_deduplicator"):
        fixed |= _normalization(operator, given)
    if operator == "topk_specified_field_selector":
        given["reverse"] = not given.get("reverse", True)
        fixed = {}
    if operator == "random_selector":
        fixed = {}
    made.add(operator, known, given, fixed)


def _add_language(made: Imported, given: dict[str, Any], field: str) -> None:
    languages = given.pop("lang", "") or []
    listed = [languages] if isinstance(languages, str) else list(languages)
    operator = Operator(
        "LanguageFilter", {"min_score": "language_threshold"}, {"language_threshold": 0.8}, difference=_MODEL
    )
    fixed = {"languages": listed or None, **({} if field == "text" else {"text_field": field})}
    made.add("language_id_score_filter", operator, given, fixed)


def _normalization(operator: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return how texts are compared."""
    lowercase = given.pop("lowercase", operator == "document_minhash_deduplicator")
    kinds = ["case"] if lowercase else []
    kinds += ["punctuation", "space"] if given.pop("ignore_non_character", False) else []
    found: dict[str, Any] = {"normalize": kinds} if kinds else {}
    if given.get("tokenization") == "character":
        found |= {"char_ngrams": given.pop("window_size", 5), "word_ngrams": None}
    return found


def _field_of(stage: str) -> str:
    return "input_fields" if stage in ("PiiRedactor", "UrlRemover", "UnicodeReformatter") else "text_field"


def _text_field(data: Mapping[str, Any], made: Imported) -> str:
    keys = data.get("text_keys") or "text"
    if isinstance(keys, list):
        if len(keys) > 1:
            made.missing.append(f"text_keys: {keys!r}: the first one is taken; give the others stages of their own")
        return str(keys[0])
    return str(keys)


def _folder(path: Any) -> str:
    """Return the folder for the output: here it has one file per unit."""
    if not path:
        return "???"
    head, _, tail = str(path).rpartition("/")
    return (head or ".") if "." in tail else str(path)
