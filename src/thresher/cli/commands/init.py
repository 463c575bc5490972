# SPDX-License-Identifier: Apache-2.0
"""`thresher init`: write a recipe to start from."""

from __future__ import annotations

import argparse
import os

from thresher.cli.printing import print_note, print_result
from thresher.errors import UsageError

DESCRIPTION = "Write a commented recipe. Edit its two paths and run it."
PLANNED_FLAGS = ()
DEFAULT_FILE = "recipe.yaml"

RECIPE = """\
# A Thresher recipe: what to read, what to do with it, where to write.
#   thresher plan {file}     shows what would happen
#   thresher run {file}      runs it; the same command goes on after an interruption
name: my-text
description: keep plain running text

# Edit the two paths, or give them on the command line: thresher run {file} input_path=… output_path=…
# Write ??? for a value that must always be given there.
params:
  input_path: data/input          # a file, a folder, a glob or a URL such as s3://bucket/folder
  output_path: data/output        # a folder that is empty or does not exist yet
  min_words: 50

# executor: {{name: local, workers: 2, memory: 4GB}}     # by default all cores and most of the memory
# options: {{max_errors: 5%, dropped_to: data/dropped}}  # keep what is dropped, with the reasons

stages:
  - JsonlReader:
      file_paths: ${{input_path}}   # also .jsonl.gz, .zst, .bz2 and .xz; ParquetReader for Parquet
  # Modifiers change the text, filters drop records. `thresher stages` lists them all,
  # `thresher stages WordCountFilter` shows the parameters of one.
  - NewlineNormalizer
  - WordCountFilter:
      min_words: ${{min_words}}
  - MeanWordLengthFilter
  - NonAlphaNumericFilter
  - RepeatedLinesFilter
  - UrlsFilter
  - JsonlWriter:
      path: ${{output_path}}        # compression: zstd, target_file_size: 256MB, … are possible too
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("file", metavar="FILE", nargs="?", default=DEFAULT_FILE, help=f"default: {DEFAULT_FILE}")


def execute(arguments: argparse.Namespace) -> int:
    """Write the file, unless it exists."""
    path = arguments.file
    if os.path.isdir(path):
        path = os.path.join(path, DEFAULT_FILE)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(RECIPE.format(file=path))
    except FileExistsError:
        raise UsageError(f"{path} exists and is left as it is; name another file: thresher init FILE") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    print_result(path)
    print_note(f"wrote a recipe. Edit its two paths, then: thresher run {path}")
    return 0
