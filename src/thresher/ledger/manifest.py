# SPDX-License-Identifier: Apache-2.0
"""The list of finished output files, in input order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thresher.ledger.place import JOIN_PREFIX
from thresher.ledger.records import CommitRecord, ManifestLine
from thresher.ledger.retries import split_retry


def in_input_order(records: Iterable[CommitRecord], files: Mapping[str, int]) -> list[CommitRecord]:
    """Records sorted by input; `files` says the place of a file where the input was listed again since the commit."""

    def place(record: CommitRecord) -> tuple[int, int, str]:
        file = split_retry(record.unit.removeprefix(JOIN_PREFIX))[0].rsplit("-", 1)[0]
        return files.get(file, record.order[0]), record.order[1], record.unit

    return sorted(records, key=place)


def manifest_lines(records: Iterable[CommitRecord]) -> list[ManifestLine]:
    """One line per output file; parts that were joined are no output files."""
    return [
        ManifestLine(file.path, file.bytes, file.records, file.sha256, record.joined or (record.unit,))
        for record in records
        if not record.part
        for file in record.outputs
    ]
