# SPDX-License-Identifier: Apache-2.0
"""Model files of byte sequences: a made one is read as it was written, and no damaged one reaches a kernel."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thresher.errors import InputError, MissingPackageError
from thresher.models import byte_ngram_model
from thresher.models.byte_ngram_model import (
    WEIGHT_UNIT,
    ByteNgramModel,
    bundled_model_path,
    is_byte_ngram_model,
    read_byte_ngram_model,
)


def arrays() -> dict[str, Any]:
    """Two states, one feature (the letter e), two languages of which one has two classes."""
    moves = np.zeros((2, 256), dtype=np.uint32)
    moves[:, ord("e")] = 1
    return {
        "ptc": np.array([[-1.0, -3.0, -2.0]], dtype=np.float16),
        "pc": np.array([-1.0, -1.0, -1.5], dtype=np.float32),
        "classes": np.array(["aa", "bb", "aa"]),
        "nextmove": moves.reshape(-1),
        "nextmove_row": np.array([0, 1], dtype=np.uint16),
        "out_feat": np.array([-1, 0], dtype=np.int32),
    }


def write(path: Path, **changed: Any) -> str:
    buffer = io.BytesIO()
    given = {name: value for name, value in (arrays() | changed).items() if value is not None}
    np.savez(buffer, **given)
    path.write_bytes(lzma.compress(buffer.getvalue()))
    return str(path)


def test_a_model_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(tmp_path / "model.npz.xz")
    assert is_byte_ngram_model(path)
    model = read_byte_ngram_model("LanguageId", path)
    assert model.classes == ["aa", "bb", "aa"]
    assert model.states.tolist() == [0, -1, 256, 0]
    assert (model.weights * WEIGHT_UNIT).tolist() == [1.0, -1.0, 0.0], "without the mean of the feature"
    assert model.prior.tolist() == [-1.0, -1.0, -1.5]


def test_a_model_of_some_languages_has_their_classes_alone(tmp_path: Path) -> None:
    model = read_byte_ngram_model("LanguageId", write(tmp_path / "model.npz.xz")).restricted({"aa"})
    assert model.classes == ["aa", "aa"]
    assert (model.weights * WEIGHT_UNIT).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ptc": None}, "it has no ptc"),
        ({"classes": np.array(["aa"])}, "do not fit together"),
        ({"nextmove": np.zeros(300, dtype=np.uint32)}, "not in rows of 256"),
        ({"nextmove": np.full(512, 2, dtype=np.uint32)}, "leads out of its arrays"),
        ({"nextmove_row": np.array([0, 2], dtype=np.uint16)}, "leads out of its arrays"),
        ({"out_feat": np.array([-1, 1], dtype=np.int32)}, "leads out of its arrays"),
        ({"out_feat": np.array([-2, 0], dtype=np.int32)}, "leads out of its arrays"),
        ({"ptc": np.array([[np.nan, 0, 0]], dtype=np.float16)}, "outside of the supported range"),
        ({"ptc": np.array([[60_000, 0, 0]], dtype=np.float32)}, "outside of the supported range"),
        ({"classes": np.array([{"code": 1}] * 3, dtype=object)}, "allow_pickle"),
    ],
)
def test_a_model_that_does_not_fit_together_is_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.npz.xz", **changed)
    with pytest.raises(InputError, match=rf"LanguageId\.model_path: '.*' cannot be used .*{message}"):
        read_byte_ngram_model("LanguageId", path)


def test_a_truncated_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz.xz"
    write(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(
        InputError, match=r"cannot be used as a model of languages.*Give one in the format of py3langid"
    ):
        read_byte_ngram_model("LanguageFilter", str(path))


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_ngram_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"LanguageId needs the package py3langid.*'thresher\[langid\]'"):
        bundled_model_path("LanguageId")


def test_arrays_that_do_not_fit_are_refused_whoever_made_them() -> None:
    empty: Any = np.zeros(0, dtype=np.int32)
    with pytest.raises(ValueError, match="do not fit together"):
        ByteNgramModel(empty, empty, empty, empty, [])
