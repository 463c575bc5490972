# SPDX-License-Identifier: Apache-2.0
"""The documents of an index, which a deduplication compares its own with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.files.filesystem import StorageOptions
from thresher.errors import UsageError
from thresher.stages.dedup.files.frames import open_frames
from thresher.stages.io.listing import AcceptedFiles, find_files

if TYPE_CHECKING:
    from thresher.stages.dedup.files.documents import UnitPlace

INDEX_EXTENSION = ".keys"


def index_paths(owner: str, given: Any) -> list[str]:
    """Return the folders that an argument names. `owner`: the stage, for errors."""
    paths = [] if given is None else [given] if isinstance(given, str) else list(given)
    if not all(isinstance(path, str) and path for path in paths):
        raise UsageError(f"{owner}.index: {given!r} is neither the folder of an index nor a list of them")
    return paths


def known_places(
    owner: str, paths: Sequence[str], scheme: dict[str, Any], storage_options: StorageOptions
) -> list[UnitPlace]:
    """Return the files of indexes, those of the first folder first; an index that was made otherwise is refused."""
    from thresher.stages.dedup.files.documents import UnitPlace, facts_of

    places: list[UnitPlace] = []
    first = 0
    for folder in paths:
        for info in find_files(folder, AcceptedFiles(f"{owner}.index", (INDEX_EXTENSION,)), storage_options):
            with open_frames(info.path, info.size, storage_options) as opened:
                facts = facts_of(opened)
            if facts.scheme != scheme:
                raise UsageError(_other_scheme(owner, folder, facts.scheme or {}, scheme))
            places.append(UnitPlace(info.path, info.size, first, facts.documents, facts.keys, True))
            first += facts.documents
    return places


def _other_scheme(owner: str, folder: str, there: dict[str, Any], here: dict[str, Any]) -> str:
    """Return in what an index differs from what it should be."""
    different = [name for name in here if there.get(name) != here[name]]
    shown = ", ".join(f"{name} {there.get(name)!r} and not {here[name]!r}" for name in different)
    return f"{owner}.index: {folder} was made with {shown}; give the same arguments, or make an index with these"
