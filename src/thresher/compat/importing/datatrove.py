# SPDX-License-Identifier: Apache-2.0
"""Scripts of datatrove: the pipeline of an executor, as far as it is written down with plain values.

The script is parsed and never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from thresher.compat.importing.operators import Imported, Operator
from thresher.core.arguments.parameters import show_value
from thresher.errors import UsageError, nearest

_EXECUTORS = ("LocalPipelineExecutor", "SlurmPipelineExecutor", "RayPipelineExecutor", "JobsPipelineExecutor")
_SPEED = ("file_progress", "doc_progress", "batch_size", "recursive", "compression", "read_metadata", "expand_metadata")
_WRITER = ("output_filename", "save_media_bytes", "use_content_defined_chunking", "write_page_index", *_SPEED[2:])
_MODEL = "the model that comes with the extra langid; give model_path for lid.176.bin, which datatrove takes"
_WORDS = "words are found by white space; datatrove asks spaCy"

OPERATORS: dict[str, Operator] = {
    "JsonlReader": Operator("JsonlReader", {"data_folder": "file_paths"}, dropped=(*_SPEED, "id_key")),
    "ParquetReader": Operator("ParquetReader", {"data_folder": "file_paths"}, dropped=(*_SPEED, "id_key")),
    "JsonlWriter": Operator(
        "JsonlWriter",
        {"output_folder": "path", "max_file_size": "target_file_size"},
        {"compression": "gz"},
        dropped=tuple(name for name in _WRITER if name != "compression"),
        values={"compression": {"gzip": "gz", "zstd": "zst"}},
        difference="files are named after their input",
    ),
    "ParquetWriter": Operator(
        "ParquetWriter",
        {"output_folder": "path", "max_file_size": "target_file_size"},
        dropped=tuple(name for name in _WRITER if name != "compression"),
        difference="files are named after their input",
    ),
    "GopherQualityFilter": Operator("GopherQualityFilter", dropped=("language",), difference=_WORDS),
    "GopherRepetitionFilter": Operator("GopherRepetitionFilter", dropped=("language",), difference=_WORDS),
    "C4QualityFilter": Operator("C4QualityFilter", dropped=("language",)),
    "C4ParagraphFilter": Operator("C4ParagraphFilter"),
    "C4BadWordsFilter": Operator("C4BadWordsFilter", needs={"word_lists": "lists of words; datatrove downloads them"}),
    "FineWebQualityFilter": Operator("FineWebQualityFilter", dropped=("language",)),
    "LanguageFilter": Operator("LanguageFilter", dropped=("backend",), difference=_MODEL),
    "SamplerFilter": Operator("SamplerFilter", difference="documents are drawn by their ids"),
    "RegexFilter": Operator("RegexFilter"),
    "UnigramLogProbFilter": Operator(
        "UnigramLogProbFilter",
        dropped=("language",),
        needs={"frequency_file": "frequencies of words; datatrove downloads them"},
    ),
    "URLFilter": Operator(
        "UrlBlocklistFilter",
        {"extra_domains": "domains", "extra_urls": "urls"},
        dropped=("use_integrated_lists",),
        difference="the lists that come with datatrove are not here: give domains and urls",
    ),
    "PIIFormatter": Operator(
        "PiiRedactor",
        dropped=("remove_emails", "remove_ips", "only_remove_public_ips", "email_replacement", "ip_replacement"),
        difference="addresses become marks",
    ),
    "FTFYFormatter": Operator("UnicodeReformatter"),
    "TokensCounter": Operator(
        "TokenCounter", {"tokenizer_name_or_path": "tokenizer"}, dropped=("count_eos_token", "batch_size")
    ),
    "MinhashDedupSignature": Operator(
        "FuzzyDeduplication", {}, {"mode": "datatrove"}, dropped=("language", "output_folder", "skip_existing_sigs")
    ),
    "ExactDedupSignature": Operator("ExactDeduplication", dropped=("output_folder", "finder_workers")),
    "SentenceDedupSignature": Operator(
        "LineDeduplication",
        {},
        {"unit": "sentence"},
        dropped=("output_folder", "finder_workers", "language"),
        difference="spans of sentences are set with `span`",
    ),
}
"""By the name of the class."""
_LATER_STEPS = {
    **dict.fromkeys(("MinhashDedupBuckets", "MinhashDedupCluster", "MinhashDedupFilter"), "FuzzyDeduplication"),
    **dict.fromkeys(("ExactFindDedups", "ExactDedupFilter"), "ExactDeduplication"),
    **dict.fromkeys(("SentenceFindDedups", "SentenceDedupFilter"), "LineDeduplication"),
}
"""Steps that are part of one stage here."""
_READERS, _WRITERS = ("JsonlReader", "ParquetReader"), ("JsonlWriter", "ParquetWriter")
_CONFIG = {"n_grams": "word_ngrams", "num_buckets": "num_bands", "hashes_per_bucket": "minhashes_per_band"}


def read(text: str, name: str) -> Imported:
    """Return the recipe for all pipelines of a script, one after the other."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{name}: line {error.lineno}: not a Python script: {error.msg}") from None
    script = _Script(tree)
    pipelines = list(script.pipelines())
    if not pipelines:
        raise UsageError(f"{name}: there is no {', '.join(_EXECUTORS)} with a list `pipeline` in it")
    made = Imported(name)
    for executor, steps in pipelines:
        _add_executor(made, script, executor)
        for step in steps:
            _add(made, script, step)
    _join(made)
    return made


class _Script:
    """The values of a script that can be read without running it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.names = {
            target.id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def pipelines(self) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
        """Yield the calls of executors with the steps of their pipelines, in the order of the script."""
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and _name(node) in _EXECUTORS]
        for call in sorted(calls, key=lambda node: node.lineno):
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            steps = self.resolved(given.get("pipeline", call.args[0] if call.args else ast.Constant(None)))
            if isinstance(steps, ast.List):
                yield call, steps.elts

    def resolved(self, node: ast.expr) -> ast.expr:
        """Return what a name was assigned."""
        for _ in range(10):
            if not (isinstance(node, ast.Name) and node.id in self.names):
                break
            node = self.names[node.id]
        return node

    def value(self, node: ast.expr) -> Any:
        """Return a plain value; raise `ValueError` for one that only running the script would give."""
        node = self.resolved(node)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
            return "".join(str(self.value(part)) for part in parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult | ast.Pow):
            left, right = self.value(node.left), self.value(node.right)
            return left + right if isinstance(node.op, ast.Add) else _product(left, right, node.op)
        return ast.literal_eval(node)


def _product(left: Any, right: Any, operator: ast.operator) -> Any:
    if not all(isinstance(one, int | float) and abs(one) < 2**40 for one in (left, right)):
        raise ValueError("not a number")
    if isinstance(operator, ast.Pow):
        return left**right if 0 <= right < 64 else 0
    return left * right


def _name(call: ast.Call) -> str:
    function = call.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _add_executor(made: Imported, script: _Script, call: ast.Call) -> None:
    for keyword in call.keywords:
        if keyword.arg == "workers" and _name(call) == "LocalPipelineExecutor":
            workers = _value_or_none(script, keyword.value)
            if isinstance(workers, int) and workers > 0:
                made.executor["workers"] = workers
    if _name(call) == "SlurmPipelineExecutor":
        made.differences.append("SlurmPipelineExecutor: one run over all nodes of a job, see docs/cluster.md")


def _value_or_none(script: _Script, node: ast.expr) -> Any:
    try:
        return script.value(node)
    except ValueError:
        return None


def _add(made: Imported, script: _Script, node: ast.expr) -> None:
    """Add the stage for one step."""
    call = script.resolved(node)
    if not isinstance(call, ast.Call):
        made.add_unknown(ast.unparse(node)[:60], "only a call of a class can be translated")
        return
    name = _name(call)
    if name in _LATER_STEPS:
        return
    operator = OPERATORS.get(name)
    if operator is None:
        made.add_unknown(name, f"there is no such stage here.{nearest(name, OPERATORS)}".rstrip("."))
        return
    given: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    first = next(iter(operator.renamed), "") if name in (*_READERS, *_WRITERS) else ""
    nodes = {
        **({first: call.args[0]} if call.args and first else {}),
        **{k.arg or "**": k.value for k in call.keywords},
    }
    for key, value in nodes.items():
        if key == "exclusion_writer":
            _add_exclusion(made, script, value)
        elif key == "config":
            fixed |= _config(made, script, name, value)
        else:
            try:
                given[key] = script.value(value)
            except ValueError:
                made.missing.append(f"{name}.{key}: {ast.unparse(value)[:60]} is known only when the script runs")
    if name in _READERS:
        fixed |= _reader(made, given, name)
    made.add(name, operator, {key: value for key, value in given.items() if value not in (None, -1)}, fixed)


def _reader(made: Imported, given: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the paths of a reader; a pattern is a part of them here."""
    if given.pop("text_key", "text") != "text":
        made.missing.append(f"{name}.text_key: give the stages text_field, or input_fields for modifiers")
    pattern = given.pop("glob_pattern", None)
    if pattern and "data_folder" in given:
        return {"file_paths": f"{str(given.pop('data_folder')).rstrip('/')}/{pattern}"}
    return {}


def _add_exclusion(made: Imported, script: _Script, node: ast.expr) -> None:
    """Keep what is dropped: one folder for all filters, with the reason in each document."""
    call = script.resolved(node)
    folder = _value_or_none(script, call.args[0]) if isinstance(call, ast.Call) and call.args else None
    if isinstance(folder, str) and "dropped_to" not in made.options:
        made.options["dropped_to"] = folder
        made.differences.append(f"exclusion_writer: what all filters drop goes to {folder}, with its reason")


def _config(made: Imported, script: _Script, name: str, node: ast.expr) -> dict[str, Any]:
    """Return the parameters in a configuration object of a deduplication."""
    call = script.resolved(node)
    found: dict[str, Any] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else []:
        value = _value_or_none(script, keyword.value)
        if keyword.arg in _CONFIG and value is not None:
            found[_CONFIG[keyword.arg]] = value
        else:
            shown = show_value(value) if value is not None else ast.unparse(keyword.value)[:60]
            made.missing.append(f"{name}.config.{keyword.arg}: {shown} has no counterpart")
    return found


def _join(made: Imported) -> None:
    """Leave out the writers and readers between pipelines, and stages that a script has in several pipelines."""
    names = [item if isinstance(item, str) else next(iter(item)) for item in made.stages]
    readers = [place for place, name in enumerate(names) if name in _READERS]
    writers = [place for place, name in enumerate(names) if name in _WRITERS]
    left_out = {*readers[1:], *writers[:-1]}
    if left_out:
        made.differences.append("the pipelines became one: what one wrote for the next is not written")
    made.stages = [item for place, item in enumerate(made.stages) if place not in left_out]
    if not readers:
        made.params["input_path"] = "???"
        made.stages.insert(0, {"DocumentReader": {"file_paths": "${input_path}"}})
    if not writers:
        made.params["output_path"] = "???"
        made.stages.append({"JsonlWriter": {"path": "${output_path}"}})
    unique: list[Any] = []
    for item in made.stages:
        if not (item in unique and "Deduplication" in str(item)):
            unique.append(item)
    made.stages = unique
