# SPDX-License-Identifier: Apache-2.0
"""Make the input of a rehearsal: files like those of the profile, up to a given size, cut into units."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, repeat

from thresher.errors import UsageError
from thresher.scheduler.model import OpSpec, UnitSpec
from thresher.simulate.profile import FileSample, RunProfile, op_key

MOST_UNITS = 5_000_000
"""Limit for the number of units, which must fit in memory; larger files make fewer of them."""


def make_units(
    profile: RunProfile,
    ops: tuple[OpSpec, ...],
    *,
    data_bytes: int | None = None,
    file_bytes: int | None = None,
    block_bytes: int | None = None,
) -> list[UnitSpec]:
    """Return the units of `data_bytes` of input. Files are those of the profile, repeated, or all of one size."""
    entries = {op_key(op): op.index for op in ops if op.source}
    total = data_bytes if data_bytes is not None else profile.input_bytes
    if not profile.files or not profile.input_bytes:
        return [UnitSpec(f"task-{n}", (0, n), entries[file.op], 0) for n, file in enumerate(profile.files)]
    units: list[UnitSpec] = []
    for number, file in enumerate(_files(profile, total, file_bytes)):
        entry = entries[file.op]
        if file.stream:
            units.append(UnitSpec(f"f{number}", (number, 0), entry, file.nbytes, stream=True))
            continue
        count = _unit_count(file, block_bytes)
        base, rest = divmod(file.nbytes, count)
        units.extend(
            UnitSpec(f"f{number}-{block}", (number, block), entry, base + (block < rest)) for block in range(count)
        )
        if len(units) > MOST_UNITS:
            raise UsageError(
                f"--data: {total:,} bytes in files as small as those of the profile are over {MOST_UNITS:,} units. "
                "Say how large the files will be with --file-size, such as --file-size 1GB"
            )
    return units


def _files(profile: RunProfile, total: int, file_bytes: int | None) -> Iterator[FileSample]:
    """Yield files up to `total` bytes; the last one is truncated."""
    files = [file for file in profile.files if file.nbytes]
    largest = max(files, key=lambda file: file.nbytes)
    if file_bytes is not None:
        units = max(1, round(file_bytes * largest.units / largest.nbytes))
        endless: Iterator[FileSample] = repeat(FileSample(file_bytes, units, largest.op, largest.stream))
    else:
        endless = cycle(files)
    left = total
    for file in endless:
        if left <= 0:
            return
        if file.nbytes > left:
            yield FileSample(left, max(1, round(file.units * left / file.nbytes)), file.op, file.stream)
        else:
            yield file
        left -= file.nbytes


def _unit_count(file: FileSample, block_bytes: int | None) -> int:
    """Return the number of units of a file: as in the profile, unless the recipe sets a very different block size."""
    if block_bytes is None:
        return file.units
    measured = file.nbytes / file.units
    if measured / 2 <= block_bytes and (file.units == 1 or block_bytes <= 2 * measured):
        return file.units
    return -(-file.nbytes // block_bytes)
