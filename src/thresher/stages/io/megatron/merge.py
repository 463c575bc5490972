# SPDX-License-Identifier: Apache-2.0
"""Merging of pairs of .bin and .idx files into one pair, a few megabytes at a time, under the name that NeMo Curator
gives the function."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from thresher.core.files.filesystem import (
    StorageOptions,
    exists,
    file_info,
    is_url,
    kind_of,
    list_files,
    local_path,
    open_read,
    read_start,
    url_filesystem,
)
from thresher.errors import InputError, OutputRefusedError
from thresher.stages.io.megatron.indexed_file import BIN, HEADER_BYTES, IDX, Header, decode_header

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_READ_BYTES = 4 * 2**20


class MergedFiles(NamedTuple):
    """A pair of files that others were merged into."""

    prefix: str
    """Their path without `.bin` and `.idx`."""
    files: int
    """Number of pairs that were merged."""
    documents: int
    """Number of documents."""
    tokens: int
    """Number of tokens."""
    token_type: str
    """Type of ids: `uint16` or `int32`."""
    nbytes: int
    """Size of the .bin file."""


class _Pair(NamedTuple):
    """A pair of files to merge."""

    prefix: str
    header: Header
    tokens: int


def merge_file_prefixes(
    input_dir: str | Sequence[str],
    output_prefix: str,
    overwrite: bool = False,
    storage_options: StorageOptions = None,
) -> MergedFiles:
    """Merge pairs of .bin and .idx files into `output_prefix`.bin and .idx.

    `input_dir` is a folder, whose pairs are merged in byte order of their names, or a list of prefixes in the order
    that is wanted. Files whose names begin with `.` or `_` are skipped. `overwrite` replaces an existing output.
    """
    prefix = local_path(os.fspath(output_prefix))
    for suffix in () if overwrite else (BIN, IDX):
        if exists(prefix + suffix, storage_options):
            raise OutputRefusedError(
                f"{prefix}{suffix} exists; choose another prefix, or use --overwrite (overwrite=True)"
            )
    prefixes = _found_in(input_dir, prefix, storage_options) if isinstance(input_dir, str | os.PathLike) else input_dir
    pairs = [_measured(local_path(os.fspath(one)), storage_options) for one in prefixes]
    if not pairs:
        raise InputError(f"{input_dir}: there is no pair of {BIN} and {IDX} files to merge")
    if prefix in {pair.prefix for pair in pairs}:
        raise OutputRefusedError(f"{prefix} is one of the pairs to merge; choose another prefix")
    first = pairs[0]
    for pair in pairs[1:]:
        if pair.header.code != first.header.code:
            raise InputError(
                f"{pair.prefix} has ids of {pair.header.kind} and {first.prefix} of {first.header.kind}; merge files "
                "that were made with the same vocabulary"
            )
    merged = Header(
        first.header.code,
        sum(pair.header.sequences for pair in pairs),
        sum(pair.header.documents for pair in pairs) + 1,
    )
    tokens = sum(pair.tokens for pair in pairs)
    _remove(prefix + IDX, storage_options)  # an index is there only beside the ids that it is about
    _write(prefix + BIN, _all_ids(pairs, storage_options), storage_options)
    _write(prefix + IDX, _index(merged, pairs, storage_options), storage_options)
    return MergedFiles(prefix, len(pairs), merged.documents, tokens, merged.kind, tokens * merged.width)


# -- input ------------------------------------------------------------------------------------------------------------


def _found_in(folder: str, output: str, options: StorageOptions) -> list[str]:
    """Return the prefixes of all pairs in a folder but the output."""
    kind = kind_of(folder, options)
    if kind != "folder":
        raise InputError(f"{folder} is {'a file' if kind == 'file' else 'not there'}; give a folder of token files")
    names = {info.path for info in list_files(folder, options) if info.path.endswith((BIN, IDX))}
    names -= {output + BIN, output + IDX}
    prefixes = sorted({name[: -len(BIN)] for name in names})
    for prefix in prefixes:
        lacking = {BIN, IDX} - {suffix for suffix in (BIN, IDX) if prefix + suffix in names}
        if lacking:
            raise InputError(
                f"{prefix}{lacking.pop()} is missing beside its other half; wait until the run has finished, or remove "
                "the file that is alone"
            )
    return prefixes


def _measured(prefix: str, options: StorageOptions) -> _Pair:
    """Return a pair after a look at its header, and check that its sizes agree."""
    path = prefix + IDX
    header = decode_header(read_start(path, HEADER_BYTES, options), path)
    size = file_info(path, options).size
    if size != header.nbytes:
        raise InputError(
            f"{path} has {size:,} bytes, and an index of {header.sequences:,} sequences has {header.nbytes:,}: it was "
            "cut short, or is of a kind that cannot be merged"
        )
    tokens = sum(int(part.sum(dtype="int64")) for part in _lengths(prefix, header, options))
    nbytes = file_info(prefix + BIN, options).size
    if nbytes != tokens * header.width:
        raise InputError(f"{prefix}{BIN} has {nbytes:,} bytes, and its index is about {tokens * header.width:,}")
    return _Pair(prefix, header, tokens)


def _lengths(prefix: str, header: Header, options: StorageOptions) -> Iterator[npt.NDArray[np.int32]]:
    yield from _numbers(prefix + IDX, HEADER_BYTES, header.sequences, "<i4", options)


def _numbers(path: str, start: int, count: int, kind: str, options: StorageOptions) -> Iterator[npt.NDArray[Any]]:
    """Yield a section of an index."""
    import numpy as np

    width = np.dtype(kind).itemsize
    with contextlib.closing(open_read(path, start, options)) as opened:
        for done in range(0, count, _READ_BYTES // width):
            wanted = min(_READ_BYTES // width, count - done) * width
            yield np.frombuffer(_exactly(opened, wanted, path), dtype=kind)


def _exactly(opened: BinaryIO, wanted: int, path: str) -> bytes:
    parts = []
    while wanted:
        part = opened.read(wanted)
        if not part:
            raise InputError(f"{path} was cut short while it was read; leave the input alone while it is merged")
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


# -- output -----------------------------------------------------------------------------------------------------------


def _all_ids(pairs: Sequence[_Pair], options: StorageOptions) -> Iterator[bytes]:
    for pair in pairs:
        left = pair.tokens * pair.header.width
        with contextlib.closing(open_read(pair.prefix + BIN, 0, options)) as opened:
            while left:
                part = _exactly(opened, min(_READ_BYTES, left), pair.prefix + BIN)
                left -= len(part)
                yield part


def _index(merged: Header, pairs: Sequence[_Pair], options: StorageOptions) -> Iterator[bytes]:
    """Yield the index of all pairs, one section after the other."""
    import numpy as np

    yield merged.encode()
    for pair in pairs:
        yield from (part.tobytes() for part in _lengths(pair.prefix, pair.header, options))
    begin = 0
    for pair in pairs:
        for part in _lengths(pair.prefix, pair.header, options):
            sizes = part.astype(np.int64) * merged.width
            ends = begin + np.cumsum(sizes)
            yield (ends - sizes).astype("<i8").tobytes()
            begin = int(ends[-1])
    before = 0
    yield np.zeros(1, dtype="<i8").tobytes()
    for pair in pairs:
        start = HEADER_BYTES + 12 * pair.header.sequences + 8  # every index begins with the border 0
        for part in _numbers(pair.prefix + IDX, start, pair.header.documents, "<i8", options):
            yield (part + before).astype("<i8").tobytes()
        before += pair.header.sequences


def _write(path: str, parts: Iterator[bytes], options: StorageOptions) -> None:
    """Write a file that appears under its name when it is complete."""
    if is_url(path):
        file_system, inner = url_filesystem(path, options)
        opened = file_system.open(inner, "wb")
        _fill(opened, parts, getattr(opened, "discard", lambda: None))
        opened.close()
        return
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    beside = f"{path}.{os.getpid()}.unfinished"
    with open(beside, "wb") as file:
        _fill(file, parts, lambda: os.unlink(beside))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _remove(path: str, options: StorageOptions) -> None:
    if not exists(path, options):
        return
    if is_url(path):
        file_system, inner = url_filesystem(path, options)
        file_system.rm_file(inner)
    else:
        os.unlink(path)


def _fill(opened: Any, parts: Iterator[bytes], discard: Callable[[], object]) -> None:
    try:
        for part in parts:
            opened.write(part)
    except BaseException:
        discard()
        raise
