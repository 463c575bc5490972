# SPDX-License-Identifier: Apache-2.0
"""Reading of evaluation sets, and the index of their runs of words."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.files.filesystem import file_info, open_read
from thresher.errors import InputError, UsageError
from thresher.stages.text.columns.list_file import lines_of

if TYPE_CHECKING:
    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.text.index_file import ArrayIndex

EvaluationSets = str | list[str] | dict[str, str | list[str]]
"""Files; a dict names each set, otherwise the file name is used."""
_PARAMETER = "Decontamination.evaluation_sets"
_CHUNK = 4 * 2**20
"""Number of characters that are processed together."""
_MOST_SETS = 2**16


def named_sets(given: Any) -> dict[str, list[str]]:
    """Return the files of each set by its name."""
    if isinstance(given, dict):
        sets = {str(name): [paths] if isinstance(paths, str) else list(paths) for name, paths in given.items()}
    else:
        paths = [given] if isinstance(given, str) else list(given or [])
        sets = {}
        for path in paths:
            sets.setdefault(os.path.basename(path).partition(".")[0] or path, []).append(path)
    if not sets or not all(sets.values()):
        raise UsageError(f"{_PARAMETER}: {given!r} is not a file name; give JSON lines, Parquet or text files")
    if len(sets) > _MOST_SETS:
        raise UsageError(f"{_PARAMETER}: {len(sets)} sets are too many; give at most {_MOST_SETS}")
    return sets


def index_key(sets: Mapping[str, Sequence[str]], n: int, fields: Sequence[str] | None) -> Any:
    """Return the JSON-compatible key of everything that an index of these sets depends on."""
    from thresher.kernels.edits.decontamination import SCHEME

    files = {name: [list(file_info(path)) for path in paths] for name, paths in sets.items()}
    scheme = [SCHEME, unicodedata.unidata_version]
    return {"scheme": scheme, "sets": files, "n": n, "fields": None if fields is None else list(fields)}


def build_index(sets: Mapping[str, Sequence[str]], n: int, fields: Sequence[str] | None) -> ArrayIndex:
    """Build the index of all runs of `n` words in the texts of the sets; a run in several sets belongs to the first.

    Its facts hold, for each set, the number of texts, of texts that are too short for a run, and of runs.
    """
    import numpy as np

    from thresher.kernels.edits.decontamination import fold_table, make_table, ngram_keys
    from thresher.stages.text.index_file import ArrayIndex

    folds = fold_table()
    facts: dict[str, dict[str, int]] = {}
    keys, numbers = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.uint16)]
    for number, (name, paths) in enumerate(sets.items()):
        counted = facts[name] = {"texts": 0, "too_short": 0, "ngrams": 0}
        for texts in _chunks(chain.from_iterable(texts_of(path, fields) for path in paths)):
            found, per_text = ngram_keys(texts, folds, n)
            keys.append(np.unique(found))
            numbers.append(np.full(len(keys[-1]), number, dtype=np.uint16))
            counted["texts"] += len(per_text)
            counted["too_short"] += int((per_text == 0).sum())
            counted["ngrams"] += len(found)
        if not counted["ngrams"]:
            raise InputError(
                f"{_PARAMETER}: no text of {name!r} has {n} words ({counted['texts']} texts were found); "
                "give a smaller n, or other fields"
            )
    table = make_table(np.concatenate(keys), np.concatenate(numbers))
    return ArrayIndex({"n": n, "sets": facts}, {"folds": folds, **table._asdict()})


def _chunks(texts: Iterator[str]) -> Iterator[Texts]:
    from thresher.stages.text.columns.text_column import as_texts

    held: list[bytes] = []
    size = 0
    for text in texts:
        held.append(text.encode("utf-8", "surrogatepass"))
        size += len(text)
        if size > _CHUNK:
            yield as_texts(held)
            held, size = [], 0
    if held:
        yield as_texts(held)


def texts_of(path: str, fields: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the texts of one file: the strings of its records (of these fields, or all), or the lines of a text."""
    name = os.path.basename(path).lower()
    if name.endswith(".parquet"):
        records: Iterator[Any] = _parquet_records(path, fields)
    elif ".json" in name:
        records = _json_records(path)
    else:
        yield from (line.decode("utf-8", "replace") for line in lines_of(_PARAMETER, path))
        return
    found = False
    for record in records:
        for value in record.values() if fields is None else (record[field] for field in fields if field in record):
            found = True
            yield from _strings(value)
    if not found and fields is not None:
        raise InputError(f"{_PARAMETER}: no record of {path!r} has a field {' or '.join(map(repr, fields))}")


def _json_records(path: str) -> Iterator[dict[str, Any]]:
    decoder = msgspec.json.Decoder()
    for number, line in enumerate(lines_of(_PARAMETER, path), start=1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{_PARAMETER}: line {number} of {path!r} is not JSON: {error}") from error
        if not isinstance(record, dict):
            raise InputError(f"{_PARAMETER}: line {number} of {path!r} is not a JSON object; JSON lines are needed")
        yield record


def _parquet_records(path: str, fields: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_read(path) as opened:
            file = pq.ParquetFile(opened)
            wanted = None if fields is None else [name for name in fields if name in file.schema_arrow.names]
            for batch in file.iter_batches(batch_size=1024, columns=wanted):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"{_PARAMETER}: {path!r} cannot be read as Parquet: {error}") from error


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
