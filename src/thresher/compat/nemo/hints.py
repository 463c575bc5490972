# SPDX-License-Identifier: Apache-2.0
"""What there is instead of a name of NeMo Curator that we do not have. Data only.

Keys are `module:Name` or the start of module names; the most specific one counts.
"""

from __future__ import annotations

from typing import NamedTuple


class Hint(NamedTuple):
    """Why a name is not there, and the next best thing."""

    reason: str
    """Kind of the names, as the table in the docs groups them."""
    instead: str
    """What to use."""


_INTERNAL = "part of its engine, not of pipelines"
_MEDIA = "images, sound and video"
_PARTS = "step inside of a workflow"
_DASK = "release on Dask"
_HELPERS = "helper function"

_FUZZY = Hint(_PARTS, "the stage FuzzyDeduplication, or FuzzyDeduplicationWorkflow, which do all steps in one run")
_SEMANTIC = Hint(_PARTS, "the stage SemanticDeduplication, or SemanticDeduplicationWorkflow")
_OWN_TYPE = Hint(
    _MEDIA, "a task type and stages of your own (docs/writing-a-task.md), with reader, writer, ids and resume as here"
)
_ENGINE = Hint(
    _INTERNAL, "an executor: LocalExecutor, RayExecutor, RayDataExecutor, RayActorPoolExecutor, XennaExecutor"
)
_ENDPOINT = Hint(
    "model servers", "any server with OpenAI's protocol, and the stages GenerateText, JudgeText, RewriteText"
)
_DOWNLOAD = Hint(
    "downloads and extraction",
    "DocumentDownloadExtractStage with classes of your own, or files that are downloaded already: JsonlReader, "
    "ParquetReader",
)
_MODEL_CODE = Hint("model classes", "a stage that loads the model in setup() (docs/accelerators.md)")
_OWN_STAGE = Hint(_HELPERS, "the standard library, or a stage of your own (docs/writing-a-stage.md)")

HINTS: dict[str, Hint] = {
    # -- engine --
    "nemo_curator.backends": _ENGINE,
    "nemo_curator.backends.slurm_array": Hint(_INTERNAL, "one run over all nodes of the job (docs/cluster.md)"),
    "nemo_curator.backends.failed_task_markers": Hint(_INTERNAL, "`thresher quarantine` and `thresher retry`"),
    "nemo_curator.pipeline": Hint(_INTERNAL, "Pipeline, and the initial_tasks of its run()"),
    "nemo_curator.stages.base:StageMeta": Hint(_INTERNAL, "thresher.core.registry.register, which names a class"),
    "nemo_curator.stages.client_partitioning": Hint(_INTERNAL, "JsonlReader with a list of file_paths"),
    "nemo_curator.config": Hint(_INTERNAL, "`thresher run FILE.yaml`, which takes these files as they are"),
    "nemo_curator.core": Hint(_INTERNAL, "an executor such as RayExecutor(address=…), which opens its cluster itself"),
    "nemo_curator.core.serve": _ENDPOINT,
    "nemo_curator.metrics": Hint(_INTERNAL, "`thresher run … --metrics-port P` and `thresher monitor up`"),
    "nemo_curator.utils": _OWN_STAGE,
    "nemo_curator.utils.split_large_files": Hint(_HELPERS, "nothing: readers cut large files themselves"),
    "nemo_curator.utils.atomic_io": Hint(_INTERNAL, "a writer, which commits files atomically"),
    "nemo_curator.utils.ray_utils": _ENGINE,
    "nemo_curator.utils.resumability_actor": Hint(_INTERNAL, "the ledger: the same command resumes a run"),
    "nemo_curator.utils.resumability_client": Hint(_INTERNAL, "the ledger: the same command resumes a run"),
    "nemo_curator.utils.retry_manifest": Hint(_INTERNAL, "the ledger: the same command resumes a run"),
    "nemo_curator.utils.vllm_utils": _ENDPOINT,
    "nemo_curator.utils.gpu_utils": _ENGINE,
    "nemo_curator.utils.lance": Hint("Lance tables", "ParquetReader and ParquetWriter"),
    "nemo_curator.utils.decoder_utils": _OWN_TYPE,
    "nemo_curator.utils.nvcodec_utils": _OWN_TYPE,
    "nemo_curator.utils.windowing_utils": _OWN_TYPE,
    "nemo_curator.utils.writer_utils": _OWN_TYPE,
    # -- tasks and media --
    "nemo_curator.tasks": _OWN_TYPE,
    "nemo_curator.tasks.lance": Hint("Lance tables", "ParquetReader and ParquetWriter"),
    "nemo_curator.tasks:LanceReadTask": Hint("Lance tables", "ParquetReader and ParquetWriter"),
    "nemo_curator.stages.audio": _OWN_TYPE,
    "nemo_curator.stages.image": _OWN_TYPE,
    "nemo_curator.stages.interleaved": _OWN_TYPE,
    "nemo_curator.stages.video": _OWN_TYPE,
    "nemo_curator.models": _MODEL_CODE,
    "nemo_curator.models.client": _ENDPOINT,
    # -- text --
    "nemo_curator.stages": _OWN_STAGE,
    "nemo_curator.stages.math": Hint("mathematics", "a stage of your own (docs/writing-a-stage.md)"),
    "nemo_curator.stages.synthetic": Hint("synthetic data", "GenerateText and RewriteText with prompts of your own"),
    "nemo_curator.eval": Hint("synthetic data", "JudgeText"),
    "nemo_curator.stages.text.classifiers": _MODEL_CODE,
    "nemo_curator.stages.text.models": _MODEL_CODE,
    "nemo_curator.stages.text.embedders": _MODEL_CODE,
    "nemo_curator.stages.text.download": _DOWNLOAD,
    "nemo_curator.stages.text.experimental": Hint("translation", "TranslateText"),
    "nemo_curator.stages.text.io": Hint("Lance tables", "ParquetReader and ParquetWriter"),
    "nemo_curator.stages.text.io.reader.base": Hint(_INTERNAL, "SourceStage (docs/writing-a-task.md)"),
    "nemo_curator.stages.text.io.writer.utils": _OWN_STAGE,
    # -- deduplication --
    "nemo_curator.stages.deduplication": Hint(_INTERNAL, "nothing: record ids are made of file and position"),
    "nemo_curator.stages.deduplication.exact": Hint(_PARTS, "the stage ExactDeduplication"),
    "nemo_curator.stages.deduplication.fuzzy": _FUZZY,
    "nemo_curator.stages.deduplication.semantic": _SEMANTIC,
    "nemo_curator.stages.deduplication.shuffle_utils": Hint(_PARTS, "ShuffleStage (docs/phases.md)"),
    # -- releases before 1.0 --
    "nemo_curator:Sequential": Hint(_DASK, "Pipeline(name, stages=[…])"),
    "nemo_curator:ScoreFilter": Hint(_DASK, "nemo_curator.stages.text.filters.ScoreFilter"),
    "nemo_curator:Modify": Hint(_DASK, "nemo_curator.stages.text.modifiers.Modify"),
    "nemo_curator:AddId": Hint(_DASK, "nemo_curator.stages.text.modules.AddId"),
    "nemo_curator:ExactDuplicates": Hint(_DASK, "the stage ExactDeduplication"),
    "nemo_curator:FuzzyDuplicates": Hint(_DASK, "the stage FuzzyDeduplication"),
    "nemo_curator:SemDedup": Hint(_DASK, "the stage SemanticDeduplication"),
    "nemo_curator:TaskDecontamination": Hint(_DASK, "the stage Decontamination"),
    "nemo_curator:blend_datasets": Hint(_DASK, "the stage Blend"),
    "nemo_curator:Shuffle": Hint(_DASK, "the stage GlobalShuffle"),
    "nemo_curator:get_client": Hint(_DASK, "an executor; nothing has to be started before a run"),
    "nemo_curator:": Hint(_DASK, "the page on migration, docs/migration.md"),
    "nemo_curator.datasets": Hint(_DASK, "a pipeline that begins with JsonlReader or ParquetReader"),
    "nemo_curator.modules": Hint(_DASK, "the stages of docs/dedup.md and docs/corpus-checks.md"),
    "nemo_curator.classifiers": Hint(_DASK, "nemo_curator.stages.text.classifiers"),
    "nemo_curator.download": _DOWNLOAD,
    "nemo_curator.services": _ENDPOINT,
    "nemo_curator.pii": Hint(_DASK, "the modifier PiiRedactor"),
    "nemo_curator.utils.distributed_utils": Hint(_DASK, "an executor; nothing has to be started before a run"),
}
"""Hints by module and name. `nemo_curator:` is for names of the package itself."""
