# SPDX-License-Identifier: Apache-2.0
"""The names, flags, defaults, files and exit codes that users, scripts and other tools rely on, as tables."""

from __future__ import annotations

NAMES = [
    "Task",
    "EmptyTask",
    "FileGroupTask",
    "DocumentBatch",
    "ProcessingStage",
    "CompositeStage",
    "processing_stage",
    "Resources",
    "NodeInfo",
    "WorkerMetadata",
    "Pipeline",
    "RunResult",
    "LocalExecutor",
    "SerialExecutor",
    "JsonlReader",
    "JsonlWriter",
    "ParquetReader",
    "ParquetWriter",
    "Score",
    "Filter",
    "ScoreFilter",
    "Modify",
    "AddId",
    "DocumentFilter",
    "DocumentModifier",
    "load_recipe",
    "ThresherError",
]
RULES = ["WordCountFilter", "MeanWordLengthFilter", "NonAlphaNumericFilter", "RepeatedLinesFilter", "UrlsFilter"]
MODIFIERS = ["NewlineNormalizer"]

READER = "file_paths, files_per_partition=None, blocksize='64MB', fields=None, limit=None, storage_options=None"
SIGNATURES: dict[str, str] = {
    "Task": "dataset_name='', data=None, metadata=None, task_id=None",
    "FileGroupTask": "dataset_name='', data=None, metadata=None, task_id=None",
    "Resources": "cpus=1.0, gpus=0.0, gpu_memory_gb=0.0, memory_gb=0.0, custom=<factory>",
    "processing_stage": "name=None, resources=None, batch_size=None",
    "Pipeline": "name, description='', stages=()",
    "JsonlReader": READER,
    "ParquetReader": READER,
    "JsonlWriter": "path, fields=None, compression=None, target_file_size=None, mode='error', storage_options=None",
    "ParquetWriter": "path, fields=None, compression='zstd', target_file_size=None, mode='error', storage_options=None",
    "ScoreFilter": "filter_obj, text_field='text', score_field=None, invert=False",
    "Score": "score_fn, score_field, text_field='text'",
    "Filter": "filter_fn, filter_field, invert=False",
    "Modify": "modifier_fn, input_fields='text', output_fields=None",
    "AddId": "id_field, id_prefix=None, overwrite=False",
    "WordCountFilter": "min_words=50, max_words=100000",
    "MeanWordLengthFilter": "min_mean_word_length=3, max_mean_word_length=10",
    "NonAlphaNumericFilter": "max_non_alpha_numeric_to_text_ratio=0.25",
    "RepeatedLinesFilter": "max_repeated_line_fraction=0.7",
    "UrlsFilter": "max_url_to_text_ratio=0.2",
}
METHODS: dict[str, dict[str, str]] = {
    "ProcessingStage": {
        "process": "task",
        "process_batch": "tasks",
        "inputs": "",
        "outputs": "",
        "num_workers": "",
        "setup_on_node": "node_info=None, worker_metadata=None",
        "setup": "worker_metadata=None",
        "teardown": "",
        "count": "name, n=1",
    },
    "CompositeStage": {"decompose": ""},
    "DocumentBatch": {"to_pyarrow": "", "to_pandas": "", "take": "rows", "replace": "name, column"},
    "Pipeline": {"add_stage": "stage", "describe": ""},
    "RunResult": {"to_dict": "", "__len__": "", "__iter__": ""},
    "DocumentFilter": {"score_document": "text", "keep_document": "score"},
    "DocumentModifier": {"modify_document": "text"},
}
STAGE_DEFAULTS = {
    "batch_size": 1,
    "timeout_s": None,
    "max_attempts": 3,
    "runtime_env": None,
    "row_wise": True,
    "deterministic": True,
}
WITH = ["name", "resources", "batch_size", "num_workers", "timeout_s", "max_attempts", "runtime_env"]
RUN = {
    "initial_tasks": None,
    "run_dir": None,
    "fresh": False,
    "max_errors": "5%",
    "keep_scores": False,
    "dropped_to": None,
    "ledger": True,
    "progress": "auto",
}
RESULT_PROPERTIES = [
    "run_id",
    "run_dir",
    "status",
    "counts",
    "stages",
    "drop_reasons",
    "output_paths",
    "units_total",
    "units_resumed",
    "wall_s",
    "peak_memory_bytes",
]
COUNTS = {"read", "created", "merged", "written", "dropped", "quarantined"}
STAGE_COUNTS = {
    "name",
    "in_docs",
    "out_docs",
    "in_bytes",
    "out_bytes",
    "dropped",
    "quarantined",
    "tasks",
    "retries",
    "busy_s",
    "workers",
}
EXECUTOR_OPTIONS = {
    "local": {"workers", "cpu_allocation_percentage", "memory", "execution_mode", "logging_interval"},
    "serial": {"execution_mode", "logging_interval"},
}


COMMANDS = [
    "run",
    "plan",
    "stages",
    "recipes",
    "init",
    "report",
    "audit",
    "why",
    "quarantine",
    "retry",
    "rethreshold",
    "replay",
    "simulate",
]
PLANNED_COMMANDS = [
    "compare",
    "top",
    "dashboard",
    "monitor",
    "import",
    "dedup",
]
FLAGS = {
    "run": [
        "--executor",
        "--workers",
        "--memory",
        "--gpus",
        "--run-dir",
        "--fresh",
        "--accept-changes",
        "--max-errors",
        "--keep-scores",
        "--dropped-to",
        "--no-ledger",
        "--trust",
        "--allow-unsupported",
        "--quiet",
        "--json",
    ],
    "plan": ["--json"],
    "stages": ["--json"],
    "recipes": [],
    "init": [],
    "report": [],
    "audit": ["--json"],
    "why": ["--text", "--trust", "--json"],
    "quarantine": ["--stage", "--error", "--limit", "--json"],
    "retry": ["--trust", "--json"],
    "rethreshold": [
        "--output",
        "--dropped-to",
        "--keep-scores",
        "--fresh",
        "--executor",
        "--workers",
        "--memory",
        "--gpus",
        "--trust",
        "--quiet",
        "--json",
    ],
    "replay": [],
    "simulate": [
        "--nodes",
        "--node",
        "--profile",
        "--cost",
        "--price-per-hour",
        "--failures-per-hour",
        "--data",
        "--workers",
        "--seed",
        "--html",
        "--svg",
        "--json",
    ],
}
PLANNED_FLAGS = {"run": {"--address", "--metrics-port", "--dashboard"}}
EXIT_CODES = {
    "ThresherError": 1,
    "RunFailedError": 1,
    "RefusedError": 2,
    "UsageError": 2,
    "RecipeError": 2,
    "PlanError": 2,
    "InputError": 2,
    "MissingPackageError": 2,
    "UnsupportedError": 2,
    "TooManyErrorsError": 3,
    "OutputRefusedError": 4,
    "CheckFailedError": 5,
}


RUN_FILES = {"run.json", "recipe.yaml", "plan.json", "units.jsonl", "manifest.jsonl", "metrics.json", "report.json"}
LEDGER_KEYS = {"unit", "attempt", "read", "written", "dropped", "quarantined", "outputs"}
OUTPUT_KEYS = {"path", "bytes", "records", "sha256"}
QUARANTINE_KEYS = {"id", "source", "position", "stage", "error", "message", "traceback", "attempts", "record"}
ATTEMPT_KEYS = {"executor", "host", "pid", "start", "end", "exit_code"}


EVENTS = [
    "WorkerReady",
    "WorkerSetupFailed",
    "WorkerLost",
    "NodeJoined",
    "NodeLost",
    "TaskEmitted",
    "TaskParked",
    "TaskDone",
    "TaskFailed",
    "PayloadLost",
    "UnitCommitted",
    "MemorySample",
    "Tick",
    "StopRequested",
]
ACTIONS = [
    "StartWorker",
    "StopWorker",
    "Dispatch",
    "GrantCredit",
    "Resume",
    "Release",
    "Split",
    "Requeue",
    "Quarantine",
    "Commit",
    "Finish",
    "Fail",
]
