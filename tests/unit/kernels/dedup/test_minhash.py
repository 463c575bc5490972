# SPDX-License-Identifier: Apache-2.0
"""Shingles and keys agree with their plain definition, and with the Jaccard similarity that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.texts import WHITE_SPACE, as_texts, made_up_texts
from thresher.kernels.build import intrinsics
from thresher.kernels.dedup import minhash
from thresher.kernels.dedup.minhash import band_keys
from thresher.kernels.dedup.shingles import CHARACTERS, WORDS, shingle_hashes

ALL = 2**64 - 1
SEED = 42


def mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & ALL
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & ALL
    return value ^ (value >> 31)


def polynomial(numbers: Sequence[int]) -> int:
    value = 0
    for number in numbers:
        value = (value * 0x9E3779B97F4A7C15 + number) & ALL
    return value


def of_bytes(text: str) -> int:
    return polynomial([byte + 1 for byte in text.encode("utf-8", "surrogatepass")])


def folded(one: int, other: int) -> int:
    product = one * other
    return (product ^ (product >> 64)) & ALL


def of_word(word: str) -> int:
    """The definition of `hash_bytes`."""
    content = word.encode("utf-8", "surrogatepass")
    value = len(content) * int(intrinsics._OTHER_MULTIPLIER) & ALL
    multiplier = int(intrinsics._MULTIPLIER)
    while len(content) > 16:
        first, second = (int.from_bytes(content[at : at + 8], "little") for at in (0, 8))
        value, content = folded(first ^ multiplier, second ^ value), content[16:]
    first, second = (int.from_bytes(content[at : at + 8], "little") for at in (0, 8))
    return folded(folded(first ^ multiplier, second ^ value), int(intrinsics._OTHER_MULTIPLIER))


def plain_shingles(text: str, kind: int, n: int) -> list[int]:
    """The definition: runs of n characters or words, or the whole text where there is none."""
    parts: Sequence[str] = text if kind == CHARACTERS else text.split()
    runs = [parts[start : start + n] for start in range(len(parts) - n + 1)]
    if not runs:
        return [mixed(of_bytes(text) ^ SEED)] if text else []
    if kind == CHARACTERS:
        return [mixed(of_bytes("".join(run)) ^ SEED) for run in runs]
    return [mixed(polynomial([of_word(word) | 1 for word in run]) ^ SEED) for run in runs]


def plain_keys(hashes: Sequence[int], bands: int, rows: int) -> list[int]:
    """The definition of fast similarity sketching, and of the keys of bands."""
    if not hashes:
        return [0] * bands
    size = bands * rows
    bins: list[int | None] = [None] * size
    for turn in range(2 * size):
        for value in set(hashes):
            value = mixed((value + turn * 0xD1B54A32D192ED03) & ALL) if turn else value
            place = ((value >> 32) * size) >> 32 if turn < size else turn - size
            value = (turn << 32) | (value & 0xFFFFFFFF)
            held = bins[place]
            bins[place] = value if held is None else min(held, value)
        if None not in bins:
            break
    keys = []
    for band in range(bands):
        key = mixed(((band + 1) * 0xD1B54A32D192ED03 & ALL) ^ SEED)
        for number in bins[band * rows : (band + 1) * rows]:
            assert number is not None
            key = mixed((key * 0x9FB21C651E98DF25 + number) & ALL)
        keys.append(key or 1)
    return keys


TEXT = st.text(st.one_of(st.characters(), st.sampled_from([*"ab c", *WHITE_SPACE, "é", "中", "😀"])), max_size=60)


@given(TEXT, st.sampled_from([CHARACTERS, WORDS]), st.integers(1, 8))
def test_shingles_are_those_of_the_definition(text: str, kind: int, n: int) -> None:
    assert shingle_hashes(as_texts([text]), 0, kind, n, SEED).tolist() == plain_shingles(text, kind, n)


@settings(max_examples=30)
@given(st.lists(TEXT, max_size=4), st.sampled_from([CHARACTERS, WORDS]), st.sampled_from([(1, 1), (3, 2), (20, 13)]))
def test_keys_are_those_of_the_definition(texts: list[str], kind: int, banding: tuple[int, int]) -> None:
    found = band_keys(as_texts(texts), kind, 3, SEED, banding).tolist()
    assert found == [plain_keys(plain_shingles(text, kind, 3), *banding) for text in texts]


@pytest.mark.parametrize("kind", [CHARACTERS, WORDS])
def test_texts_of_several_blocks(kind: int) -> None:
    words = [text for text in made_up_texts(5, 40) if text]
    long = " ".join(words) * 3
    repeated = "a b " * 5000
    rare = repeated + "".join(chr(0x4E00 + n) for n in range(50))
    for text in (long, repeated, rare):
        found = band_keys(as_texts([text]), kind, 4, SEED, (20, 13))[0].tolist()
        assert found == plain_keys(plain_shingles(text, kind, 4), 20, 13)


def test_a_set_that_is_too_large_for_the_table_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more bins than shingles that a table holds, bins stay empty after the first round."""
    random = Random(3)
    text = "".join(chr(random.randrange(0x4E00, 0x9000)) for _ in range(minhash._SET_SLOTS))
    banding = (100, 40)
    found = band_keys(as_texts([text]), CHARACTERS, 2, SEED, banding)[0].tolist()
    assert found == plain_keys(plain_shingles(text, CHARACTERS, 2), *banding)


@pytest.mark.parametrize("size", [30, 300, 3000])
@pytest.mark.parametrize("similarity", [0.5, 0.8])
def test_bins_agree_as_often_as_sets_are_similar(size: int, similarity: float) -> None:
    """With one value per band, the share of equal keys estimates the Jaccard similarity of the sets."""
    random, shares = Random(size), []
    common = round(size * 2 * similarity / (1 + similarity))
    exact = common / (2 * size - common)
    for _ in range(40):
        words = [f"w{random.getrandbits(60)}" for _ in range(2 * size - common)]
        one, other = words[:size], words[size - common :]
        random.shuffle(other)
        keys = band_keys(as_texts([" ".join(one), " ".join(other)]), WORDS, 1, SEED, (256, 1))
        shares.append(float(np.mean(keys[0] == keys[1])))
    assert abs(float(np.mean(shares)) - exact) < 0.02
    assert float(np.std(shares)) < 0.05


def test_another_seed_gives_other_keys() -> None:
    texts = as_texts(["some text that is long enough"])
    assert (band_keys(texts, CHARACTERS, 5, 1, (4, 4)) != band_keys(texts, CHARACTERS, 5, 2, (4, 4))).all()
