# SPDX-License-Identifier: Apache-2.0
"""Models that identify languages by sequences of bytes, in the file format of the package py3langid.

The package carries such a model, so that languages are identified without a download. Only its file is used, never its
code: an archive of NumPy arrays, compressed by LZMA, which holds numbers and names and nothing that is run.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_PACKAGE = "py3langid"
_MAGIC = b"\xfd7zXZ\0"
"""The first bytes of a file compressed by LZMA."""
_MEMBERS = frozenset({"ptc", "pc", "classes", "nextmove", "nextmove_row", "out_feat"})
WEIGHT_UNIT = 2.0**-11
"""Value of a weight of 1: with it, the weights of the model that comes with the package are exact."""


@dataclass(frozen=True)
class ByteNgramModel:
    """A naive Bayes model over the byte sequences that an automaton finds; the arrays have one dimension."""

    moves: npt.NDArray[np.uint32]
    """The next state for each byte, in rows of 256; states may share a row."""
    states: npt.NDArray[np.int32]
    """For each state the start of its row in `moves`, and the feature that ends in it, or -1."""
    weights: npt.NDArray[np.int16]
    """For each feature the weights of all classes, in units of `WEIGHT_UNIT` and up to a constant."""
    prior: npt.NDArray[np.float32]
    """For each class the score of a text without features."""
    classes: list[str]
    """The language code of each class; a language that is written in two scripts may have two classes."""

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together: the kernel that reads them trusts every index."""
        classes, states = len(self.classes), self.states.reshape(-1, 2)
        if not classes or len(self.prior) != classes or len(self.weights) % classes:
            raise ValueError("its languages, weights and prior do not fit together")
        features = len(self.weights) // classes
        if not len(states) or not len(self.moves) or len(self.moves) % 256 or not features:
            raise ValueError("its automaton is empty or not in rows of 256")
        rows, ends = states[:, 0], states[:, 1]
        rows_fit = rows.min() >= 0 and rows.max() <= len(self.moves) - 256
        if not rows_fit or ends.min() < -1 or ends.max() >= features or self.moves.max() >= len(states):
            raise ValueError("its automaton leads out of its arrays")

    def restricted(self, codes: set[str]) -> ByteNgramModel:
        """Return a model that knows only these languages."""
        import numpy as np

        chosen = [index for index, code in enumerate(self.classes) if code in codes]
        weights = np.ascontiguousarray(self.weights.reshape(-1, len(self.classes))[:, chosen]).reshape(-1)
        return ByteNgramModel(
            self.moves, self.states, weights, self.prior[chosen], [self.classes[index] for index in chosen]
        )


def is_byte_ngram_model(path: str) -> bool:
    """Return True if a file begins like such a model."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def bundled_model_path(caller: str) -> str:
    """Return the path of the model that comes with the package; the error says how to install it."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingPackageError(
            f"{caller} needs the package {_PACKAGE}, which carries the language model: pip install 'thresher[langid]', "
            f"or give a model file as {caller}.model_path"
        )
    path = os.path.join(next(iter(found.submodule_search_locations)), "data", "model.npz.xz")
    if not os.path.isfile(path):
        raise InputError(
            f"{caller}: {_PACKAGE} has no file {path}; install version 0.4: pip install 'thresher[langid]'"
        )
    return path


def read_byte_ngram_model(caller: str, path: str) -> ByteNgramModel:
    """Unpack a model file, which takes about a second."""
    import lzma

    try:
        with lzma.open(path) as packed:
            return _unpacked(packed.read())
    except Exception as error:  # a damaged file may raise anything
        raise InputError(
            f"{caller}.model_path: {path!r} cannot be used as a model of languages: {error}. Give one in the format of "
            f"{_PACKAGE} 0.4 (.npz.xz), or a fastText model (.bin or .ftz)"
        ) from error


def _unpacked(content: bytes) -> ByteNgramModel:
    import io

    import numpy as np

    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        missing = _MEMBERS.difference(file.files)
        if missing:
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        rows = file["nextmove_row"].astype(np.int32) * 256
        return ByteNgramModel(
            moves=file["nextmove"].astype(np.uint32).reshape(-1),
            states=np.stack((rows, file["out_feat"].astype(np.int32)), axis=1).reshape(-1),
            weights=_centred(file["ptc"]),
            prior=file["pc"].astype(np.float32),
            classes=[str(code) for code in file["classes"].tolist()],
        )


def _centred(weights: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
    """Return the weights less the mean of each feature, which changes no probability, so that sums stay small and keep
    their precision."""
    import numpy as np

    units = np.rint(weights.astype(np.float32) / np.float32(WEIGHT_UNIT))
    units -= np.rint(units.mean(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
    limits = np.iinfo(np.int16)
    if not np.isfinite(units).all() or units.min() < limits.min or units.max() > limits.max:
        raise ValueError("its weights are outside of the supported range")
    made: npt.NDArray[np.int16] = units.astype(np.int16).reshape(-1)
    return made
