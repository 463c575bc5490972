# SPDX-License-Identifier: Apache-2.0
"""Thresher turns raw data into training data. These are its public names; each is loaded when it is first used."""

from __future__ import annotations

from thresher.version import __version__

TYPE_CHECKING = False  # like `typing.TYPE_CHECKING`, without importing `typing`, which would double the import time
if TYPE_CHECKING:
    from typing import Any

    from thresher.backends.local import LocalExecutor
    from thresher.backends.ray import RayExecutor
    from thresher.backends.ray_actor_pool import RayActorPoolExecutor
    from thresher.backends.ray_data import RayDataExecutor
    from thresher.backends.serial import SerialExecutor
    from thresher.backends.xenna import XennaExecutor
    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.function_stage import processing_stage
    from thresher.core.pipeline import Pipeline, RunResult
    from thresher.core.recipes.recipe import load_recipe
    from thresher.core.records.record_task import RecordTask
    from thresher.core.resources import NodeInfo, Resources, WorkerMetadata
    from thresher.core.stage import CompositeStage, ProcessingStage, SinkStage, SourceStage
    from thresher.core.task import EmptyTask, FileGroupTask, Task
    from thresher.errors import ThresherError
    from thresher.models.endpoint.client import LLMClient
    from thresher.stages.corpus.global_shuffle import GlobalShuffle
    from thresher.stages.corpus.global_sort import GlobalSort
    from thresher.stages.corpus.group_by import GroupBy
    from thresher.stages.corpus.join import Join
    from thresher.stages.corpus.pack_sequences import PackSequences
    from thresher.stages.corpus.quality.percentile_rank import PercentileRank
    from thresher.stages.corpus.quality.quality_buckets import QualityBuckets
    from thresher.stages.corpus.quality.score_ensemble import ScoreEnsemble
    from thresher.stages.corpus.reduce import ReduceStage
    from thresher.stages.corpus.route import Copy, Route, Split
    from thresher.stages.corpus.sampling.blend import Blend
    from thresher.stages.corpus.sampling.bucket_sample import BucketSample
    from thresher.stages.corpus.sampling.percentile_range import PercentileRange
    from thresher.stages.corpus.sampling.stratified_sample import StratifiedSample
    from thresher.stages.corpus.sampling.top_k import TopK
    from thresher.stages.corpus.shuffle import ShuffleStage
    from thresher.stages.corpus.statistics.corpus_statistics import CorpusStatistics
    from thresher.stages.corpus.statistics.ngram_counts import NGramCounts
    from thresher.stages.dedup.bloom import BloomDeduplication
    from thresher.stages.dedup.exact import ExactDeduplication
    from thresher.stages.dedup.fuzzy import FuzzyDeduplication
    from thresher.stages.dedup.index import IndexWriter
    from thresher.stages.dedup.lines import LineDeduplication
    from thresher.stages.dedup.remove_listed import RemoveListed
    from thresher.stages.dedup.semantic.semantic import SemanticDeduplication
    from thresher.stages.dedup.substring import SubstringDeduplication
    from thresher.stages.io.document_reader import DocumentReader
    from thresher.stages.io.jsonl.reader import JsonlReader
    from thresher.stages.io.jsonl.writer import JsonlWriter
    from thresher.stages.io.megatron.merge import merge_file_prefixes
    from thresher.stages.io.megatron.writer import MegatronTokenizerWriter
    from thresher.stages.io.parquet.reader import ParquetReader
    from thresher.stages.io.parquet.writer import ParquetWriter
    from thresher.stages.text.add_id import AddId
    from thresher.stages.text.c4.bad_words import C4BadWordsFilter
    from thresher.stages.text.c4.quality import C4QualityFilter
    from thresher.stages.text.classifiers.classifier import SequenceClassifier
    from thresher.stages.text.classifiers.named import (
        ContentTypeClassifier,
        DomainClassifier,
        FineMathClassifier,
        FineWebEduClassifier,
        FineWebMixtralEduClassifier,
        FineWebNemotronEduClassifier,
        MultilingualDomainClassifier,
        QualityClassifier,
    )
    from thresher.stages.text.classifiers.prompts import PromptTaskComplexityClassifier
    from thresher.stages.text.classifiers.safety import AegisClassifier, InstructionDataGuardClassifier
    from thresher.stages.text.decontamination import Decontamination
    from thresher.stages.text.document_modifier import DocumentModifier
    from thresher.stages.text.document_statistics import DocumentStatistics
    from thresher.stages.text.embeddings.creator import EmbeddingCreatorStage
    from thresher.stages.text.judging.rule import DocumentFilter
    from thresher.stages.text.judging.score_filter import Filter, Score, ScoreFilter
    from thresher.stages.text.language.language_filter import LanguageFilter
    from thresher.stages.text.language.language_id import LanguageId
    from thresher.stages.text.llm.extract import ExtractFields
    from thresher.stages.text.llm.generate import GenerateText
    from thresher.stages.text.llm.judge import JudgeText
    from thresher.stages.text.llm.rewrite import RewriteText, TranslateText
    from thresher.stages.text.models.tokenize import Tokenize
    from thresher.stages.text.modifiers.boilerplate_string import BoilerPlateStringModifier
    from thresher.stages.text.modifiers.fasttext_label import FastTextLabelModifier
    from thresher.stages.text.modifiers.line_remover import LineRemover, NewlineNormalizer
    from thresher.stages.text.modifiers.markdown_remover import MarkdownRemover, QuotationRemover
    from thresher.stages.text.modifiers.pii_redactor import PiiRedactor
    from thresher.stages.text.modifiers.slicer import Slicer
    from thresher.stages.text.modifiers.unicode_reformatter import UnicodeNormalizer, UnicodeReformatter
    from thresher.stages.text.modifiers.url_remover import UrlRemover
    from thresher.stages.text.modify import Modify
    from thresher.stages.text.rules.characters.character_shares import (
        AlphaFilter,
        NonAlphaNumericFilter,
        NumbersFilter,
        ParenthesesFilter,
        WhiteSpaceFilter,
    )
    from thresher.stages.text.rules.characters.histogram import HistogramFilter
    from thresher.stages.text.rules.characters.patterns import RegexFilter, SubstringFilter
    from thresher.stages.text.rules.code.comments import GeneralCommentToCodeFilter, PythonCommentToCodeFilter
    from thresher.stages.text.rules.code.per_extension import PerExtensionFilter
    from thresher.stages.text.rules.code.source_files import (
        HTMLBoilerplateFilter,
        NumberOfLinesOfCodeFilter,
        XMLHeaderFilter,
    )
    from thresher.stages.text.rules.lines.line_marks import BulletsFilter, EllipsisFilter, PunctuationFilter
    from thresher.stages.text.rules.lines.paragraphs import BoilerPlateStringFilter, C4ParagraphFilter
    from thresher.stages.text.rules.lines.repeated_ngrams import (
        RepeatingDuplicateNGramsFilter,
        RepeatingTopNGramsFilter,
    )
    from thresher.stages.text.rules.lines.repeated_passages import (
        RepeatedLinesByCharFilter,
        RepeatedLinesFilter,
        RepeatedParagraphsByCharFilter,
        RepeatedParagraphsFilter,
    )
    from thresher.stages.text.rules.models.fasttext_lang_id import FastTextLangId
    from thresher.stages.text.rules.models.fasttext_quality import FastTextQualityFilter
    from thresher.stages.text.rules.sampler import SamplerFilter
    from thresher.stages.text.rules.sets.fineweb_quality import FineWebQualityFilter
    from thresher.stages.text.rules.sets.gopher_quality import GopherQualityFilter
    from thresher.stages.text.rules.sets.gopher_repetition import GopherRepetitionFilter
    from thresher.stages.text.rules.web.url_blocklist import UrlBlocklistFilter
    from thresher.stages.text.rules.web.urls import PornographicUrlsFilter, UrlsFilter
    from thresher.stages.text.rules.words.tokens import TokenCountFilter, TokenizerFertilityFilter
    from thresher.stages.text.rules.words.unigram_log_prob import UnigramLogProbFilter
    from thresher.stages.text.rules.words.word_counts import (
        CommonEnglishWordsFilter,
        LongWordFilter,
        MeanWordLengthFilter,
        SymbolsToWordsFilter,
        WordCountFilter,
        WordsWithoutAlphabetsFilter,
    )
    from thresher.stages.text.segments.document_joiner import DocumentJoiner
    from thresher.stages.text.segments.document_splitter import DocumentSplitter
    from thresher.stages.text.token_counter import TokenCounter
    from thresher.stages.text.token_encoder import TokenEncoder

__all__ = [
    "AddId",
    "AegisClassifier",
    "AlphaFilter",
    "Blend",
    "BloomDeduplication",
    "BoilerPlateStringFilter",
    "BoilerPlateStringModifier",
    "BucketSample",
    "BulletsFilter",
    "C4BadWordsFilter",
    "C4ParagraphFilter",
    "C4QualityFilter",
    "CommonEnglishWordsFilter",
    "CompositeStage",
    "ContentTypeClassifier",
    "Copy",
    "CorpusStatistics",
    "Decontamination",
    "DocumentBatch",
    "DocumentFilter",
    "DocumentJoiner",
    "DocumentModifier",
    "DocumentReader",
    "DocumentSplitter",
    "DocumentStatistics",
    "DomainClassifier",
    "EllipsisFilter",
    "EmbeddingCreatorStage",
    "EmptyTask",
    "ExactDeduplication",
    "ExtractFields",
    "FastTextLabelModifier",
    "FastTextLangId",
    "FastTextQualityFilter",
    "FileGroupTask",
    "Filter",
    "FineMathClassifier",
    "FineWebEduClassifier",
    "FineWebMixtralEduClassifier",
    "FineWebNemotronEduClassifier",
    "FineWebQualityFilter",
    "FuzzyDeduplication",
    "GeneralCommentToCodeFilter",
    "GenerateText",
    "GlobalShuffle",
    "GlobalSort",
    "GopherQualityFilter",
    "GopherRepetitionFilter",
    "GroupBy",
    "HTMLBoilerplateFilter",
    "HistogramFilter",
    "IndexWriter",
    "InstructionDataGuardClassifier",
    "Join",
    "JsonlReader",
    "JsonlWriter",
    "JudgeText",
    "LLMClient",
    "LanguageFilter",
    "LanguageId",
    "LineDeduplication",
    "LineRemover",
    "LocalExecutor",
    "LongWordFilter",
    "MarkdownRemover",
    "MeanWordLengthFilter",
    "MegatronTokenizerWriter",
    "Modify",
    "MultilingualDomainClassifier",
    "NGramCounts",
    "NewlineNormalizer",
    "NodeInfo",
    "NonAlphaNumericFilter",
    "NumberOfLinesOfCodeFilter",
    "NumbersFilter",
    "PackSequences",
    "ParenthesesFilter",
    "ParquetReader",
    "ParquetWriter",
    "PerExtensionFilter",
    "PercentileRange",
    "PercentileRank",
    "PiiRedactor",
    "Pipeline",
    "PornographicUrlsFilter",
    "ProcessingStage",
    "PromptTaskComplexityClassifier",
    "PunctuationFilter",
    "PythonCommentToCodeFilter",
    "QualityBuckets",
    "QualityClassifier",
    "QuotationRemover",
    "RayActorPoolExecutor",
    "RayDataExecutor",
    "RayExecutor",
    "RecordTask",
    "ReduceStage",
    "RegexFilter",
    "RemoveListed",
    "RepeatedLinesByCharFilter",
    "RepeatedLinesFilter",
    "RepeatedParagraphsByCharFilter",
    "RepeatedParagraphsFilter",
    "RepeatingDuplicateNGramsFilter",
    "RepeatingTopNGramsFilter",
    "Resources",
    "RewriteText",
    "Route",
    "RunResult",
    "SamplerFilter",
    "Score",
    "ScoreEnsemble",
    "ScoreFilter",
    "SemanticDeduplication",
    "SequenceClassifier",
    "SerialExecutor",
    "ShuffleStage",
    "SinkStage",
    "Slicer",
    "SourceStage",
    "Split",
    "StratifiedSample",
    "SubstringDeduplication",
    "SubstringFilter",
    "SymbolsToWordsFilter",
    "Task",
    "ThresherError",
    "TokenCountFilter",
    "TokenCounter",
    "TokenEncoder",
    "Tokenize",
    "TokenizerFertilityFilter",
    "TopK",
    "TranslateText",
    "UnicodeNormalizer",
    "UnicodeReformatter",
    "UnigramLogProbFilter",
    "UrlBlocklistFilter",
    "UrlRemover",
    "UrlsFilter",
    "WhiteSpaceFilter",
    "WordCountFilter",
    "WordsWithoutAlphabetsFilter",
    "WorkerMetadata",
    "XMLHeaderFilter",
    "XennaExecutor",
    "__version__",
    "load_recipe",
    "merge_file_prefixes",
    "processing_stage",
]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module 'thresher' has no attribute {name!r}")
    from thresher.core.registry import PUBLIC_NAMES, resolve
    from thresher.errors import nearest

    if name not in PUBLIC_NAMES:
        raise AttributeError(f"module 'thresher' has no attribute {name!r}.{nearest(name, PUBLIC_NAMES)}")
    value = globals()[name] = resolve(PUBLIC_NAMES[name])
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


from os import environ as _environ  # noqa: E402 - `os` is loaded in any case

if _environ.get("THRESHER_COMPAT"):
    from thresher.compat.nemo.finder import install_from_environment as _install

    _install()
