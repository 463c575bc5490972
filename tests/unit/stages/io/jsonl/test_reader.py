# SPDX-License-Identifier: Apache-2.0
"""JSON lines: every record exactly once, in order, with the same ids, whatever the sizes and the packing."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.reading import PACKERS, lines_of, read_all, read_units, write_packed, zstd_frames
from thresher.core.source import ReadContext
from thresher.core.unit import file12, unit_id
from thresher.errors import InputError, UsageError
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.listing import PACK_FILES

records = st.sampled_from(
    [
        b"{}",
        b'{"a": 1}',
        b'{"text": "na\xc3\xafve"}',
        b'  {"b": [1, {"c": "}\\n{"}]} ',
        b'{"d": "' + b"x" * 50 + b'"}\r',
    ]
)
blanks = st.sampled_from([b"", b" ", b"\t\r"])
contents = st.tuples(
    st.booleans(), st.lists(st.one_of(records, records, blanks), max_size=12), st.sampled_from([b"", b"\n"])
).map(lambda parts: b"\xef\xbb\xbf" * parts[0] + b"\n".join(parts[1]) + parts[2])
block_sizes = st.integers(1, 120)
chunk_sizes = st.integers(1, 200)

PREFIX = f"{file12('data.jsonl')}:"


def expected(content: bytes, name: str = "data.jsonl") -> list[tuple[str, bytes]]:
    return [(f"{file12(name)}:{place}", line) for place, line in lines_of(content)]


@settings(max_examples=150)
@given(contents, block_sizes, chunk_sizes)
def test_every_record_once_in_order_whatever_the_block_and_chunk_size(
    content: bytes, blocksize: int, chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_packed(Path(folder), "", content)
        found = read_all(JsonlReader(path, blocksize=blocksize), ReadContext(chunk_bytes=chunk_bytes))
    assert found.records == expected(content)
    assert not found.failed
    for unit, ids in found.units.items():
        starts = [0 if (place := int(one.split(":")[1])) == 3 and content[:1] == b"\xef" else place for one in ids]
        assert {unit_id("data.jsonl", start // blocksize) for start in starts} <= {unit}


@settings(max_examples=60)
@given(contents, block_sizes, chunk_sizes, st.sampled_from(sorted(PACKERS)))
def test_a_packed_file_gives_the_same_records_with_the_same_ids(
    content: bytes, blocksize: int, chunk_bytes: int, ending: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_packed(Path(folder), ending, content)
        found = read_all(JsonlReader(path, blocksize=blocksize), ReadContext(chunk_bytes=chunk_bytes))
    assert found.records == expected(content, f"data.jsonl{ending}")
    assert not found.failed


@settings(max_examples=100)
@given(contents, st.lists(st.integers(0, 300), max_size=5), block_sizes, chunk_sizes)
def test_zstd_frames_cut_anywhere_give_the_same_records(
    content: bytes, cuts: list[int], blocksize: int, chunk_bytes: int
) -> None:
    places = sorted({0, len(content), *(place % (len(content) + 1) for place in cuts)})
    frames = [content[start:end] for start, end in pairwise(places)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.jsonl.zst"
        path.write_bytes(zstd_frames(frames))
        found = read_all(JsonlReader(str(path), blocksize=blocksize), ReadContext(chunk_bytes=chunk_bytes))
    assert found.records == expected(content, "data.jsonl.zst")
    assert not found.failed


@settings(max_examples=60)
@given(contents, block_sizes, st.integers(1, 14), st.sampled_from(["", ".gz", ".zst"]))
def test_a_limit_gives_the_first_records(content: bytes, blocksize: int, limit: int, ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_packed(Path(folder), ending, content)
        (Path(folder) / "zz.jsonl").write_bytes(b'{"last": 1}\n{"last": 2}\n')
        whole = read_all(JsonlReader(folder, blocksize=blocksize))
        first = read_all(JsonlReader(folder, blocksize=blocksize, limit=limit))
    assert first.records == whole.records[:limit]


@settings(max_examples=60)
@given(contents, block_sizes, st.integers(1, 60), chunk_sizes)
def test_a_record_that_is_too_large_is_set_aside_with_its_place(
    content: bytes, blocksize: int, max_record_bytes: int, chunk_bytes: int
) -> None:
    context = ReadContext(chunk_bytes=chunk_bytes, max_record_bytes=max_record_bytes)
    with tempfile.TemporaryDirectory() as folder:
        path = write_packed(Path(folder), "", content)
        found = read_all(JsonlReader(path, blocksize=blocksize), context)
    small = [(one, line) for one, line in expected(content) if len(line) <= max_record_bytes]
    large = [(one, line) for one, line in expected(content) if len(line) > max_record_bytes]
    assert found.records == small
    assert [(one, line) for _, one, line, _ in found.failed if line.strip()] == large
    assert set(found.errors) <= {"record-too-large"}


@settings(max_examples=40)
@given(contents, block_sizes, st.data())
def test_a_stream_passes_over_units_that_are_done(content: bytes, blocksize: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_packed(Path(folder), ".gz", content)
        reader = JsonlReader(path, blocksize=blocksize)
        units = [unit for unit in reader.list_units() if unit.stream]
        whole = read_units(reader, iter(units))
        done = data.draw(st.frozensets(st.sampled_from(sorted(whole.units) or [""])))
        rest = read_units(reader, iter(units), ReadContext(done=done))
    assert rest.units == {unit: ids for unit, ids in whole.units.items() if unit not in done}
    assert set(rest.closed) == set(rest.units)


def test_a_stream_closes_each_unit_before_the_next_one(tmp_path: Path) -> None:
    path = write_packed(tmp_path, ".gz", b'{"a": 1}\n' * 50)
    found = read_all(JsonlReader(path, blocksize=100))
    assert found.closed == list(found.units) == [unit_id("data.jsonl.gz", block) for block in range(5)]


def test_frames_are_read_as_units_of_their_own(tmp_path: Path) -> None:
    lines = [b'{"n": %d}\n' % n for n in range(100)]
    parts = [b"".join(lines[n : n + 10]) for n in range(0, 100, 10)]
    path = tmp_path / "data.jsonl.zst"
    path.write_bytes(zstd_frames(parts))
    units = list(JsonlReader(str(path), blocksize=200).list_units())
    assert [unit.pieces[0].row for unit in units] == [0, 290, 490, 690, 890]
    assert not any(unit.stream for unit in units)


@pytest.mark.parametrize("content", [zstd_frames([b"{}\n" * 50] * 3, with_sizes=False), zstd_frames([b"{}\n" * 500])])
def test_frames_without_sizes_and_huge_frames_are_streamed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.jsonl.zst"
    path.write_bytes(content)
    reader = JsonlReader(str(path), blocksize=100)
    (unit,) = reader.list_units()
    assert unit.stream
    assert set(read_all(reader).lines) == {b"{}"}


def test_small_files_share_a_unit_and_keep_their_own_ids(tmp_path: Path) -> None:
    for n in range(30):
        (tmp_path / f"{n:02d}.jsonl").write_bytes(b'{"n": %d}\n{}\n' % n)
    (tmp_path / "05.jsonl").write_bytes(b"")
    units = list(JsonlReader(str(tmp_path), blocksize=1000).list_units())
    assert [len(unit.pieces) for unit in units] == [29]
    assert units[0].id == unit_id("00.jsonl", 0)
    found = read_all(JsonlReader(str(tmp_path), blocksize=1000))
    names = [f"{n:02d}.jsonl" for n in range(30) if n != 5]
    assert found.ids == [f"{file12(name)}:{place}" for name in names for place in (0, 9 if name < "10" else 10)]


def test_a_pack_of_tiny_files_has_a_largest_number_of_files(tmp_path: Path) -> None:
    """Whatever their size: else all tiny files of a large folder would be the work of one worker."""
    for number in range(2 * PACK_FILES + 3):
        (tmp_path / f"{number:05d}.jsonl").write_bytes(b'{"a": 1}\n')
    packs = [len(unit.pieces) for unit in JsonlReader(str(tmp_path)).list_units()]
    assert packs == [PACK_FILES, PACK_FILES, 3]
    asked = JsonlReader(str(tmp_path), files_per_partition=2 * PACK_FILES)
    assert [len(unit.pieces) for unit in asked.list_units()] == [2 * PACK_FILES, 3]


def test_a_pack_is_full_at_the_block_size(tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / f"{n:03d}.jsonl").write_bytes(b'{"n": 12}\n')
    units = list(JsonlReader(str(tmp_path), blocksize=700).list_units())
    assert [len(unit.pieces) for unit in units] == [70, 30]


def test_files_per_partition_takes_exactly_so_many_whole_files(tmp_path: Path) -> None:
    for n in range(5):
        write_packed(tmp_path, sorted(["", *PACKERS])[n], b'{"n": %d}\n' % n * 100)
    reader = JsonlReader(str(tmp_path), files_per_partition=2, blocksize=10)
    units = list(reader.list_units())
    assert [len(unit.pieces) for unit in units] == [2, 2, 1]
    assert not any(unit.stream for unit in units)
    assert len(read_all(reader).records) == 500


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 20))
def test_many_small_files_make_few_batches(tmp_path: Path, chunks: int) -> None:
    for n in range(20):
        (tmp_path / f"{n:02d}.jsonl").write_bytes(b"{}\n" * 10)
    reader = JsonlReader(str(tmp_path), blocksize="1MB")
    (unit,) = reader.list_units()
    items = list(reader.read(unit, ReadContext(chunk_bytes=20 * chunks)))
    assert len(items) == -(-20 // chunks)


def test_lines_that_are_no_records_are_set_aside_with_file_place_and_reason(tmp_path: Path) -> None:
    lines = [b'{"ok": 1}', b"[1]", b'{"a": }', b'{"a": "\xff"}', b'{"a": "\0"}', b'{"a":' * 5000 + b"1", b'{"ok": 2}']
    lines.append(b'{"two": 1} {"objects": 2}')
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\n".join(lines))
    found = read_all(JsonlReader(str(path)))
    assert found.lines == [lines[0], lines[6]]
    assert sorted(found.errors) == ["invalid-utf8", "not-an-object", "not-json", "not-json", "nul-byte", "too-deep"]
    for _, record_id, line, message in found.failed:
        place = int(record_id.removeprefix(PREFIX))
        assert path.read_bytes()[place:].startswith(line)
        assert message.startswith(f"{path}, byte {place}: ")


def test_fields_keeps_only_the_named_ones_in_the_order_of_the_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"c": 1.50, "b": {"x":1}, "a": "00123"}\n{"a":1,"b":2}\n{"z": 0}\n{"a": 1, "a": 2, "z": 0}\n')
    found = read_all(JsonlReader(str(path), fields=["a", "b"]))
    assert found.lines == [b'{"b": {"x":1}, "a": "00123"}', b'{"a":1,"b":2}', b'{"a": 2}']
    assert [(error, raw) for error, _, raw, _ in found.failed] == [("field-missing", b'{"z": 0}')]
    assert sorted([*found.ids, found.failed[0][1]]) == sorted(read_all(JsonlReader(str(path))).ids)
    assert JsonlReader(str(path), fields=["a", "b"]).known_columns() == ["a", "b"]
    assert JsonlReader(str(path)).known_columns() is None


def test_empty_files_hold_no_records_and_are_no_error(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst"):
        (tmp_path / name).write_bytes(b"")
    assert list(JsonlReader(str(tmp_path)).list_units()) == []


def test_ids_do_not_depend_on_where_the_folder_lies(tmp_path: Path) -> None:
    for place in ("here", "there/deep"):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "sub" / "x.jsonl").write_bytes(b"{}\n{}\n")
    here, there = (read_all(JsonlReader(str(tmp_path / place))) for place in ("here", "there/deep"))
    assert here.records == there.records
    assert here.units == there.units


def test_a_file_that_changed_after_listing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"{}\n{}\n")
    reader = JsonlReader(str(path))
    units = list(reader.list_units())
    path.write_bytes(b"{}\n{}\n{}\n")
    with pytest.raises(InputError, match=r"changed after it was listed \(it had 6 bytes, now it has 9\)"):
        read_units(reader, iter(units))
    path.unlink()
    with pytest.raises(InputError, match="does not exist"):
        read_units(reader, iter(units))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"file_paths": ""}, "file_paths"),
        ({"file_paths": []}, "file_paths"),
        ({"file_paths": [3]}, "file_paths"),
        ({"blocksize": "64 fish"}, r"blocksize: '64 fish'.*64MB"),
        ({"blocksize": 0}, "blocksize"),
        ({"limit": 0}, "limit: 0 is not a whole number of 1 or more"),
        ({"limit": True}, "limit"),
        ({"files_per_partition": -1}, "files_per_partition"),
        ({"fields": "text"}, r"fields: 'text'.*list"),
        ({"storage_options": "anon"}, "storage_options"),
    ],
)
def test_wrong_parameters_are_refused_by_name(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        JsonlReader(**({"file_paths": "x"} | arguments))


def test_the_constructor_looks_at_nothing() -> None:
    assert JsonlReader("/no/such/place").file_paths == "/no/such/place"


def test_listing_needs_neither_arrow_nor_numpy(tmp_path: Path, run_python) -> None:  # type: ignore[no-untyped-def]  # a fixture
    for ending in ("", *PACKERS):
        write_packed(tmp_path, ending, b"{}\n" * 1000)
    loaded = run_python(
        f"""
        import json, sys
        from thresher.stages.io.jsonl.reader import JsonlReader
        units = list(JsonlReader({str(tmp_path)!r}, blocksize=100).list_units())
        print(json.dumps([len(units), [m for m in ("numpy", "pyarrow", "pandas", "fsspec") if m in sys.modules]]))
        """
    )
    assert json.loads(loaded) == [34, []]
