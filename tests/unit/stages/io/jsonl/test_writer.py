# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of_lines
from tests.unit.stages.io.written_files import JOURNEYS, cut, joined, json_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.stages.io import file_writer
from thresher.stages.io.jsonl import compressed_writer
from thresher.stages.io.jsonl.writer import JsonlWriter

UNPACK = {
    None: lambda data: data,
    "gzip": gzip.decompress,
    "gz": gzip.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(),
    "zst": lambda data: zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(),
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
}
COMPRESSIONS = st.sampled_from(sorted(UNPACK, key=str))


@pytest.fixture(autouse=True)
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of a few records, so that a handful of them has many borders; and no waiting for the disk."""
    monkeypatch.setattr(file_writer, "sync_data", lambda descriptor: None)
    monkeypatch.setattr(compressed_writer, "FRAME_BYTES", 60)


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0), st.sampled_from(JOURNEYS), COMPRESSIONS)
def test_what_nothing_changed_is_written_as_it_came(lines, cuts, journey, compression):
    content, facts = written(JsonlWriter("out", compression=compression), [journey(b) for b in cut(lines, cuts)])

    assert (UNPACK[compression](content) if lines else content) == b"".join(line + b"\n" for line in lines)
    assert facts.records == len(lines)
    assert facts.nbytes == len(content)
    assert facts.sha256 == hashlib.sha256(content).hexdigest()


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0), COMPRESSIONS)
def test_batch_borders_leave_no_trace_in_the_file(lines, cuts, compression):
    sink = JsonlWriter("out", compression=compression)

    assert written(sink, cut(lines, cuts))[0] == written(sink, cut(lines, 0))[0]


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0), st.integers(0), COMPRESSIONS)
def test_joined_parts_are_the_file_that_would_have_been_written_at_once(lines, borders, cuts, compression):
    sink = JsonlWriter("out", compression=compression)
    parts = [cut([bytes(line) for line in part.json_lines()], cuts) for part in cut(lines, borders)]

    assert joined(sink, parts) == written(sink, cut(lines, 0))


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0), st.sampled_from(JOURNEYS))
def test_only_changed_fields_are_rewritten(lines, cuts, journey):
    batches = [journey(batch).replace("text", ["new"] * len(batch)) for batch in cut(lines, cuts)]
    content, _ = written(JsonlWriter("out"), batches)

    for line, made in zip(lines, content.splitlines(), strict=True):
        expected = json.loads(line) | {"text": "new"}
        assert json.loads(made) == expected
        assert list(json.loads(made)) == list(expected)
        if json.loads(line).get("text") == "new":
            assert made == line


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0))
def test_fields_keeps_these_keys_in_the_order_of_the_record(lines, cuts):
    content, _ = written(JsonlWriter("out", fields=["text", "a"]), cut(lines, cuts))

    for line, made in zip(lines, content.splitlines(), strict=True):
        assert list(json.loads(made).items()) == [(k, v) for k, v in json.loads(line).items() if k in ("text", "a")]


def test_a_record_with_no_other_fields_keeps_its_bytes():
    content, _ = written(JsonlWriter("out", fields=["a"]), [batch_of_lines([b'{"a" :1.50}', b'{"a": 1,"b":2}'])])

    assert content == b'{"a" :1.50}\n{"a": 1}\n'


def test_records_that_have_no_lines_are_encoded():
    content, _ = written(JsonlWriter("out"), [DocumentBatch([{"a": 1, "b": "é"}, {"a": 2}])])

    assert content == '{"a": 1, "b": "é"}\n{"a": 2, "b": null}\n'.encode()


def test_a_unit_without_records_has_no_file(tmp_path: Path):
    writer = JsonlWriter("out").open_writer(str(tmp_path / "file"))
    writer.write(batch_of_lines([]))
    facts = writer.close()

    assert facts.records == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("compression", sorted(UNPACK, key=str))
def test_an_aborted_file_is_gone(tmp_path: Path, compression):
    writer = JsonlWriter("out", compression=compression).open_writer(str(tmp_path / "file"))
    writer.write(batch_of_lines([b'{"a": 1}'] * 100))
    writer.abort()

    assert list(tmp_path.iterdir()) == []


def test_every_zstd_frame_says_how_long_it_is_and_ends_with_a_line():
    lines = [json.dumps({"n": n, "text": "x" * n}).encode() for n in range(40)]
    content, _ = written(JsonlWriter("out", compression="zstd"), [batch_of_lines(lines)])

    frames = 0
    while content:
        unpacker = zstandard.ZstdDecompressor().decompressobj()
        frame = unpacker.decompress(content)
        assert zstandard.frame_content_size(content) == len(frame)
        assert frame.endswith(b"\n")
        assert len(frame) >= 60 or not unpacker.unused_data
        content = unpacker.unused_data
        frames += 1
    assert frames > 5


def test_a_gzip_header_holds_neither_time_nor_name():
    content, _ = written(JsonlWriter("out", compression="gzip"), [batch_of_lines([b"{}"])])

    assert content[:4] == b"\x1f\x8b\x08\x00"
    assert content[4:8] == b"\0\0\0\0"


@pytest.mark.parametrize(
    ("compression", "extension"),
    [(None, ".jsonl"), ("gz", ".jsonl.gz"), ("zst", ".jsonl.zst"), ("bz2", ".jsonl.bz2"), ("xz", ".jsonl.xz")],
)
def test_the_extension_says_how_it_is_compressed(compression, extension):
    assert JsonlWriter("out", compression=compression).extension() == extension
