# SPDX-License-Identifier: Apache-2.0
"""Bytes are UTF-8 exactly if Python decodes them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.kernels.json.chunks import is_utf8

characters = st.characters() | st.sampled_from("\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
texts = st.lists(characters, max_size=80).map("".join)


def expected(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def found(raw: bytes) -> bool:
    return bool(is_utf8(np.frombuffer(raw, dtype=np.uint8)))


@settings(max_examples=500)
@given(texts.map(lambda text: text.encode("utf-8", "surrogatepass")), st.integers(0, 70), st.data())
def test_what_python_decodes_is_valid_and_nothing_else(raw: bytes, lead: int, data: st.DataObject) -> None:
    raw = b"a" * lead + raw
    assert found(raw) == expected(raw)
    place = data.draw(st.integers(0, len(raw)))
    damaged = raw[:place] + data.draw(st.binary(max_size=2)) + raw[place + data.draw(st.integers(0, 2)) :]
    assert found(damaged) == expected(damaged)


@pytest.mark.parametrize("lead", [0, 61, 62, 63, 64, 125])
def test_every_first_and_second_byte_is_judged_like_python(lead: int) -> None:
    for first, second in itertools.product(range(0x80, 0x100), range(0x60, 0x100, 4)):
        for rest in (b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"a\x80"):
            raw = b"a" * lead + bytes([first, second]) + rest
            assert found(raw) == expected(raw), raw
            assert found(raw + b"z" * 64) == expected(raw + b"z" * 64), raw


def test_nothing_is_valid() -> None:
    assert found(b"")
