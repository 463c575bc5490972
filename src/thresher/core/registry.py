# SPDX-License-Identifier: Apache-2.0
"""Every name that a recipe, the command line and `from thresher import …` know, and where it lives.

Targets are texts, `module:Name`, resolved when somebody asks: a new stage costs one line here and nothing at start-up.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from thresher.core.packages import EXTRAS, missing_package
from thresher.errors import UsageError, nearest

Kind = Literal["reader", "writer", "stage", "filter", "modifier"]

_IO = "thresher.stages.io"
_TEXT = "thresher.stages.text"

_BUILT_IN: dict[Kind, dict[str, str]] = {
    "reader": {
        "JsonlReader": f"{_IO}.jsonl_reader:JsonlReader",
        "ParquetReader": f"{_IO}.parquet_reader:ParquetReader",
    },
    "writer": {
        "JsonlWriter": f"{_IO}.jsonl_writer:JsonlWriter",
        "ParquetWriter": f"{_IO}.parquet_writer:ParquetWriter",
    },
    "stage": {
        "Score": f"{_TEXT}.score_filter:Score",
        "Filter": f"{_TEXT}.score_filter:Filter",
        "ScoreFilter": f"{_TEXT}.score_filter:ScoreFilter",
        "Modify": f"{_TEXT}.modify:Modify",
        "AddId": f"{_TEXT}.add_id:AddId",
        "C4BadWordsFilter": f"{_TEXT}.c4_bad_words:C4BadWordsFilter",
        "C4QualityFilter": f"{_TEXT}.c4_quality:C4QualityFilter",
        "FineWebQualityFilter": f"{_TEXT}.rules.fineweb_quality:FineWebQualityFilter",
        "GopherQualityFilter": f"{_TEXT}.rules.gopher_quality:GopherQualityFilter",
        "GopherRepetitionFilter": f"{_TEXT}.rules.gopher_repetition:GopherRepetitionFilter",
        "DocumentSplitter": f"{_TEXT}.document_splitter:DocumentSplitter",
        "DocumentJoiner": f"{_TEXT}.document_joiner:DocumentJoiner",
        "SamplerFilter": f"{_TEXT}.rules.sampler:SamplerFilter",
        "UrlBlocklistFilter": f"{_TEXT}.rules.url_blocklist:UrlBlocklistFilter",
        "Decontamination": f"{_TEXT}.decontamination:Decontamination",
        "TokenCounter": f"{_TEXT}.token_counter:TokenCounter",
        "DocumentStatistics": f"{_TEXT}.document_statistics:DocumentStatistics",
    },
    "filter": {
        "C4ParagraphFilter": f"{_TEXT}.rules.c4_paragraph:C4ParagraphFilter",
        "WordCountFilter": f"{_TEXT}.rules.word_count:WordCountFilter",
        "MeanWordLengthFilter": f"{_TEXT}.rules.mean_word_length:MeanWordLengthFilter",
        "NonAlphaNumericFilter": f"{_TEXT}.rules.non_alpha_numeric:NonAlphaNumericFilter",
        "RepeatedLinesFilter": f"{_TEXT}.rules.repeated_lines:RepeatedLinesFilter",
        "UrlsFilter": f"{_TEXT}.rules.urls:UrlsFilter",
        "AlphaFilter": f"{_TEXT}.rules.alpha:AlphaFilter",
        "BoilerPlateStringFilter": f"{_TEXT}.rules.boiler_plate_string:BoilerPlateStringFilter",
        "BulletsFilter": f"{_TEXT}.rules.bullets:BulletsFilter",
        "CommonEnglishWordsFilter": f"{_TEXT}.rules.common_english_words:CommonEnglishWordsFilter",
        "EllipsisFilter": f"{_TEXT}.rules.ellipsis:EllipsisFilter",
        "GeneralCommentToCodeFilter": f"{_TEXT}.rules.general_comment_to_code:GeneralCommentToCodeFilter",
        "HTMLBoilerplateFilter": f"{_TEXT}.rules.html_boilerplate:HTMLBoilerplateFilter",
        "LongWordFilter": f"{_TEXT}.rules.long_word:LongWordFilter",
        "NumberOfLinesOfCodeFilter": f"{_TEXT}.rules.number_of_lines_of_code:NumberOfLinesOfCodeFilter",
        "NumbersFilter": f"{_TEXT}.rules.numbers:NumbersFilter",
        "ParenthesesFilter": f"{_TEXT}.rules.parentheses:ParenthesesFilter",
        "PerExtensionFilter": f"{_TEXT}.rules.per_extension:PerExtensionFilter",
        "PornographicUrlsFilter": f"{_TEXT}.rules.pornographic_urls:PornographicUrlsFilter",
        "PunctuationFilter": f"{_TEXT}.rules.punctuation:PunctuationFilter",
        "PythonCommentToCodeFilter": f"{_TEXT}.rules.python_comment_to_code:PythonCommentToCodeFilter",
        "RepeatedLinesByCharFilter": f"{_TEXT}.rules.repeated_lines_by_char:RepeatedLinesByCharFilter",
        "RepeatedParagraphsByCharFilter": f"{_TEXT}.rules.repeated_paragraphs_by_char:RepeatedParagraphsByCharFilter",
        "RepeatedParagraphsFilter": f"{_TEXT}.rules.repeated_paragraphs:RepeatedParagraphsFilter",
        "RepeatingDuplicateNGramsFilter": f"{_TEXT}.rules.repeating_duplicate_ngrams:RepeatingDuplicateNGramsFilter",
        "RepeatingTopNGramsFilter": f"{_TEXT}.rules.repeating_top_ngrams:RepeatingTopNGramsFilter",
        "SubstringFilter": f"{_TEXT}.rules.substring:SubstringFilter",
        "SymbolsToWordsFilter": f"{_TEXT}.rules.symbols_to_words:SymbolsToWordsFilter",
        "TokenizerFertilityFilter": f"{_TEXT}.rules.tokenizer_fertility:TokenizerFertilityFilter",
        "WhiteSpaceFilter": f"{_TEXT}.rules.white_space:WhiteSpaceFilter",
        "WordsWithoutAlphabetsFilter": f"{_TEXT}.rules.words_without_alphabets:WordsWithoutAlphabetsFilter",
        "XMLHeaderFilter": f"{_TEXT}.rules.xml_header:XMLHeaderFilter",
        "FastTextQualityFilter": f"{_TEXT}.rules.fasttext_quality:FastTextQualityFilter",
        "FastTextLangId": f"{_TEXT}.rules.fasttext_lang_id:FastTextLangId",
        "LanguageFilter": f"{_TEXT}.rules.fasttext_lang_id:LanguageFilter",
        "UnigramLogProbFilter": f"{_TEXT}.rules.unigram_log_prob:UnigramLogProbFilter",
        "RegexFilter": f"{_TEXT}.rules.regex_rule:RegexFilter",
        "TokenCountFilter": f"{_TEXT}.rules.token_count:TokenCountFilter",
        "HistogramFilter": f"{_TEXT}.rules.histogram:HistogramFilter",
    },
    "modifier": {
        "NewlineNormalizer": f"{_TEXT}.modifiers.newline_normalizer:NewlineNormalizer",
        "UnicodeReformatter": f"{_TEXT}.modifiers.unicode_reformatter:UnicodeReformatter",
        "UnicodeNormalizer": f"{_TEXT}.modifiers.unicode_normalizer:UnicodeNormalizer",
        "UrlRemover": f"{_TEXT}.modifiers.url_remover:UrlRemover",
        "MarkdownRemover": f"{_TEXT}.modifiers.markdown_remover:MarkdownRemover",
        "QuotationRemover": f"{_TEXT}.modifiers.quotation_remover:QuotationRemover",
        "LineRemover": f"{_TEXT}.modifiers.line_remover:LineRemover",
        "BoilerPlateStringModifier": f"{_TEXT}.modifiers.boilerplate_string:BoilerPlateStringModifier",
        "Slicer": f"{_TEXT}.modifiers.slicer:Slicer",
        "FastTextLabelModifier": f"{_TEXT}.modifiers.fasttext_label:FastTextLabelModifier",
        "PiiRedactor": f"{_TEXT}.modifiers.pii_redactor:PiiRedactor",
    },
}

PUBLIC_NAMES: dict[str, str] = {
    "Task": "thresher.core.task:Task",
    "EmptyTask": "thresher.core.task:EmptyTask",
    "FileGroupTask": "thresher.core.task:FileGroupTask",
    "DocumentBatch": "thresher.core.batch:DocumentBatch",
    "ProcessingStage": "thresher.core.stage:ProcessingStage",
    "CompositeStage": "thresher.core.stage:CompositeStage",
    "processing_stage": "thresher.core.stage:processing_stage",
    "Resources": "thresher.core.resources:Resources",
    "NodeInfo": "thresher.core.resources:NodeInfo",
    "WorkerMetadata": "thresher.core.resources:WorkerMetadata",
    "Pipeline": "thresher.core.pipeline:Pipeline",
    "RunResult": "thresher.core.result:RunResult",
    "LocalExecutor": "thresher.backends.local:LocalExecutor",
    "SerialExecutor": "thresher.backends.serial:SerialExecutor",
    "RayExecutor": "thresher.backends.ray:RayExecutor",
    "RayActorPoolExecutor": "thresher.backends.ray_actor_pool:RayActorPoolExecutor",
    "RayDataExecutor": "thresher.backends.ray_data:RayDataExecutor",
    "XennaExecutor": "thresher.backends.xenna:XennaExecutor",
    "DocumentFilter": f"{_TEXT}.document_filter:DocumentFilter",
    "DocumentModifier": f"{_TEXT}.document_modifier:DocumentModifier",
    "load_recipe": "thresher.core.recipe:load_recipe",
    "ThresherError": "thresher.errors:ThresherError",
    **{name: target for group in _BUILT_IN.values() for name, target in group.items()},
}
"""What `from thresher import …` offers."""

EXECUTORS: dict[str, str] = {
    "local": "thresher.backends.local:LocalExecutor",
    "serial": "thresher.backends.serial:SerialExecutor",
    "ray": "thresher.backends.ray:RayExecutor",
    "actor-pool": "thresher.backends.ray_actor_pool:RayActorPoolExecutor",
    "ray-data": "thresher.backends.ray_data:RayDataExecutor",
    "xenna": "thresher.backends.xenna:XennaExecutor",
}
"""What `--executor` and a recipe's `executor` may name."""

DEFAULT_EXECUTOR = "local"


@dataclass(frozen=True)
class Entry:
    """One stage, filter or modifier that a recipe may name."""

    name: str
    """What a recipe calls it: the name of its class."""
    kind: Kind
    """A filter is wrapped in `ScoreFilter`, a modifier in `Modify`; the others are stages themselves."""
    target: str
    """Where its class lives, `module:Class`."""
    registered: type[Any] | None = None
    """The class itself, where a plug-in brought it."""

    def load(self) -> type[Any]:
        """The class."""
        found: type[Any] = self.registered if self.registered is not None else resolve(self.target)
        return found

    def summary(self) -> str:
        """What it does, in one line: the first line of its class's docstring."""
        return summary_of(self.load())


_plug_ins: dict[str, Entry] = {}

AnyClass = TypeVar("AnyClass", bound=type[Any])


def entries() -> dict[str, Entry]:
    """Everything that a recipe may name, readers first, in the order of the tables; plug-ins last."""
    known = {
        name: Entry(name, kind, target) for kind, group in _BUILT_IN.items() for name, target in sorted(group.items())
    }
    return known | _plug_ins


def lookup(name: str) -> Entry:
    """The entry of `name`; an error suggests the nearest name."""
    known = entries()
    if name not in known:
        raise UsageError(
            f"{name!r} is no stage, filter or modifier that Thresher knows.{_hint(name, list(known))}"
            " `thresher stages` lists them all"
        )
    return known[name]


def _hint(name: str, known: list[str]) -> str:
    """The nearest name, or those that hold what was asked for: people remember a part of a name."""
    holding = [one for one in known if name and name.lower() in one.lower()]
    return f" Did you mean {' or '.join(map(repr, holding[:3]))}?" if holding else nearest(name, known)


def register(cls: AnyClass) -> AnyClass:
    """Let recipes name a class of your own: a stage, a filter or a modifier. Works as a decorator."""
    name = cls.__name__
    target = f"{cls.__module__}:{cls.__qualname__}"
    known = entries().get(name)
    if known is not None and known.target != target:
        raise UsageError(f"{name!r} cannot be registered for {target}: the name belongs to {known.target}")
    _plug_ins[name] = Entry(name, kind_of(cls), target, cls)
    return cls


def kind_of(cls: type[Any]) -> Kind:
    """What a class is, told by what it defines."""
    from thresher.core.stage import ProcessingStage, SinkStage, SourceStage

    if issubclass(cls, SourceStage):
        return "reader"
    if issubclass(cls, SinkStage):
        return "writer"
    if issubclass(cls, ProcessingStage):
        return "stage"
    if callable(getattr(cls, "score_document", None)):
        return "filter"
    if callable(getattr(cls, "modify_document", None)):
        return "modifier"
    raise UsageError(
        f"{cls.__module__}.{cls.__qualname__} is neither a ProcessingStage, nor a DocumentFilter (score_document),"
        " nor a DocumentModifier (modify_document)"
    )


def executor_fault(name: str) -> str:
    """What is wrong with the name of an executor; empty if nothing is."""
    if name in EXECUTORS:
        return ""
    return f"{name!r} is no executor.{nearest(name, EXECUTORS)} There is: {', '.join(EXECUTORS)}"


def load_executor(name: str) -> Any:
    """The executor class that a name stands for."""
    fault = executor_fault(name)
    if fault:
        raise UsageError(f"executor: {fault}")
    try:
        return resolve(EXECUTORS[name])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            raise missing_package(package, f"executor {name!r}") from error
        raise


def resolve(target: str) -> Any:
    """The object behind `module:Name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def summary_of(item: Any) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(item) or "").split("\n", 1)[0].rstrip(".")
