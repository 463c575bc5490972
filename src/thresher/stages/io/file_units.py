# SPDX-License-Identifier: Apache-2.0
"""Units of whole files, for readers of formats that are not cut: archives, media, one record per file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from thresher.core.files.filesystem import StorageOptions
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.stages.io.listing import PACK_FILES, AcceptedFiles, find_files


def file_units(
    paths: str | os.PathLike[str] | Sequence[str],
    endings: Sequence[str],
    *,
    weigh: Callable[[Piece], int] | None = None,
    pack_weight: int = 0,
    storage_options: StorageOptions = None,
) -> Iterator[Unit]:
    """Yield one unit per file in input order; a folder gives the files whose names end in one of `endings`.

    `paths`: a file, a folder, a glob, or a list of them, local or as URLs.
    `weigh`: the work behind a file, such as the bytes or seconds of the media that it lists; by default its size.
    Progress and the remaining time follow it.
    `pack_weight`: put small files that follow one another into one unit, up to this weight.
    """
    accepted = AcceptedFiles("the reader", tuple(ending.lower() for ending in endings))
    given = paths if isinstance(paths, str) else os.fspath(paths) if isinstance(paths, os.PathLike) else list(paths)
    pieces: list[Piece] = []
    first = weights = 0
    for number, info in enumerate(find_files(given, accepted, storage_options)):
        piece = Piece(info.path, info.relative, info.size, info.version)
        weight = weigh(piece) if weigh is not None else piece.size
        if pieces and (weights + weight > pack_weight or len(pieces) >= PACK_FILES):
            yield _unit(first, pieces, weights, has_weight=weigh is not None)
            pieces, weights = [], 0
        if not pieces:
            first = number
        pieces.append(piece)
        weights += weight
    if pieces:
        yield _unit(first, pieces, weights, has_weight=weigh is not None)


def _unit(number: int, pieces: Sequence[Piece], weight: int, *, has_weight: bool) -> Unit:
    relative = pieces[0].relative
    return Unit(
        id=unit_id(relative, 0),
        order=(number, 0),
        pieces=tuple(pieces),
        stem=file_stem(relative),
        nbytes=sum(piece.size for piece in pieces),
        weight=weight if has_weight else 0,
    )
