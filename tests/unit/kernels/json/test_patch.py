# SPDX-License-Identifier: Apache-2.0
"""New texts are written into JSON lines as the plain encoder writes them, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts, real_texts
from thresher.core.documents.json_records import encode_value, patch_line
from thresher.core.documents.records import RawLines
from thresher.kernels.json.patch import patched

CONTROLS = "".join(map(chr, range(32))) + '"\\/\x7f\x80\u2028\U0001f600'


def patch(lines: Sequence[bytes], texts: Sequence[str], field: str = "text") -> list[bytes | None]:
    """Each line with its new text; `None` where a decoder is needed."""
    raw = RawLines.join(lines)
    data = np.frombuffer(raw.buffer, dtype=np.uint8)[:-1].copy()  # not a byte behind the last line
    new = patched(data, raw.starts, raw.ends, field, as_texts(texts))
    spans = zip(new.starts.tolist(), new.ends.tolist(), strict=True)
    return [new.data[start:end].tobytes() or None for start, end in spans]


def check(lines: Sequence[bytes], texts: Sequence[str], field: str = "text") -> None:
    for line, text, made in zip(lines, texts, patch(lines, texts, field), strict=True):
        assert made is None or made == patch_line(line, {field: encode_value(text)}, frozenset())


def test_all_else_in_a_line_keeps_its_bytes() -> None:
    line = b' { "a" : [1.0, {"text": 2}] ,"text":  "old\\n" , "b":null}\r'
    assert patch([line], ["new\n"]) == [b'{ "a" : [1.0, {"text": 2}] ,"text":  "new\\n" , "b":null}']


@pytest.mark.parametrize("shift", [0, 1, 31, 62, 63, 64, 65, 127, 128])
def test_every_escape_is_that_of_the_encoder(shift: int) -> None:
    texts = [" " * shift + one + end for one in (*CONTROLS, CONTROLS) for end in ("", "x" * 70)]
    lines = [b'{"text": "a"}'] * len(texts)
    assert patch(lines, texts) == [b'{"text": ' + encode_value(text) + b"}" for text in texts]


@pytest.mark.parametrize(
    "line",
    [
        b'{"text": "a", "text": "b"}',
        b'{"x": 1, "x": 2, "text": "b"}',
        b'{"te\\u0078t": "a"}',
        b'{"\\u0061": 1, "text": "b"}',
        b'{"other": "a"}',
        b"{}",
        b'{"text": "a"} x',
        b'{"text": "\\ud800"}',
        b"[1]",
        b"",
        b"{" + b", ".join(b'"%d": 0' % n for n in range(40)) + b', "text": ""}',
        b'{"text": ' + b"[" * 70 + b"]" * 70 + b"}",
    ],
)
def test_a_line_that_is_not_plain_is_left_to_a_decoder(line: bytes) -> None:
    good = b'{"text": "a"}'
    assert patch([good, line, good], ["x", "y", "z"]) == [b'{"text": "x"}', None, b'{"text": "z"}']


def test_a_field_whose_name_must_be_escaped_is_left_to_a_decoder() -> None:
    assert patch([b'{"a\\"b": "c"}'], ["x"], 'a"b') == [None]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
texts = st.text(st.characters(exclude_categories=("Cs",)))


@given(
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(["a", "b", "text", "té", "x" * 70]), values), texts, st.booleans()),
        max_size=4,
    )
)
@settings(max_examples=300, deadline=None)
def test_any_record_is_written_as_the_plain_encoder_writes_it(cases: list[tuple[dict[str, object], str, bool]]) -> None:
    lines = [json.dumps(record, ensure_ascii=ascii).encode() for record, _, ascii in cases]
    check(lines, [text for _, text, _ in cases])


def test_real_texts_are_written_as_the_plain_encoder_writes_them() -> None:
    given = [text for text in real_texts() if not _has_half_pair(text)]
    lines = [json.dumps({"id": 1, "text": "old", "meta": {"a": [1]}}).encode()] * len(given)
    assert None not in patch(lines, given)
    check(lines, given)


def _has_half_pair(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
