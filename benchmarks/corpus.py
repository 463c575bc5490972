# SPDX-License-Identifier: Apache-2.0
"""Builds the benchmark corpus from real documents: about 320 MB of JSON lines in 16 files, the same bytes every time.

Lengths follow the log-normal law of web text (median 1,050 characters, 90th
percentile 6,000, at most 1,000,000). A tenth of the documents
are exact and a tenth near copies of others; `planted.jsonl` beside the corpus says which. Usage:

    corpus.py [--quick] [--times N] [--single]     build what is missing, print where it lies
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
DATA = HERE / ".data"
SOURCE_TEXT = Path(os.environ.get("THRESHER_DATA", HERE.parent.parent / "shared" / "data")) / "text"

_SEED = 20261115
_FILES = 16
_MEDIAN_CHARACTERS = 1050
_SIGMA = 1.358  # so that the 90th percentile is 6,000 characters
_MAX_CHARACTERS = 1_000_000
_GROUP_CHARACTERS = 200_000
_SINGLE_BYTES = 1_000_000_000
_WORDS_CHANGED = 0.03  # of a near copy

Document = dict[str, Any]
Paragraph = tuple[str, Document]  # its text, and the other fields of the document it comes from


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a corpus is."""

    name: str  # folder below .data
    documents: int  # all of them, copies included
    single_bytes: int  # size of the one large file that belongs to it


FULL = Scale("corpus", 99_000, _SINGLE_BYTES)
QUICK = Scale("corpus-quick", 9_900, _SINGLE_BYTES // 10)


def corpus_folder(quick: bool = False, times: int = 1) -> Path:
    """The folder with the corpus, built if it is not there; `times` of it under other names as hard links."""
    scale = QUICK if quick else FULL
    folder = DATA / scale.name
    if not folder.is_dir():
        _build(scale, folder)
    if times == 1:
        return folder
    multiple = DATA / f"{scale.name}-x{times}"
    if not multiple.is_dir():
        unfinished = _fresh_folder(multiple)
        for number, source in itertools.product(range(times), sorted(folder.glob("*.jsonl"))):
            os.link(source, unfinished / f"copy{number}-{source.name}")
        unfinished.rename(multiple)
    return multiple


def single_file(quick: bool = False, compressed: bool = False) -> Path:
    """One large file of the corpus repeated: plain JSON lines, or the same as a single Zstandard frame."""
    scale = QUICK if quick else FULL
    path = DATA / f"{scale.name}-single" / ("one.jsonl.zst" if compressed else "one.jsonl")
    if path.exists():
        return path
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_name("unfinished")
    if compressed:
        _compress_as_one_frame(single_file(quick), unfinished)
    else:
        _repeat_lines(corpus_folder(quick), unfinished, scale.single_bytes)
    unfinished.rename(path)
    return path


def folder_bytes(folder: Path) -> int:
    """The size of all files directly in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _fresh_folder(final: Path) -> Path:
    """An empty folder beside `final`, to be renamed to it once it is complete."""
    unfinished = final.with_name(f"{final.name}.unfinished")
    if unfinished.is_dir():
        for path in unfinished.iterdir():
            path.unlink()
    unfinished.mkdir(parents=True, exist_ok=True)
    return unfinished


def _build(scale: Scale, folder: Path) -> None:
    if not SOURCE_TEXT.is_dir():
        raise SystemExit(
            f"no benchmark corpus: {folder} does not exist and its source {SOURCE_TEXT} is not a folder. "
            "Set THRESHER_DATA to a folder whose text/ holds .jsonl.zst or .jsonl.gz files with a field `text`."
        )
    chance = random.Random(_SEED)
    originals = scale.documents * 8 // 10
    documents = list(itertools.islice(_originals(chance), originals))
    exact = chance.sample(documents, scale.documents // 10)
    near = chance.sample(documents, scale.documents // 10)
    copies = [(dict(source), source["id"], "exact") for source in exact]
    copies += [(source | {"text": _change_words(source["text"], chance)}, source["id"], "near") for source in near]
    planted = []
    for number, (document, original, kind) in enumerate(copies):
        document["id"] = f"bench-{originals + number:06d}"
        planted.append({"id": document["id"], "original": original, "kind": kind})
        documents.append(document)
    chance.shuffle(documents)
    _write_files(documents, folder)
    (folder.parent / f"{scale.name}-planted.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(planted))


def _write_files(documents: list[Document], folder: Path) -> None:
    unfinished = _fresh_folder(folder)
    encoder = msgspec.json.Encoder()
    per_file = math.ceil(len(documents) / _FILES)
    for number in range(_FILES):
        some = documents[number * per_file : (number + 1) * per_file]
        (unfinished / f"part-{number:02d}.jsonl").write_bytes(encoder.encode_lines(some))
    unfinished.rename(folder)


def _originals(chance: random.Random) -> Iterator[Document]:
    """New documents without end, each made of paragraphs of one kind and language."""
    groups = _paragraph_groups()
    weights = [sum(len(text) for text, _ in group) for group in groups]
    streams = [_documents_of(group, chance) for group in groups]
    for number in itertools.count():
        document = next(chance.choices(streams, weights)[0])
        yield {"id": f"bench-{number:06d}", **document}


def _paragraph_groups() -> list[list[Paragraph]]:
    """The paragraphs of all sources by kind and language; too little for a group of its own goes by kind alone."""
    by_language: dict[tuple[str, str], list[Paragraph]] = {}
    for document in _source_documents():
        rest = {key: value for key, value in document.items() if key not in ("id", "text")}
        key = (str(document.get("kind")), str(document.get("language")))
        texts = (text for text in document["text"].split("\n\n") if text.strip())
        by_language.setdefault(key, []).extend((text, rest) for text in texts)
    groups: dict[tuple[str, ...], list[Paragraph]] = {}
    for (kind, language), paragraphs in by_language.items():
        large = sum(len(text) for text, _ in paragraphs) >= _GROUP_CHARACTERS
        groups.setdefault((kind, language) if large else (kind,), []).extend(paragraphs)
    return [groups[key] for key in sorted(groups) if groups[key]]


def _source_documents() -> Iterator[Document]:
    import gzip

    import zstandard

    for path in sorted(SOURCE_TEXT.glob("*.jsonl.*")):
        with gzip.open(path) if path.suffix == ".gz" else zstandard.open(path, "rb") as stream:
            for line in stream.read().splitlines():
                document = msgspec.json.decode(line)
                if document.get("text"):
                    yield document


def _documents_of(paragraphs: list[Paragraph], chance: random.Random) -> Iterator[Document]:
    """Fill documents with paragraphs up to a length drawn from the law, for ever.

    The first pass takes the paragraphs as they come; later ones shuffle them first, so that a text met again stands in
    other company.
    """
    texts: list[str] = []
    room = 0
    rest: Document = {}
    while True:
        for paragraph, fields in paragraphs:
            remaining = paragraph
            while remaining:
                if not texts:
                    rest = fields
                    room = min(_MAX_CHARACTERS, int(chance.lognormvariate(math.log(_MEDIAN_CHARACTERS), _SIGMA)) + 1)
                piece, remaining = _split_at_space(remaining, room)
                texts.append(piece)
                room -= len(piece) + 2
                if room <= 0 or remaining:
                    yield {"text": "\n\n".join(texts), **rest}
                    texts = []
        chance.shuffle(paragraphs)


def _split_at_space(text: str, room: int) -> tuple[str, str]:
    """As much of a text as fits into `room` characters, cut at a space where there is one, and what is left."""
    if len(text) <= room * 1.2:
        return text, ""
    cut = text.rfind(" ", room // 2, room)
    cut = cut if cut > 0 else max(1, room)
    return text[:cut], text[cut:].lstrip()


def _change_words(text: str, chance: random.Random) -> str:
    """A near copy: some words dropped or put elsewhere, at least one."""
    words = text.split(" ")
    for _ in range(max(1, int(len(words) * _WORDS_CHANGED))):
        place = chance.randrange(len(words))
        words[place] = "" if chance.random() < 0.5 else words[chance.randrange(len(words))]
    return " ".join(words)


def _repeat_lines(folder: Path, target: Path, target_bytes: int) -> None:
    """Write the lines of a folder's files again and again until the size is reached; the last line is a whole one."""
    written = 0
    with target.open("wb") as writer:
        for path in itertools.cycle(sorted(folder.glob("*.jsonl"))):
            block = path.read_bytes()
            if written + len(block) >= target_bytes:
                writer.write(block[: block.index(b"\n", target_bytes - written - 1) + 1])
                return
            written += writer.write(block)


def _compress_as_one_frame(source: Path, target: Path) -> None:
    import zstandard

    with source.open("rb") as reader, target.open("wb") as writer:
        zstandard.ZstdCompressor(level=3).copy_stream(reader, writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--times", type=int, default=1, help="so many times the corpus, under other names")
    parser.add_argument("--single", action="store_true", help="also the one large file, plain and compressed")
    chosen = parser.parse_args()
    folder = corpus_folder(chosen.quick, chosen.times)
    print(f"{folder}: {folder_bytes(folder) / 1e6:.1f} MB")
    if chosen.single:
        for path in (single_file(chosen.quick), single_file(chosen.quick, compressed=True)):
            print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
