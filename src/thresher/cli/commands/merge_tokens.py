# SPDX-License-Identifier: Apache-2.0
"""`thresher merge-tokens`: merge files of token ids into one pair."""

from __future__ import annotations

import argparse
from typing import Any

from thresher.cli.arguments import read_settings
from thresher.cli.printing import print_json, print_result
from thresher.cli.saved_recipe import add_storage_argument
from thresher.core.arguments.sizes import counted, show_size
from thresher.core.files.filesystem import join, kind_of
from thresher.errors import OutputRefusedError

DESCRIPTION = (
    "Merge the .bin and .idx files that MegatronTokenizerWriter made into one pair: those of a run in input order, "
    "those of any other folder in byte order of their names."
)
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("input", metavar="INPUT", help="the folder or URL of the files")
    parser.add_argument("output", metavar="PREFIX", help="path or URL of the output, without .bin and .idx")
    add_storage_argument(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing output")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Merge the files and print what they hold."""
    from thresher.stages.io.megatron.merge import merge_file_prefixes

    options = read_settings(arguments.storage_option)
    is_folder = kind_of(arguments.input, options) == "folder"
    prefixes = _of_runs(arguments.input, options) if is_folder else []
    merged = merge_file_prefixes(prefixes or arguments.input, arguments.output, arguments.overwrite, options)
    if arguments.json:
        print_json(merged._asdict())
        return 0
    print_result(
        f"{merged.prefix}.bin and .idx: {counted(merged.documents, 'document')}, {counted(merged.tokens, 'token')} of "
        f"{merged.token_type} ({show_size(merged.nbytes)}), from {counted(merged.files, 'pair')} of files"
    )
    return 0


def _of_runs(folder: str, options: dict[str, Any]) -> list[str]:
    """Return the prefixes of the runs that wrote to a folder, in input order; raise if one of them has not finished."""
    from thresher.ledger.folder.find import read_manifest, read_run
    from thresher.ledger.folder.request import RUN_FILE, RUN_FOLDER
    from thresher.ledger.stores.store import open_store
    from thresher.stages.io.megatron.indexed_file import IDX

    runs = []
    for name in open_store(folder, options).names():
        run_dir = join(folder, name.rstrip("/"))
        if not name.startswith(RUN_FOLDER) or not open_store(run_dir, options).exists(RUN_FILE):
            continue
        state = read_run(run_dir, options)
        if not state.attempts or state.attempts[-1].exit_code != 0:
            raise OutputRefusedError(
                f"{folder}: its run has not finished, so files are missing; give the command of the run again first"
            )
        runs.append((state.run_id, run_dir))
    lines = [line for _, run_dir in sorted(runs) for line in read_manifest(run_dir, options)]
    return [join(folder, line.path.removesuffix(IDX)) for line in lines if line.path.endswith(IDX)]
