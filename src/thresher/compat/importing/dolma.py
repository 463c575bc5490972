# SPDX-License-Identifier: Apache-2.0
"""Configurations of Dolma: `dolma tag`, `dolma mix` and `dolma dedupe`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thresher.compat.importing.operators import Imported, Operator
from thresher.core.arguments.parameters import show_value
from thresher.errors import UsageError

_AT_ONCE = "a tagger only scores; this drops at once. `--keep-scores` and `thresher rethreshold` try other thresholds"
_MODEL = "it drops at once, by the model of the extra langid; give model_path for a fastText model"

TAGGERS: tuple[tuple[str, tuple[Operator, ...]], ...] = (
    (r"gopher_v[12]", (Operator("GopherQualityFilter"), Operator("GopherRepetitionFilter", difference=_AT_ONCE))),
    (r"c4_v[12]", (Operator("C4QualityFilter", difference=_AT_ONCE),)),
    (
        r"(ft|cld2|fasttext|pycld2).*lang.*en|cld2_en.*|ft_lang_id_en.*",
        (Operator("LanguageFilter", {}, {"languages": ["en"]}, difference=_MODEL),),
    ),
    (r"pii_(regex|presidio).*", (Operator("PiiRedactor", difference="spans become marks at once"),)),
)
"""Patterns of the names of taggers, and what they are here."""

_ABOVE, _BELOW = ("<", "<="), (">", ">=")
RULES: dict[str, tuple[str, dict[str, str]]] = {
    "word_count": ("WordCountFilter", {"low": "min_words", "high": "max_words"}),
    "mean_word_length": ("MeanWordLengthFilter", {"low": "min_mean_word_length", "high": "max_mean_word_length"}),
    "median_word_length": ("MeanWordLengthFilter", {"low": "min_mean_word_length", "high": "max_mean_word_length"}),
    "symbol_to_word_ratio": ("SymbolsToWordsFilter", {"high": "max_symbol_to_word_ratio"}),
    "fraction_of_words_with_alpha_character": ("WordsWithoutAlphabetsFilter", {"low": "min_words_with_alphabets"}),
    "fraction_of_lines_starting_with_bullet_point": ("BulletsFilter", {"high": "max_bullet_lines_ratio"}),
    "fraction_of_lines_ending_with_ellipsis": ("EllipsisFilter", {"high": "max_num_lines_ending_with_ellipsis_ratio"}),
}
"""Attributes of documents, and the rule with the bounds of what is kept."""
_EXPRESSION = re.compile(
    r"""\$?\.?(?:\.attributes)?\[?\?*\(?\s*@?\.?(?:attributes\.)?['"]?(?P<name>\w+)['"]?\]?"""
    r"""\[0\]\[2\]\s*(?P<operator><=|>=|<|>)\s*(?P<bound>-?[\d.]+)"""
)


def read(data: Mapping[str, Any], name: str) -> Imported:
    """Return the recipe for a configuration of `tag`, `mix` or `dedupe`."""
    made = Imported(name)
    if "streams" in data:
        _mix(made, data)
    elif "dedupe" in data:
        _dedupe(made, data)
    elif "taggers" in data:
        _tag(made, data)
    else:
        raise UsageError(f"{name}: a configuration of Dolma has `taggers`, `streams` or `dedupe`")
    if isinstance(data.get("processes"), int):
        made.executor = {"workers": data["processes"]}
    return made


def _read_documents(made: Imported, documents: Any) -> None:
    listed = [documents] if isinstance(documents, str) else list(documents or [])
    made.params["input_path"] = (listed[0] if len(listed) == 1 else listed) or "???"
    made.stages.append({"JsonlReader": {"file_paths": "${input_path}"}})


def _write(made: Imported, path: Any, **arguments: Any) -> None:
    made.params["output_path"] = path or "???"
    made.stages.append({"JsonlWriter": {"path": "${output_path}", "compression": "gz", **arguments}})


def _tag(made: Imported, data: Mapping[str, Any]) -> None:
    _read_documents(made, data.get("documents"))
    for tagger in data["taggers"]:
        found = next((operators for pattern, operators in TAGGERS if re.fullmatch(pattern, str(tagger))), None)
        for operator in found or ():
            made.add(str(tagger), operator, {})
        if found is None:
            made.add_unknown(str(tagger), "there is no such stage here; a tagger of your own is a DocumentFilter")
    made.options["keep_scores"] = True
    _write(made, "???")


def _dedupe(made: Imported, data: Mapping[str, Any]) -> None:
    _read_documents(made, data.get("documents"))
    dedupe = data["dedupe"] or {}
    if dedupe.get("paragraphs"):
        made.stages.append({"LineDeduplication": {"unit": "paragraph"}})
        made.differences.append("paragraphs: repeated paragraphs are removed at once, and not marked as attributes")
        if (dedupe["paragraphs"] or {}).get("by_ngram"):
            made.missing.append("dedupe.paragraphs.by_ngram: SubstringDeduplication finds stretches of text")
    documents = dedupe.get("documents") or {}
    if documents:
        key = str(documents.get("key", "$.text")).removeprefix("$.")
        rate = (data.get("bloom_filter") or {}).get("desired_false_positive_rate")
        made.stages.append({"ExactDeduplication": {} if key == "text" else {"text_field": key}})
        made.differences.append(
            "documents: exact, without a Bloom filter; BloomDeduplication takes less memory"
            + (f" (false_positive_rate={rate})" if rate else "")
        )
    for key in ("min_length", "min_words", "num_partitions"):
        if dedupe.get(key):
            made.missing.append(f"dedupe.{key}: {show_value(dedupe[key])} has no counterpart")
    if (data.get("bloom_filter") or {}).get("read_only"):
        made.missing.append("bloom_filter.read_only: give the deduplication an `index` (docs/dedup.md)")
    _write(made, "???")


def _mix(made: Imported, data: Mapping[str, Any]) -> None:
    streams = list(data["streams"] or [])
    stream = streams[0] if streams else {}
    for other in streams[1:]:
        made.missing.append(f"streams: {other.get('name')!r}: one recipe has one output; import each stream by itself")
    made.name = re.sub(r"[^A-Za-z0-9_-]", "_", str(stream.get("name") or made.name))
    _read_documents(made, stream.get("documents"))
    chosen = stream.get("filter") or {}
    for kind in ("include", "exclude"):
        for expression in chosen.get(kind) or []:
            _add_rule(made, str(expression), excludes=kind == "exclude")
    for replacement in stream.get("span_replacement") or []:
        made.missing.append(f"span_replacement: {replacement.get('span')}: PiiRedactor and Modify rewrite texts")
    if data.get("shuffle", True):
        made.stages.append("GlobalShuffle")
    output = stream.get("output") or {}
    size = output.get("max_size_in_bytes")
    _write(made, output.get("path"), **({"target_file_size": size} if size else {}))
    for field in output.get("discard_fields") or []:
        made.missing.append(f"output.discard_fields: {field!r}: JsonlWriter has `fields`, the columns to write")


def _add_rule(made: Imported, expression: str, *, excludes: bool) -> None:
    """Add the rule that says what one JSONPath expression says about an attribute."""
    match = _EXPRESSION.search(expression)
    attribute = "" if match is None else match["name"].rsplit("__", 1)[-1]
    if match is None or attribute not in RULES:
        made.missing.append(f"filter: {expression}: only bounds of the attributes of gopher taggers can be translated")
        return
    stage, bounds = RULES[attribute]
    side = "low" if (match["operator"] in _ABOVE) == excludes else "high"
    if side not in bounds:
        made.missing.append(f"filter: {expression}: {stage} has no bound on this side")
        return
    bound = float(match["bound"])
    made.stages.append({stage: {bounds[side]: int(bound) if bound.is_integer() else bound}})
    made.differences.append(f"filter: {attribute}: computed here, and not read from an attribute file")
