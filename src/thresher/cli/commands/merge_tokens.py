# SPDX-License-Identifier: Apache-2.0
"""`thresher merge-tokens`: merge files of token ids into one pair."""

from __future__ import annotations

import argparse

from thresher.cli.arguments import read_settings
from thresher.cli.printing import print_json, print_result
from thresher.cli.saved_recipe import add_storage_argument
from thresher.core.arguments.sizes import counted, show_size

DESCRIPTION = (
    "Merge the .bin and .idx files that MegatronTokenizerWriter made into one pair, in byte order of their names."
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
    merged = merge_file_prefixes(arguments.input, arguments.output, arguments.overwrite, options)
    if arguments.json:
        print_json(merged._asdict())
        return 0
    print_result(
        f"{merged.prefix}.bin and .idx: {counted(merged.documents, 'document')}, {counted(merged.tokens, 'token')} of "
        f"{merged.token_type} ({show_size(merged.nbytes)}), from {counted(merged.files, 'pair')} of files"
    )
    return 0
