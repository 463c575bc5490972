# SPDX-License-Identifier: Apache-2.0
"""All names that recipes, the command line and `from thresher import …` accept, where they are defined, and the
optional packages that some of them need.

Targets are strings of the form `module:Name` that are resolved on first use: a new stage costs one line here and
nothing at start-up.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from thresher.errors import MissingPackageError, UsageError, nearest

Kind = Literal["reader", "writer", "stage", "filter", "modifier"]

_IO = "thresher.stages.io"
_TEXT = "thresher.stages.text"
_RULES = f"{_TEXT}.rules"
_LLM = f"{_TEXT}.llm"
_CORPUS = "thresher.stages.corpus"
_DEDUP = "thresher.stages.dedup"
_CLASSIFIERS = f"{_TEXT}.classifiers"

_BUILT_IN: dict[Kind, dict[str, str]] = {
    "reader": {
        "DocumentReader": f"{_IO}.document_reader:DocumentReader",
        "JsonlReader": f"{_IO}.jsonl.reader:JsonlReader",
        "ParquetReader": f"{_IO}.parquet.reader:ParquetReader",
    },
    "writer": {
        "JsonlWriter": f"{_IO}.jsonl.writer:JsonlWriter",
        "ParquetWriter": f"{_IO}.parquet.writer:ParquetWriter",
        "IndexWriter": f"{_DEDUP}.index:IndexWriter",
        "MegatronTokenizerWriter": f"{_IO}.megatron.writer:MegatronTokenizerWriter",
    },
    "stage": {
        "Score": f"{_TEXT}.judging.score_filter:Score",
        "Filter": f"{_TEXT}.judging.score_filter:Filter",
        "ScoreFilter": f"{_TEXT}.judging.score_filter:ScoreFilter",
        "Modify": f"{_TEXT}.modify:Modify",
        "AddId": f"{_TEXT}.add_id:AddId",
        "C4BadWordsFilter": f"{_TEXT}.c4.bad_words:C4BadWordsFilter",
        "C4QualityFilter": f"{_TEXT}.c4.quality:C4QualityFilter",
        "FineWebQualityFilter": f"{_RULES}.sets.fineweb_quality:FineWebQualityFilter",
        "GopherQualityFilter": f"{_RULES}.sets.gopher_quality:GopherQualityFilter",
        "GopherRepetitionFilter": f"{_RULES}.sets.gopher_repetition:GopherRepetitionFilter",
        "DocumentSplitter": f"{_TEXT}.segments.document_splitter:DocumentSplitter",
        "DocumentJoiner": f"{_TEXT}.segments.document_joiner:DocumentJoiner",
        "SamplerFilter": f"{_RULES}.sampler:SamplerFilter",
        "UrlBlocklistFilter": f"{_RULES}.web.url_blocklist:UrlBlocklistFilter",
        "Decontamination": f"{_TEXT}.decontamination:Decontamination",
        "LanguageId": f"{_TEXT}.language.language_id:LanguageId",
        "TokenCounter": f"{_TEXT}.token_counter:TokenCounter",
        "TokenEncoder": f"{_TEXT}.token_encoder:TokenEncoder",
        "DocumentStatistics": f"{_TEXT}.document_statistics:DocumentStatistics",
        "GenerateText": f"{_LLM}.generate:GenerateText",
        "JudgeText": f"{_LLM}.judge:JudgeText",
        "RewriteText": f"{_LLM}.rewrite:RewriteText",
        "TranslateText": f"{_LLM}.rewrite:TranslateText",
        "ExtractFields": f"{_LLM}.extract:ExtractFields",
        "GlobalShuffle": f"{_CORPUS}.global_shuffle:GlobalShuffle",
        "GlobalSort": f"{_CORPUS}.global_sort:GlobalSort",
        "GroupBy": f"{_CORPUS}.group_by:GroupBy",
        "TopK": f"{_CORPUS}.sampling.top_k:TopK",
        "Route": f"{_CORPUS}.route:Route",
        "Split": f"{_CORPUS}.route:Split",
        "Copy": f"{_CORPUS}.route:Copy",
        "Blend": f"{_CORPUS}.sampling.blend:Blend",
        "PercentileRange": f"{_CORPUS}.sampling.percentile_range:PercentileRange",
        "PercentileRank": f"{_CORPUS}.quality.percentile_rank:PercentileRank",
        "ScoreEnsemble": f"{_CORPUS}.quality.score_ensemble:ScoreEnsemble",
        "QualityBuckets": f"{_CORPUS}.quality.quality_buckets:QualityBuckets",
        "BucketSample": f"{_CORPUS}.sampling.bucket_sample:BucketSample",
        "StratifiedSample": f"{_CORPUS}.sampling.stratified_sample:StratifiedSample",
        "Join": f"{_CORPUS}.join:Join",
        "PackSequences": f"{_CORPUS}.pack_sequences:PackSequences",
        "CorpusStatistics": f"{_CORPUS}.statistics.corpus_statistics:CorpusStatistics",
        "NGramCounts": f"{_CORPUS}.statistics.ngram_counts:NGramCounts",
        "BloomDeduplication": f"{_DEDUP}.bloom:BloomDeduplication",
        "ExactDeduplication": f"{_DEDUP}.exact:ExactDeduplication",
        "FuzzyDeduplication": f"{_DEDUP}.fuzzy:FuzzyDeduplication",
        "LineDeduplication": f"{_DEDUP}.lines:LineDeduplication",
        "SemanticDeduplication": f"{_DEDUP}.semantic.semantic:SemanticDeduplication",
        "SubstringDeduplication": f"{_DEDUP}.substring:SubstringDeduplication",
        "RemoveListed": f"{_DEDUP}.remove_listed:RemoveListed",
        "Tokenize": f"{_TEXT}.models.tokenize:Tokenize",
        "EmbeddingCreatorStage": f"{_TEXT}.embeddings.creator:EmbeddingCreatorStage",
        "SequenceClassifier": f"{_CLASSIFIERS}.classifier:SequenceClassifier",
        "QualityClassifier": f"{_CLASSIFIERS}.named:QualityClassifier",
        "DomainClassifier": f"{_CLASSIFIERS}.named:DomainClassifier",
        "MultilingualDomainClassifier": f"{_CLASSIFIERS}.named:MultilingualDomainClassifier",
        "ContentTypeClassifier": f"{_CLASSIFIERS}.named:ContentTypeClassifier",
        "FineWebEduClassifier": f"{_CLASSIFIERS}.named:FineWebEduClassifier",
        "FineWebMixtralEduClassifier": f"{_CLASSIFIERS}.named:FineWebMixtralEduClassifier",
        "FineWebNemotronEduClassifier": f"{_CLASSIFIERS}.named:FineWebNemotronEduClassifier",
        "FineMathClassifier": f"{_CLASSIFIERS}.named:FineMathClassifier",
        "PromptTaskComplexityClassifier": f"{_CLASSIFIERS}.prompts:PromptTaskComplexityClassifier",
        "AegisClassifier": f"{_CLASSIFIERS}.safety:AegisClassifier",
        "InstructionDataGuardClassifier": f"{_CLASSIFIERS}.safety:InstructionDataGuardClassifier",
    },
    "filter": {
        "C4ParagraphFilter": f"{_RULES}.lines.paragraphs:C4ParagraphFilter",
        "WordCountFilter": f"{_RULES}.words.word_counts:WordCountFilter",
        "MeanWordLengthFilter": f"{_RULES}.words.word_counts:MeanWordLengthFilter",
        "NonAlphaNumericFilter": f"{_RULES}.characters.character_shares:NonAlphaNumericFilter",
        "RepeatedLinesFilter": f"{_RULES}.lines.repeated_passages:RepeatedLinesFilter",
        "UrlsFilter": f"{_RULES}.web.urls:UrlsFilter",
        "AlphaFilter": f"{_RULES}.characters.character_shares:AlphaFilter",
        "BoilerPlateStringFilter": f"{_RULES}.lines.paragraphs:BoilerPlateStringFilter",
        "BulletsFilter": f"{_RULES}.lines.line_marks:BulletsFilter",
        "CommonEnglishWordsFilter": f"{_RULES}.words.word_counts:CommonEnglishWordsFilter",
        "EllipsisFilter": f"{_RULES}.lines.line_marks:EllipsisFilter",
        "GeneralCommentToCodeFilter": f"{_RULES}.code.comments:GeneralCommentToCodeFilter",
        "HTMLBoilerplateFilter": f"{_RULES}.code.source_files:HTMLBoilerplateFilter",
        "LongWordFilter": f"{_RULES}.words.word_counts:LongWordFilter",
        "NumberOfLinesOfCodeFilter": f"{_RULES}.code.source_files:NumberOfLinesOfCodeFilter",
        "NumbersFilter": f"{_RULES}.characters.character_shares:NumbersFilter",
        "ParenthesesFilter": f"{_RULES}.characters.character_shares:ParenthesesFilter",
        "PerExtensionFilter": f"{_RULES}.code.per_extension:PerExtensionFilter",
        "PornographicUrlsFilter": f"{_RULES}.web.urls:PornographicUrlsFilter",
        "PunctuationFilter": f"{_RULES}.lines.line_marks:PunctuationFilter",
        "PythonCommentToCodeFilter": f"{_RULES}.code.comments:PythonCommentToCodeFilter",
        "RepeatedLinesByCharFilter": f"{_RULES}.lines.repeated_passages:RepeatedLinesByCharFilter",
        "RepeatedParagraphsByCharFilter": f"{_RULES}.lines.repeated_passages:RepeatedParagraphsByCharFilter",
        "RepeatedParagraphsFilter": f"{_RULES}.lines.repeated_passages:RepeatedParagraphsFilter",
        "RepeatingDuplicateNGramsFilter": f"{_RULES}.lines.repeated_ngrams:RepeatingDuplicateNGramsFilter",
        "RepeatingTopNGramsFilter": f"{_RULES}.lines.repeated_ngrams:RepeatingTopNGramsFilter",
        "SubstringFilter": f"{_RULES}.characters.patterns:SubstringFilter",
        "SymbolsToWordsFilter": f"{_RULES}.words.word_counts:SymbolsToWordsFilter",
        "TokenizerFertilityFilter": f"{_RULES}.words.tokens:TokenizerFertilityFilter",
        "WhiteSpaceFilter": f"{_RULES}.characters.character_shares:WhiteSpaceFilter",
        "WordsWithoutAlphabetsFilter": f"{_RULES}.words.word_counts:WordsWithoutAlphabetsFilter",
        "XMLHeaderFilter": f"{_RULES}.code.source_files:XMLHeaderFilter",
        "FastTextQualityFilter": f"{_RULES}.models.fasttext_quality:FastTextQualityFilter",
        "FastTextLangId": f"{_RULES}.models.fasttext_lang_id:FastTextLangId",
        "LanguageFilter": f"{_TEXT}.language.language_filter:LanguageFilter",
        "UnigramLogProbFilter": f"{_RULES}.words.unigram_log_prob:UnigramLogProbFilter",
        "RegexFilter": f"{_RULES}.characters.patterns:RegexFilter",
        "TokenCountFilter": f"{_RULES}.words.tokens:TokenCountFilter",
        "HistogramFilter": f"{_RULES}.characters.histogram:HistogramFilter",
    },
    "modifier": {
        "NewlineNormalizer": f"{_TEXT}.modifiers.line_remover:NewlineNormalizer",
        "UnicodeReformatter": f"{_TEXT}.modifiers.unicode_reformatter:UnicodeReformatter",
        "UnicodeNormalizer": f"{_TEXT}.modifiers.unicode_reformatter:UnicodeNormalizer",
        "UrlRemover": f"{_TEXT}.modifiers.url_remover:UrlRemover",
        "MarkdownRemover": f"{_TEXT}.modifiers.markdown_remover:MarkdownRemover",
        "QuotationRemover": f"{_TEXT}.modifiers.markdown_remover:QuotationRemover",
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
    "DocumentBatch": "thresher.core.documents.batch:DocumentBatch",
    "ProcessingStage": "thresher.core.stage:ProcessingStage",
    "CompositeStage": "thresher.core.stage:CompositeStage",
    "processing_stage": "thresher.core.function_stage:processing_stage",
    "SourceStage": "thresher.core.stage:SourceStage",
    "SinkStage": "thresher.core.stage:SinkStage",
    "RecordTask": "thresher.core.records.record_task:RecordTask",
    "ReduceStage": f"{_CORPUS}.reduce:ReduceStage",
    "ShuffleStage": f"{_CORPUS}.shuffle:ShuffleStage",
    "Resources": "thresher.core.resources:Resources",
    "NodeInfo": "thresher.core.resources:NodeInfo",
    "WorkerMetadata": "thresher.core.resources:WorkerMetadata",
    "Pipeline": "thresher.core.pipeline:Pipeline",
    "RunResult": "thresher.core.pipeline:RunResult",
    "LocalExecutor": "thresher.backends.local:LocalExecutor",
    "SerialExecutor": "thresher.backends.serial:SerialExecutor",
    "RayExecutor": "thresher.backends.ray:RayExecutor",
    "RayActorPoolExecutor": "thresher.backends.ray_actor_pool:RayActorPoolExecutor",
    "RayDataExecutor": "thresher.backends.ray_data:RayDataExecutor",
    "XennaExecutor": "thresher.backends.xenna:XennaExecutor",
    "DocumentFilter": f"{_TEXT}.judging.rule:DocumentFilter",
    "DocumentModifier": f"{_TEXT}.document_modifier:DocumentModifier",
    "LLMClient": "thresher.models.endpoint.client:LLMClient",
    "load_recipe": "thresher.core.recipes.recipe:load_recipe",
    "merge_file_prefixes": f"{_IO}.megatron.merge:merge_file_prefixes",
    "ThresherError": "thresher.errors:ThresherError",
    **{name: target for group in _BUILT_IN.values() for name, target in group.items()},
}
"""Names that `from thresher import …` offers."""

RECORD_NAMES: dict[str, str] = {
    **{name: PUBLIC_NAMES[name] for name in ("RecordTask", "SourceStage", "SinkStage")},
    "Piece": "thresher.core.unit:Piece",
    "Unit": "thresher.core.unit:Unit",
    "RawChunk": "thresher.core.task:RawChunk",
    "RecordIds": "thresher.core.records.record_ids:RecordIds",
    "SourceItem": "thresher.core.source:SourceItem",
    "ReadContext": "thresher.core.source:ReadContext",
    "FileFacts": "thresher.core.source:FileFacts",
    "RecordWriter": "thresher.core.source:RecordWriter",
    "failed_record": "thresher.core.source:failed_record",
    "EncodedWriter": f"{_IO}.encoded_writer:EncodedWriter",
    "LocalFile": f"{_IO}.file_writer:LocalFile",
    "file_units": f"{_IO}.file_units:file_units",
    "open_piece": "thresher.core.files.filesystem:open_piece",
}
"""Names that `from thresher.records import …` offers."""

OUTLET_FILES = f"{_CORPUS}.outlets:OutletFiles"
OUTLET_READER = f"{_CORPUS}.outlets:OutletReader"

EXECUTORS: dict[str, str] = {
    "local": "thresher.backends.local:LocalExecutor",
    "serial": "thresher.backends.serial:SerialExecutor",
    "ray": "thresher.backends.ray:RayExecutor",
    "actor-pool": "thresher.backends.ray_actor_pool:RayActorPoolExecutor",
    "ray-data": "thresher.backends.ray_data:RayDataExecutor",
    "xenna": "thresher.backends.xenna:XennaExecutor",
}
"""Names that `--executor` and a recipe's `executor` accept."""

DEFAULT_EXECUTOR = "local"

WRAPPERS: dict[Kind, str] = {"filter": "ScoreFilter", "modifier": "Modify"}
"""Stage that wraps a filter or a modifier, which is its first parameter."""


@dataclass(frozen=True)
class Entry:
    """One stage, filter or modifier that a recipe may name."""

    name: str
    """Name in recipes: the class name."""
    kind: Kind
    """A filter is wrapped in `ScoreFilter`, a modifier in `Modify`; the others are stages themselves."""
    target: str
    """Location of the class, `module:Class`."""
    registered: type[Any] | None = None
    """The class itself, if a plug-in registered it."""

    def load(self) -> type[Any]:
        """Return the class."""
        found: type[Any] = self.registered if self.registered is not None else resolve(self.target)
        return found

    def summary(self) -> str:
        """Return the first line of the class docstring."""
        return summary_of(self.load())


_plug_ins: dict[str, Entry] = {}

AnyClass = TypeVar("AnyClass", bound=type[Any])


def entries() -> dict[str, Entry]:
    """Return all entries by name: readers first, in the order of the tables, and plug-ins last."""
    known = {
        name: Entry(name, kind, target) for kind, group in _BUILT_IN.items() for name, target in sorted(group.items())
    }
    return known | _plug_ins


def lookup(name: str) -> Entry:
    """Return the entry of `name`; the error for an unknown name suggests the nearest one."""
    known = entries()
    if name not in known:
        raise UsageError(
            f"{name!r} is not a stage, filter or modifier that Thresher knows.{_hint(name, list(known))}"
            " `thresher stages` lists them all"
        )
    return known[name]


def _hint(name: str, known: list[str]) -> str:
    """Return a hint with the names that contain `name`, or else the nearest name."""
    holding = [one for one in known if name and name.lower() in one.lower()]
    return f" Did you mean {' or '.join(map(repr, holding[:3]))}?" if holding else nearest(name, known)


def register(cls: AnyClass) -> AnyClass:
    """Register a class of your own (a stage, a filter or a modifier) for use in recipes. Works as a decorator."""
    name = cls.__name__
    target = f"{cls.__module__}:{cls.__qualname__}"
    known = entries().get(name)
    if known is not None and known.target != target:
        raise UsageError(f"{name!r} cannot be registered for {target}: the name belongs to {known.target}")
    _plug_ins[name] = Entry(name, kind_of(cls), target, cls)
    return cls


def kind_of(cls: type[Any]) -> Kind:
    """Return the kind of a class, based on its base classes and methods."""
    from thresher.core.stage import CompositeStage, ProcessingStage, SinkStage, SourceStage

    if issubclass(cls, SourceStage):
        return "reader"
    if issubclass(cls, SinkStage) or (issubclass(cls, CompositeStage) and cls.is_sink):
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


def wrapper_of(kind: Kind) -> type[Any] | None:
    """Return the stage class that wraps a filter or a modifier; `None` for a class that is a stage itself."""
    return lookup(WRAPPERS[kind]).load() if kind in WRAPPERS else None


def executor_fault(name: str) -> str:
    """Return the error message for an invalid executor name; empty if the name is valid."""
    if name in EXECUTORS:
        return ""
    return f"{name!r} is not an executor.{nearest(name, EXECUTORS)} Executors: {', '.join(EXECUTORS)}"


def load_executor(name: str) -> Any:
    """Return the executor class of that name."""
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
    """Return the object at `module:Name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def summary_of(item: Any) -> str:
    """Return the first line of a docstring, without its full stop."""
    return (inspect.getdoc(item) or "").split("\n", 1)[0].rstrip(".")


# -- optional packages ------------------------------------------------------------------------------------------------


EXTRAS = {"ray": "ray", "psutil": "ray", "cosmos_xenna": "xenna", "pandas": "pandas"}
"""Module name to the extra of Thresher that installs it."""


def require_package(module: str, user: str) -> None:
    """Raise if the module is not installed, without importing it; `user` (such as `executor 'ray'`) is named in the
    error."""
    from importlib.util import find_spec  # imported here to keep start-up fast

    found = find_spec(module)
    if found is None or found.origin is None:  # a namespace package, such as a folder of that name
        raise missing_package(module, user)


def missing_package(module: str, user: str) -> MissingPackageError:
    """Return the error that names the missing package and how to install it."""
    package = module.replace("_", "-")
    return MissingPackageError(f"{user} needs the package {package}: pip install 'thresher[{EXTRAS[module]}]'")
