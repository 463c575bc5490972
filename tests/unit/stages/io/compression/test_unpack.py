# SPDX-License-Identifier: Apache-2.0
"""Packed files, whole and damaged: everything before the damage is given, and the damage is told once."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.reading import PACKERS, read_all, zstd_frames
from thresher.stages.io.compression.content import Content, content_of
from thresher.stages.io.compression.unpack import unpack
from thresher.stages.io.compression.zstd_frames import find_frames, unpack_zstd
from thresher.stages.io.damage import DamagedInputError
from thresher.stages.io.jsonl.reader import JsonlReader

CONTENTS = {".gz": Content.GZIP, ".bz2": Content.BZIP2, ".xz": Content.XZ, ".zst": Content.ZSTD}
TEXT = b"".join(b'{"n": %d, "text": "%s"}\n' % (n, bytes(str(n * n), "ascii") * (n % 7)) for n in range(400))


def unpacked(packed: bytes, content: Content) -> tuple[bytes, DamagedInputError | None]:
    """What comes out, and what is said at the end."""
    given_bytes = bytearray()
    try:
        for piece in unpack(io.BytesIO(packed), content):
            given_bytes += piece
    except DamagedInputError as damage:
        return bytes(given_bytes), damage
    return bytes(given_bytes), None


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("parts", [[TEXT], [b"", TEXT, b"", b"x"], [b""]], ids=["one", "several", "empty"])
def test_members_behind_each_other_are_one_file(ending: str, parts: list[bytes]) -> None:
    packed = b"".join(PACKERS[ending](part) for part in parts)
    assert content_of(packed, "x") is CONTENTS[ending]
    assert unpacked(packed, CONTENTS[ending]) == (b"".join(parts), None)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_zeros_behind_the_last_member_are_padding(ending: str) -> None:
    packed = PACKERS[ending](TEXT) + bytes(600_000)
    assert unpacked(packed, CONTENTS[ending]) == (TEXT, None)
    assert unpacked(packed + PACKERS[ending](b"more"), CONTENTS[ending]) == (TEXT + b"more", None)


@pytest.mark.parametrize("ending", PACKERS)
def test_something_else_behind_the_last_member_is_told_with_its_place(ending: str) -> None:
    packed = PACKERS[ending](TEXT)
    given_bytes, damage = unpacked(packed + b"something else entirely", CONTENTS[ending])
    assert given_bytes == TEXT
    assert damage is not None
    assert damage.error == "trailing-garbage"
    assert f"from byte {len(packed)} on" in damage.message


@pytest.mark.parametrize("ending", PACKERS)
@given(st.data())
@settings(max_examples=25)
def test_a_file_that_is_cut_short_gives_what_was_there_and_says_so(ending: str, data: st.DataObject) -> None:
    packed = PACKERS[ending](TEXT)
    size = data.draw(st.integers(10, len(packed) - 1))
    given_bytes, damage = unpacked(packed[:size], CONTENTS[ending])
    assert TEXT.startswith(given_bytes)
    assert damage is not None
    assert damage.error == "truncated"
    assert f"byte {size} " in damage.message


@given(st.integers(12, len(gzip.compress(TEXT)) - 1))
@settings(max_examples=25)
def test_a_cut_gzip_file_gives_every_byte_that_zlib_can_find(size: int) -> None:
    packed = gzip.compress(TEXT)[:size]
    assert unpacked(packed, Content.GZIP)[0] == zlib.decompressobj(wbits=31).decompress(packed)


@given(st.integers(10, len(gzip.compress(TEXT)) - 1), st.integers(1, 255))
@settings(max_examples=100)
def test_a_damaged_gzip_file_gives_every_byte_before_the_fault(place: int, flip: int) -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[place] ^= flip
    oracle, before = zlib.decompressobj(wbits=31), bytearray()
    try:
        for byte in packed:
            before += oracle.decompress(bytes([byte]))
    except zlib.error:
        pass
    given_bytes, damage = unpacked(bytes(packed), Content.GZIP)
    assert given_bytes.startswith(bytes(before))
    if oracle.eof and not oracle.unused_data:
        assert given_bytes == TEXT, "a bit that no decoder looks at, between the last block and the checksum"
    else:
        assert damage is not None


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz"])
def test_a_fault_late_in_a_large_file_costs_little(ending: str) -> None:
    text = random.Random(7).randbytes(800_000).hex().encode()
    packed = bytearray(PACKERS[ending](text))
    packed[len(packed) * 3 // 4] ^= 255
    given_bytes, damage = unpacked(bytes(packed), CONTENTS[ending])
    assert damage is not None
    same = next((n for n, (a, b) in enumerate(zip(given_bytes, text, strict=False)) if a != b), len(given_bytes))
    assert same >= len(text) * 3 // 4 - 1_000_000  # bzip2 and xz check blocks, not bytes


@pytest.mark.parametrize("ending", PACKERS)
@given(st.data())
@settings(max_examples=40)
def test_a_damaged_file_never_raises_anything_else(ending: str, data: st.DataObject) -> None:
    packed = bytearray(PACKERS[ending](TEXT))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(4, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    given_bytes, damage = unpacked(bytes(packed), CONTENTS[ending])
    assert damage is not None or len(given_bytes) <= len(TEXT)


def test_a_wrong_checksum_costs_no_record() -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1
    given_bytes, damage = unpacked(bytes(packed), Content.GZIP)
    assert given_bytes == TEXT
    assert damage is not None
    assert damage.error == "corrupt-input"
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(TEXT))
    frame[-1] ^= 1
    given_bytes, damage = unpacked(bytes(frame), Content.ZSTD)
    assert given_bytes == TEXT
    assert damage is not None
    assert damage.error == "corrupt-input"


@pytest.mark.parametrize("ending", PACKERS)
def test_pieces_stay_small_whatever_a_file_unpacks_to(ending: str) -> None:
    packed = PACKERS[ending](bytes(50_000_000))
    sizes = [len(piece) for piece in unpack(io.BytesIO(packed), CONTENTS[ending])]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 2**20


def test_a_frame_that_wants_too_much_memory_is_told_not_obeyed() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = compressor.compress(TEXT) + compressor.flush()
    given_bytes, damage = unpacked(packed, Content.ZSTD)
    assert given_bytes == b""
    assert damage is not None
    assert damage.error == "corrupt-input"


@given(st.lists(st.binary(max_size=400_000), max_size=4), st.booleans())
@settings(max_examples=20)
def test_frames_are_found_without_unpacking(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], sum_: bool
) -> None:
    path = tmp_path_factory.mktemp("frames") / "x.zst"
    packed = zstd_frames(parts, checksum=sum_)
    path.write_bytes(packed)
    frames = find_frames(str(path))
    assert frames is not None
    assert [frame.unpacked for frame in frames] == [len(part) for part in parts]
    for frame, part in zip(frames, parts, strict=True):
        assert b"".join(unpack_zstd(io.BytesIO(packed[frame.start : frame.end]))) == part


@pytest.mark.parametrize("cut", [1, 5, 20, 200])
def test_frames_of_a_damaged_file_are_left_to_the_stream(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.zst"
    path.write_bytes(zstd_frames([TEXT, TEXT])[:-cut])
    assert find_frames(str(path)) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("plain.jsonl.gz", TEXT),
        ("gzip.jsonl.zst", gzip.compress(TEXT)),
        ("zstd.jsonl", zstandard.ZstdCompressor().compress(TEXT)),
        ("xz.jsonl.bz2", lzma.compress(TEXT)),
        ("bzip2.json", bz2.compress(TEXT)),
    ],
)
def test_the_content_counts_not_the_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    found = read_all(JsonlReader(str(tmp_path / name), blocksize=1000))
    assert b"".join(line + b"\n" for line in found.lines) == TEXT
    assert not found.failed


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x.jsonl", '{"a": 1}\n'.encode("utf-16"), "utf-16"),
        ("x.jsonl", b"PAR1" + bytes(100), "not-json-lines"),
        ("x.jsonl.gz", bytes(range(256)) * 10, "corrupt-input"),
    ],
)
def test_a_file_that_holds_no_lines_is_one_failure(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    (tmp_path / name).write_bytes(content)
    found = read_all(JsonlReader(str(tmp_path), blocksize=10))
    assert found.errors == [error]
    assert not found.records


def test_a_damaged_frame_leaves_the_other_units_alone(tmp_path: Path) -> None:
    parts = [b'{"part": %d}\n' % n * 50 for n in range(4)]
    packed = bytearray(zstd_frames(parts))
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(packed)
    frames = find_frames(str(path))
    assert frames is not None
    packed[frames[1].end - 1] ^= 255  # its checksum
    path.write_bytes(packed)
    found = read_all(JsonlReader(str(path), blocksize=300))
    assert len(found.units) == 4
    assert found.errors == ["corrupt-input"]
    for n in (0, 1, 2, 3):
        assert found.lines.count(b'{"part": %d}' % n) >= 49
