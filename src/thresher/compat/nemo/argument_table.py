# SPDX-License-Identifier: Apache-2.0
"""Which arguments of NeMo Curator's classes are called otherwise here, or need not be given. Data only.

A class that is not listed takes the same arguments here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Arguments:
    """How the arguments of one class become ours."""

    order: tuple[str, ...] = ()
    """Names of arguments that scripts give by position, where the order here is another one."""
    settings: tuple[str, ...] = ("name",)
    """Arguments that `with_` sets on the stage that was made."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Our names of arguments."""
    values: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    """Values that are written otherwise here, by the name of their argument."""
    opened: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dicts whose entries are arguments here: our names by their keys; an empty name: has no effect here."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Arguments that need not be given here, with the reason."""
    only: Mapping[str, tuple[tuple[Any, ...], str]] = field(default_factory=dict)
    """Arguments with the values that change nothing here, and what to do for any other."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values that an argument which is not given has there, and not here."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Lists of endings of file names, with the argument for paths that they restrict: patterns here."""
    list_folder: str = ""
    """Folder below `output_path` for the list of duplicates, where documents are not removed."""


_SHOWN = "progress and log lines are those of the run"
_GPU = "memory is bounded by the executor's `memory`"
_IDS = "record ids are made of file and position"
_TYPES = "values are never converted"
_TEMPORARY = "temporary files are removed at the end of a run"

_READ_KWARGS = {
    "storage_options": "storage_options",
    **dict.fromkeys(("lines", "orient", "engine", "dtype", "dtype_backend", "convert_dates", "precise_float"), ""),
    **dict.fromkeys(("compression", "encoding", "nrows", "columns"), "?"),
}
_USE_FIELDS = "give `fields` for columns and `limit` for a number of records; encoding and compression are recognized"
_JSON_KWARGS = {
    "storage_options": "storage_options",
    "compression": "compression",
    **dict.fromkeys(("orient", "lines", "force_ascii", "index"), ""),
}
_PARQUET_KWARGS = {
    "storage_options": "storage_options",
    "compression": "compression",
    **dict.fromkeys(("index", "engine"), ""),
}
_NO_IDS = ((False, None), "leave it out: record ids are made of file and position; AddId writes ids into a column")

_READER = Arguments(
    settings=("name",),
    opened={"read_kwargs": _READ_KWARGS},
    only={
        "task_type": (("document", None), "other types of tasks have readers of their own (docs/writing-a-task.md)"),
        "_generate_ids": _NO_IDS,
        "_assign_ids": _NO_IDS,
    },
    extensions={"file_extensions": "file_paths"},
)
_WRITER_MODES = {"ignore": "append"}
_JSONL_WRITER = Arguments(
    opened={"write_kwargs": _JSON_KWARGS},
    values={
        "mode": _WRITER_MODES,
        "compression": {"gzip": "gz", "zstd": "zst", "infer": None, None: None},
    },
    only={"file_extension": (("jsonl", ".jsonl", None), "files end in .jsonl; give `compression` for packed ones")},
)
_PARQUET_WRITER = Arguments(
    opened={"write_kwargs": _PARQUET_KWARGS},
    values={"mode": _WRITER_MODES, "compression": {None: "none"}},
    only={"file_extension": (("parquet", ".parquet", None), "files end in .parquet")},
)
_STAGE = Arguments(without_effect={"verbose": _SHOWN})

_GPU_SETTINGS = dict.fromkeys(
    (
        *("rmm_pool_size", "spill_memory_limit", "lsh_rmm_pool_size", "lsh_spill_memory_limit", "use_async_memory"),
        *("bands_per_iteration", "total_nparts", "lsh_num_output_partitions", "identification_batchsize", "env_vars"),
    ),
    _GPU,
)
_FILES = {"cache_kwargs": _TEMPORARY}
_EXTENSIONS = {"input_file_extensions": "input_path"}
_LIST_KWARGS = {"storage_options": "storage_options"}
_KWARGS = {"read_kwargs": _READ_KWARGS, "write_kwargs": _LIST_KWARGS}
_FIRST = ("output_path", "input_path", "input_filetype", "input_blocksize")

_CLUSTERING = {
    **dict.fromkeys(
        ("tol", "init", "n_init", "oversampling_factor", "max_samples_per_batch", "fit_data_fraction"),
        "k-means settles by `max_iter` and `random_state`",
    ),
    **dict.fromkeys(
        ("kmeans_embedding_output_dtype", "pairwise_compute_dtype", "pairwise_batch_size"),
        "vectors are compared in blocks that fit into memory",
    ),
    **dict.fromkeys(("verbose",), _SHOWN),
    **dict.fromkeys(("clear_output", "_duplicates_num_row_groups_hint"), _TEMPORARY),
    **dict.fromkeys(("id_field", "metadata_fields", "use_id_generator", "id_generator_state_file"), _IDS),
    **_FILES,
}
_ONLY_COSINE: dict[str, tuple[tuple[Any, ...], str]] = {
    "distance_metric": (("cosine", None), "vectors are compared by their cosine")
}

_TOKEN = {"hf_token": "files of models are fetched with the settings of huggingface_hub"}
_PADDING = {"padding_side": "texts are padded as their model wants it"}
_CLASSIFIER = Arguments(
    order=("cache_dir", "label_field"),
    renamed={
        "max_seq_length": "max_length",
        "model_identifier": "model",
        "float_score_field": "float_field",
        "int_score_field": "int_field",
        "float_score_column": "float_field",
        "int_score_column": "int_field",
    },
    without_effect={**_TOKEN, **_PADDING},
)
_EMBEDDER = Arguments(
    order=("model_identifier",),
    renamed={"model_identifier": "model", "max_seq_length": "max_length", "embedding_pooling": "pooling"},
    values={"embedding_pooling": {"mean_pooling": "mean", "last_token": "last"}},
    without_effect={**_TOKEN, **_PADDING, "use_sentence_transformer": "the folder of the model says what it is"},
)
_CLASSIFIERS = (
    *("QualityClassifier", "DomainClassifier", "MultilingualDomainClassifier", "ContentTypeClassifier"),
    *("FineWebEduClassifier", "FineWebMixtralEduClassifier", "FineWebNemotronEduClassifier", "FineMathClassifier"),
    *("PromptTaskComplexityClassifier", "AegisClassifier", "InstructionDataGuardClassifier"),
)

ARGUMENTS: dict[str, Arguments] = {
    "JsonlReader": _READER,
    "ParquetReader": _READER,
    "JsonlWriter": _JSONL_WRITER,
    "ParquetWriter": _PARQUET_WRITER,
    **dict.fromkeys(
        ("Score", "Filter", "ScoreFilter", "Modify", "AddId", "DocumentJoiner", "DocumentSplitter"), _STAGE
    ),
    "TokenCountFilter": Arguments(
        settings=(),
        without_effect=_TOKEN,
        only={"transformers_init_kwargs": ((None, {}), "give `tokenizer`, an object that is made as you like")},
    ),
    **dict.fromkeys(_CLASSIFIERS, _CLASSIFIER),
    "EmbeddingCreatorStage": _EMBEDDER,
    "MegatronTokenizerWriter": Arguments(
        opened={"write_kwargs": {"storage_options": "storage_options"}},
        values={"mode": _WRITER_MODES},
        without_effect={"fields": "only tokens are written"},
        only={"file_extension": (("bin", ".bin", None), "files end in .bin and .idx")},
    ),
    "XennaExecutor": Arguments(settings=(), only={"ignore_head_node": ((False, None), "")}),
    "RayDataExecutor": Arguments(settings=(), only={"ignore_head_node": ((False, None), "")}),
    "RayActorPoolExecutor": Arguments(
        settings=(), without_effect={"show_progress": _SHOWN, "progress_interval": _SHOWN, "reserved_gpus": _GPU}
    ),
    "FileGroupTask": Arguments(settings=(), without_effect={"reader_config": "readers have parameters"}),
    "ExactDeduplicationWorkflow": Arguments(
        order=_FIRST,
        settings=(),
        renamed={"normalize_text": "normalize"},
        opened=_KWARGS,
        without_effect={**_GPU_SETTINGS, **_FILES, "assign_id": _IDS, "id_field": _IDS},
        defaults={"perform_removal": False},
        extensions=_EXTENSIONS,
        list_folder="ExactDuplicateIds",
    ),
    "FuzzyDeduplicationWorkflow": Arguments(
        order=("cache_path", *_FIRST),
        settings=(),
        renamed={"normalize_text": "normalize"},
        opened=_KWARGS,
        without_effect={**_GPU_SETTINGS, **_FILES, "use_64_bit_hash": "hashes have 64 bits"},
        defaults={"perform_removal": False},
        extensions=_EXTENSIONS,
        list_folder="FuzzyDuplicateIds",
    ),
    "SemanticDeduplicationWorkflow": Arguments(
        order=("input_path", "output_path", "n_clusters", "cache_path"),
        settings=(),
        opened=_KWARGS,
        without_effect=_CLUSTERING,
        extensions=_EXTENSIONS,
        only=_ONLY_COSINE,
        defaults={"perform_removal": False},
    ),
    "TextSemanticDeduplicationWorkflow": Arguments(
        order=("input_path", "output_path", "cache_path", "perform_removal"),
        settings=(),
        renamed={"kmeans_max_iter": "max_iter", "kmeans_random_state": "random_state"},
        opened=_KWARGS,
        without_effect={
            **_CLUSTERING,
            **{f"kmeans_{name}": reason for name, reason in _CLUSTERING.items() if "k-means" in reason},
            **dict.fromkeys(
                (
                    *(
                        "model_identifier",
                        "model_cache_dir",
                        "hf_token",
                        "embedding_max_chars",
                        "embedding_pretokenize",
                    ),
                    *("embedding_vllm_init_kwargs", "embedding_max_seq_length", "embedding_pooling"),
                    "embedding_model_inference_batch_size",
                ),
                "the embedder is `embedder`, by default the bundled wordllama; a stage that adds vectors may be given",
            ),
            **dict.fromkeys(("input_files_per_partition", "output_file_extension"), "units are cut by bytes"),
        },
        extensions=_EXTENSIONS,
        only=_ONLY_COSINE | {"output_fields": ((None,), "the whole documents are written")},
    ),
    "TextDuplicatesRemovalWorkflow": Arguments(
        order=("input_path", "ids_to_remove_path", "output_path", "input_filetype"),
        settings=(),
        opened={"input_kwargs": _READ_KWARGS, "output_kwargs": _LIST_KWARGS},
        values={"id_field": {"_curator_dedup_id": None}, "duplicate_id_field": {"_curator_dedup_id": "id"}},
        extensions=_EXTENSIONS,
        without_effect={
            **dict.fromkeys(("id_generator_path", "id_generator_storage_options", "drop_id_field"), _IDS),
            **dict.fromkeys(("input_files_per_partition", "output_file_extension"), "units are cut by bytes"),
            "duplicate_id_read_kwargs": _TYPES,
        },
        only={
            "input_fields": ((None,), "the whole documents are written"),
            "output_fields": ((None,), "the whole documents are written"),
            "input_task_limit": ((None,), "give a glob that names fewer files"),
            "output_mode": (("ignore", "error", None), "a finished output folder is resumed, a foreign one refused"),
        },
    ),
    "TextDuplicatesRemovalStage": Arguments(
        values={"id_field": {"_curator_dedup_id": None}, "duplicate_id_field": {"_curator_dedup_id": "id"}},
        opened={"read_kwargs": _LIST_KWARGS},
        without_effect={"drop_id_field": _IDS},
    ),
}
"""By the name of the class in NeMo Curator."""

UNKNOWN_ENTRY = _USE_FIELDS
"""What to do for an entry of `read_kwargs` that nothing here is the same as."""
