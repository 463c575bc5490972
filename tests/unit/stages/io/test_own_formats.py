# SPDX-License-Identifier: Apache-2.0
"""Units of whole files and writers of encoded records, which readers and writers of other formats are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest

from thresher import RecordTask
from thresher.core.unit import unit_id
from thresher.errors import InputError
from thresher.records import EncodedWriter, Piece, ReadContext, SourceStage, Unit, failed_record, file_units


class Words(RecordTask):
    """Words."""

    def __init__(self, words: list[bytes]) -> None:
        super().__init__()
        self.words = words

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{"word": word} for word in self.words]

    @classmethod
    def from_dicts(cls, records: Sequence[dict[str, Any]]) -> Self:
        return cls([record["word"] for record in records])


class WordReader(SourceStage[Words]):
    """Reads words, two at a time."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def list_units(self) -> Iterator[Unit]:
        return file_units(self.folder, [".words"], pack_weight=100)

    def read_piece(self, piece: Piece, context: ReadContext) -> Iterator[Words]:
        words = Path(piece.path).read_bytes().split()
        for start in range(0, len(words), 2):
            yield Words(words[start : start + 2])


class WordWriter(EncodedWriter[Words]):
    """Writes words between marks."""

    def extension(self) -> str:
        return ".words"

    def file_start(self) -> bytes:
        return b"<"

    def file_end(self) -> bytes:
        return b">"

    def encode(self, batch: Words) -> Iterator[bytes]:
        return (word + b" " for word in batch.words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"b.words": "4 5", "a.words": "1 2 3", "sub/c.words": "6", "d.txt": "7"}.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    return tmp_path / "in"


def test_files_are_units_in_input_order_with_what_tells_that_they_changed(folder: Path) -> None:
    units = list(file_units(folder, [".words"]))
    assert [unit.id for unit in units] == [unit_id(name, 0) for name in ("a.words", "b.words", "sub/c.words")]
    assert [(unit.nbytes, unit.weight, unit.work) for unit in units] == [(5, 0, 5), (3, 0, 3), (1, 0, 1)]
    assert all(unit.pieces[0].version for unit in units)
    with pytest.raises(InputError, match=r"the reader looks for \.tar"):
        list(file_units(folder, [".tar"]))


def test_small_files_share_a_unit_up_to_a_weight(folder: Path) -> None:
    seconds = {"a.words": 40, "b.words": 50, "sub/c.words": 20}
    units = list(file_units(folder, [".words"], weigh=lambda piece: seconds[piece.relative], pack_weight=100))
    assert [[piece.relative for piece in unit.pieces] for unit in units] == [["a.words", "b.words"], ["sub/c.words"]]
    assert [(unit.order, unit.nbytes, unit.work) for unit in units] == [((0, 0), 8, 90), ((2, 0), 1, 20)]


def test_records_without_ids_get_the_numbers_that_they_have_in_their_file(folder: Path) -> None:
    reader = WordReader(str(folder))
    (unit,) = reader.list_units()
    found = [reader.parse(item.task) for item in reader.read(unit, ReadContext()) if item.task is not None]
    ids = [record_id for batch in found if batch.ids is not None for record_id in batch.ids.strings()]
    first, second, third = (piece.row_source[0] for piece in unit.pieces)
    assert ids == [f"{first}0", f"{first}1", f"{first}2", f"{second}0", f"{second}1", f"{third}0"]


def test_a_file_is_its_start_its_records_and_its_end(tmp_path: Path) -> None:
    file = WordWriter().open_writer(str(tmp_path / "f"))
    file.write(Words([b"a", b"b"]))
    file.write(Words([b"c"]))
    facts = file.close()
    assert (tmp_path / "f").read_bytes() == b"<a b c >"
    assert (facts.nbytes, facts.records, facts.sha256) == (8, 3, hashlib.sha256(b"<a b c >").hexdigest())
    WordWriter().open_writer(str(tmp_path / "g")).close()
    assert not (tmp_path / "g").exists()


def test_a_record_that_cannot_be_read_has_its_place_in_the_message() -> None:
    task = failed_record(Piece("in/a.tar", "a.tar", 1).source, 512, "truncated", "the file ends early", b"head")
    (failed,) = task.take_failed()
    assert (failed.messages, failed.lines) == (["in/a.tar, byte 512: the file ends early"], [b"head"])
