# SPDX-License-Identifier: Apache-2.0
"""The table: which name of ours stands for which name of which module of NeMo Curator. Data only.

A target is a public name of Thresher, or `module:Name`. Modules of older releases (1.0 to 1.3, and the Dask releases
before them) are listed as well, where their names still mean the same.
"""

from __future__ import annotations

_STAGES = "thresher.compat.nemo.stages"
_PARTITIONS = "thresher.compat.nemo.partitions"
_TASKS = "thresher.compat.nemo.tasks"
_PERFORMANCE = "thresher.compat.nemo.performance"
_CLIENT = "thresher.compat.nemo.client"


def _same(*names: str) -> dict[str, str]:
    """Return names that are the same in both."""
    return {name: name for name in names}


_STAGE_CLASSES = {
    "ProcessingStage": f"{_STAGES}:CompatStage",
    "CompositeStage": "CompositeStage",
    "get_stage_class": f"{_STAGES}:get_stage_class",
}
_DECORATOR = {"processing_stage": f"{_STAGES}:processing_stage"}
_RESOURCES = _same("Resources")
_SENTINELS = {
    "EmptyTask": "EmptyTask",
    **{name: f"{_TASKS}:{name}" for name in ("SentinelTask", "NoneTask", "FailedTask")},
}
_TASK = {"Task": f"{_TASKS}:CompatTask"}
_TASK_CLASSES = {**_TASK, **_same("DocumentBatch", "FileGroupTask")}
_PERF = {
    "StagePerfStats": f"{_PERFORMANCE}:StagePerfStats",
    "StageTimer": f"{_PERFORMANCE}:StageTimer",
}
_PERF_UTILS = {"TaskPerfUtils": f"{_PERFORMANCE}:TaskPerfUtils"}
_BASE = {"BaseExecutor": "thresher.runtime.executor:Executor", **_same("NodeInfo", "WorkerMetadata")}
_ACTOR_POOL = _same("RayActorPoolExecutor")
_RAY_DATA = _same("RayDataExecutor")
_XENNA = _same("XennaExecutor")
_CLIENTS = {name: f"{_CLIENT}:{name}" for name in ("RayClient", "SlurmRayClient")}
_PIPELINE = {"Pipeline": "thresher.compat.nemo.pipeline:CompatPipeline"}
_WORKFLOW = {
    "WorkflowBase": "thresher.workflows.workflow:Workflow",
    "WorkflowRunResult": "thresher.workflows.workflow:WorkflowResult",
}

_JSONL_READERS = {"JsonlReader": "JsonlReader", "JsonlReaderStage": f"{_PARTITIONS}:JsonlReaderStage"}
_PARQUET_READERS = {"ParquetReader": "ParquetReader", "ParquetReaderStage": f"{_PARTITIONS}:ParquetReaderStage"}
_BASE_READER = {"BaseReader": f"{_PARTITIONS}:FileGroupReader"}
_WRITERS = _same("JsonlWriter", "ParquetWriter", "MegatronTokenizerWriter")
_BASE_WRITER = {"BaseWriter": "thresher.stages.io.file_writer:FileWriter"}
_IO = {**_JSONL_READERS, **_PARQUET_READERS, **_WRITERS}
_PARTITIONING = {"FilePartitioningStage": f"{_PARTITIONS}:FilePartitioningStage"}

_SCORING = _same("Score", "Filter", "ScoreFilter")
_FILTER_BASE = _same("DocumentFilter")
_STRING_FILTERS = _same(
    *("NonAlphaNumericFilter", "SymbolsToWordsFilter", "NumbersFilter", "UrlsFilter", "BulletsFilter"),
    *("WhiteSpaceFilter", "ParenthesesFilter", "LongWordFilter", "WordCountFilter", "BoilerPlateStringFilter"),
    *("MeanWordLengthFilter", "PunctuationFilter", "EllipsisFilter", "CommonEnglishWordsFilter"),
    *("WordsWithoutAlphabetsFilter", "PornographicUrlsFilter", "SubstringFilter"),
)
_REPETITION_FILTERS = _same(
    *("RepeatedLinesFilter", "RepeatedParagraphsFilter", "RepeatedLinesByCharFilter"),
    *("RepeatedParagraphsByCharFilter", "RepeatingTopNGramsFilter", "RepeatingDuplicateNGramsFilter"),
)
_CODE_FILTERS = _same(
    *("PythonCommentToCodeFilter", "GeneralCommentToCodeFilter", "NumberOfLinesOfCodeFilter"),
    *("TokenizerFertilityFilter", "XMLHeaderFilter", "AlphaFilter", "HTMLBoilerplateFilter", "PerExtensionFilter"),
)
_FASTTEXT_FILTERS = _same("FastTextQualityFilter", "FastTextLangId")
_TOKEN_FILTERS = _same("TokenCountFilter")
_HISTOGRAM_FILTERS = _same("HistogramFilter")
_HEURISTICS = {**_STRING_FILTERS, **_REPETITION_FILTERS}
_FILTERS = {
    **_FILTER_BASE,
    **_HEURISTICS,
    **_CODE_FILTERS,
    **_FASTTEXT_FILTERS,
    **_TOKEN_FILTERS,
    **_HISTOGRAM_FILTERS,
}

_MODIFY = _same("Modify")
_MODIFIER_BASE = _same("DocumentModifier")
_STRING_MODIFIERS = _same(
    *("BoilerPlateStringModifier", "LineRemover", "MarkdownRemover", "NewlineNormalizer", "QuotationRemover"),
    *("Slicer", "UrlRemover"),
)
_FASTTEXT_MODIFIERS = _same("FastTextLabelModifier")
_UNICODE_MODIFIERS = _same("UnicodeReformatter")
_MODIFIERS = {**_MODIFIER_BASE, **_STRING_MODIFIERS, **_FASTTEXT_MODIFIERS, **_UNICODE_MODIFIERS}
_MODULES = _same("AddId", "DocumentJoiner", "DocumentSplitter")
_TEXT_UTILS = {
    name: f"thresher.compat.nemo.text_functions:{name}" for name in ("get_paragraphs", "get_sentences", "get_ngrams")
}

_DOMAIN = _same("DomainClassifier", "MultilingualDomainClassifier")
_FINEWEB = _same("FineWebEduClassifier", "FineWebMixtralEduClassifier", "FineWebNemotronEduClassifier")
_AEGIS = _same("AegisClassifier", "InstructionDataGuardClassifier")
_QUALITY, _CONTENT, _PROMPT = (
    _same(name) for name in ("QualityClassifier", "ContentTypeClassifier", "PromptTaskComplexityClassifier")
)
_FINEMATH = _same("FineMathClassifier")
_DOWNLOAD_NAMES = (
    *("URLGenerator", "DocumentDownloader", "DocumentIterator", "DocumentExtractor", "URLGenerationStage"),
    *("DocumentDownloadStage", "DocumentIterateExtractStage", "DocumentDownloadExtractStage"),
)
_DOWNLOAD = {name: f"thresher.compat.nemo.download:{name}" for name in _DOWNLOAD_NAMES}
_CLASSIFIERS = {**_DOMAIN, **_FINEWEB, **_AEGIS, **_QUALITY, **_CONTENT, **_PROMPT}
_EMBEDDERS = _same("EmbeddingCreatorStage")

_EXACT, _FUZZY, _SEMANTIC, _TEXT_SEMANTIC, _REMOVAL = (
    _same(name)
    for name in (
        "ExactDeduplicationWorkflow",
        "FuzzyDeduplicationWorkflow",
        "SemanticDeduplicationWorkflow",
        "TextSemanticDeduplicationWorkflow",
        "TextDuplicatesRemovalWorkflow",
    )
)
_REMOVAL_STAGE = {"TextDuplicatesRemovalStage": "RemoveListed"}
_RANKING = {"RankingStrategy": "thresher.compat.nemo.ranking:RankingStrategy"}
_MERGE = _same("merge_file_prefixes")
_FILE_UTILS = {
    name: f"thresher.compat.nemo.file_functions:{name}"
    for name in ("get_all_file_paths_under", "get_all_file_paths_and_size_under")
}

_B, _S, _T, _D = (
    "nemo_curator.backends",
    "nemo_curator.stages",
    "nemo_curator.stages.text",
    "nemo_curator.stages.deduplication",
)

MODULES: dict[str, dict[str, str]] = {
    "nemo_curator": {},
    "nemo_curator.pipeline": _PIPELINE,
    "nemo_curator.pipeline.pipeline": _PIPELINE,
    "nemo_curator.pipeline.workflow": _WORKFLOW,
    "nemo_curator.tasks": {**_TASK_CLASSES, **_SENTINELS, **_PERF_UTILS},
    "nemo_curator.tasks.tasks": {**_TASK, **_SENTINELS},
    "nemo_curator.tasks.sentinels": _SENTINELS,
    "nemo_curator.tasks.document": _same("DocumentBatch"),
    "nemo_curator.tasks.file_group": _same("FileGroupTask"),
    "nemo_curator.tasks.utils": _PERF_UTILS,
    "nemo_curator.core": {},
    "nemo_curator.core.client": _CLIENTS,
    "nemo_curator.utils.performance_utils": _PERF,
    "nemo_curator.utils.file_utils": _FILE_UTILS,
    "nemo_curator.utils.merge_file_prefixes": _MERGE,
    # -- who runs it --
    _B: {**_BASE, **_ACTOR_POOL, **_RAY_DATA, **_XENNA},
    f"{_B}.base": _BASE,
    f"{_B}.xenna": _XENNA,
    f"{_B}.xenna.executor": _XENNA,
    f"{_B}.ray_data": _RAY_DATA,
    f"{_B}.ray_data.executor": _RAY_DATA,
    f"{_B}.ray_actor_pool": _ACTOR_POOL,
    f"{_B}.ray_actor_pool.executor": _ACTOR_POOL,
    f"{_B}.experimental": {},
    f"{_B}.experimental.ray_data": _RAY_DATA,
    f"{_B}.experimental.ray_data.executor": _RAY_DATA,
    f"{_B}.experimental.ray_actor_pool": _ACTOR_POOL,
    f"{_B}.experimental.ray_actor_pool.executor": _ACTOR_POOL,
    # -- stages --
    _S: {},
    f"{_S}.base": _STAGE_CLASSES,
    f"{_S}.core": {**_STAGE_CLASSES, **_RESOURCES},
    f"{_S}.resources": _RESOURCES,
    f"{_S}.function_decorators": _DECORATOR,
    f"{_S}.function_definitions": _DECORATOR,
    f"{_S}.file_partitioning": _PARTITIONING,
    # -- text --
    _T: {},
    f"{_T}.io": _IO,
    f"{_T}.io.reader": {**_JSONL_READERS, **_PARQUET_READERS},
    f"{_T}.io.reader.base": _BASE_READER,
    f"{_T}.io.reader.jsonl": _JSONL_READERS,
    f"{_T}.io.reader.parquet": _PARQUET_READERS,
    f"{_T}.io.writer": _WRITERS,
    f"{_T}.io.writer.base": _BASE_WRITER,
    f"{_T}.io.writer.jsonl": _same("JsonlWriter"),
    f"{_T}.io.writer.parquet": _same("ParquetWriter"),
    f"{_T}.io.writer.megatron_tokenizer": _same("MegatronTokenizerWriter"),
    f"{_T}.filters": {**_SCORING, **_FILTERS},
    f"{_T}.filters.score_filter": _SCORING,
    f"{_T}.filters.doc_filter": _FILTER_BASE,
    f"{_T}.filters.heuristic": _HEURISTICS,
    f"{_T}.filters.heuristic.string": _STRING_FILTERS,
    f"{_T}.filters.heuristic.repetition": _REPETITION_FILTERS,
    f"{_T}.filters.heuristic.repetition.repetition": _REPETITION_FILTERS,
    f"{_T}.filters.heuristic.code": _CODE_FILTERS,
    f"{_T}.filters.heuristic.code.code": _CODE_FILTERS,
    f"{_T}.filters.fasttext": _FASTTEXT_FILTERS,
    f"{_T}.filters.fasttext.fasttext_filters": _FASTTEXT_FILTERS,
    f"{_T}.filters.token": _TOKEN_FILTERS,
    f"{_T}.filters.token.token_count": _TOKEN_FILTERS,
    f"{_T}.filters.histogram": _HISTOGRAM_FILTERS,
    f"{_T}.filters.histogram.histogram": _HISTOGRAM_FILTERS,
    f"{_T}.filters.heuristic_filter": _HEURISTICS,  # 1.0 to 1.2, like the next two
    f"{_T}.filters.code": _CODE_FILTERS,
    f"{_T}.filters.fasttext_filter": _FASTTEXT_FILTERS,
    f"{_T}.modifiers": {**_MODIFY, **_MODIFIERS},
    f"{_T}.modifiers.modifier": _MODIFY,
    f"{_T}.modifiers.doc_modifier": _MODIFIER_BASE,
    f"{_T}.modifiers.string": _STRING_MODIFIERS,
    f"{_T}.modifiers.string.c4": _same("BoilerPlateStringModifier"),
    f"{_T}.modifiers.string.line_remover": _same("LineRemover"),
    f"{_T}.modifiers.string.markdown_remover": _same("MarkdownRemover"),
    f"{_T}.modifiers.string.newline_normalizer": _same("NewlineNormalizer"),
    f"{_T}.modifiers.string.quotation_remover": _same("QuotationRemover"),
    f"{_T}.modifiers.string.slicer": _same("Slicer"),
    f"{_T}.modifiers.string.url_remover": _same("UrlRemover"),
    f"{_T}.modifiers.fasttext": _FASTTEXT_MODIFIERS,
    f"{_T}.modifiers.fasttext.fasttext_label": _FASTTEXT_MODIFIERS,
    f"{_T}.modifiers.unicode": _UNICODE_MODIFIERS,
    f"{_T}.modifiers.unicode.unicode_reformatter": _UNICODE_MODIFIERS,
    f"{_T}.modules": {**_MODULES, **_SCORING, **_MODIFY},
    f"{_T}.modules.add_id": _same("AddId"),
    f"{_T}.modules.joiner": _same("DocumentJoiner"),
    f"{_T}.modules.splitter": _same("DocumentSplitter"),
    f"{_T}.modules.score_filter": _SCORING,
    f"{_T}.modules.modifier": _MODIFY,
    f"{_T}.utils": {},
    f"{_T}.utils.text_utils": _TEXT_UTILS,
    f"{_T}.download": _DOWNLOAD,
    **dict.fromkeys(
        (
            f"{_T}.download.base{part}"
            for part in ("", ".url_generation", ".download", ".iterator", ".extract", ".stage")
        ),
        _DOWNLOAD,
    ),
    # -- models --
    f"{_T}.classifiers": _CLASSIFIERS,
    f"{_T}.classifiers.aegis": _AEGIS,
    f"{_T}.classifiers.content_type": _CONTENT,
    f"{_T}.classifiers.domain": _DOMAIN,
    f"{_T}.classifiers.fineweb_edu": _FINEWEB,
    f"{_T}.classifiers.prompt_task_complexity": _PROMPT,
    f"{_T}.classifiers.quality": _QUALITY,
    f"{_S}.math.classifiers": _FINEMATH,
    f"{_S}.math.classifiers.finemath": _FINEMATH,
    f"{_T}.embedders": _EMBEDDERS,
    f"{_T}.embedders.base": _EMBEDDERS,
    # -- deduplication --
    _D: {},
    f"{_D}.exact": _EXACT,
    f"{_D}.exact.workflow": _EXACT,
    f"{_D}.fuzzy": _FUZZY,
    f"{_D}.fuzzy.workflow": _FUZZY,
    f"{_D}.semantic": {**_SEMANTIC, **_RANKING},
    f"{_D}.semantic.workflow": _SEMANTIC,
    f"{_D}.semantic.ranking": _RANKING,
    f"{_T}.deduplication": {**_REMOVAL, **_TEXT_SEMANTIC},
    f"{_T}.deduplication.removal": _REMOVAL_STAGE,
    f"{_T}.deduplication.removal_workflow": _REMOVAL,
    f"{_T}.deduplication.semantic": _TEXT_SEMANTIC,
    # -- the releases on Dask --
    "nemo_curator.filters": {**_FILTERS, **_SCORING},
    "nemo_curator.modifiers": _MODIFIERS,
}
"""Names by module. A module that is not listed, but whose package is, holds nothing that we have."""
