# SPDX-License-Identifier: Apache-2.0
"""Embeddings of texts: vectors that are close if texts mean similar things.

`wordllama` is a table of vectors for tokens that comes inside the package of that name; a text has the mean of the
vectors of its tokens. That is fast on a CPU, and knows nothing of the order of words.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import InputError, MissingPackageError, UsageError, nearest
from thresher.models.surrogates import without_surrogates

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EMBEDDERS = ("wordllama",)
MOST_CHARACTERS = 100_000
"""So many characters of a text are looked at."""
_WEIGHTS = ("weights", "l2_supercat_256.safetensors")
_TOKENIZER = ("tokenizers", "l2_supercat_tokenizer_config.json")
_TOKENS_AT_A_TIME = 8192


def check_embedder(caller: str, name: Any) -> str:
    """Return a name of an embedder if there is one of that name and its package is installed."""
    if name not in EMBEDDERS:
        raise UsageError(
            f"{caller}.embedder: {name!r} is not an embedder.{nearest(str(name), EMBEDDERS)} Embedders: "
            f"{', '.join(EMBEDDERS)}. For vectors of your own, put a stage before it that adds them as a column"
        )
    missing = [package for package in ("wordllama", "tokenizers") if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingPackageError(
            f"{caller}.embedder: {name!r} needs the package {missing[0]}; install it with: pip install "
            "'thresher[embeddings]'"
        )
    return str(name)


@functools.cache
def load_embedder(caller: str, name: str) -> StaticEmbedder:
    """Return an embedder, once per process."""
    check_embedder(caller, name)
    spec = importlib.util.find_spec(name)
    assert spec is not None, "checked above"
    assert spec.submodule_search_locations is not None, "it is a package"
    folder = next(iter(spec.submodule_search_locations))
    weights, tokenizer = (os.path.join(folder, *parts) for parts in (_WEIGHTS, _TOKENIZER))
    for path in (weights, tokenizer):
        if not os.path.exists(path):
            raise InputError(f"{caller}.embedder: {name} has no file {path}; version 0.4 of the package has it")
    return StaticEmbedder(read_table(weights), tokenizer)


class StaticEmbedder:
    """Vectors for tokens; a text has the mean of the vectors of its tokens."""

    def __init__(self, table: npt.NDArray[np.float32], tokenizer_path: str) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import tokenizers

        self._table = table
        self._tokenizer = tokenizers.Tokenizer.from_file(tokenizer_path)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return one vector for each text; that of a text without tokens is zero.

        Each is computed alone, so that it does not depend on the texts beside it.
        """
        import numpy as np

        plain = [without_surrogates(text[:MOST_CHARACTERS]) for text in texts]
        found = np.zeros((len(plain), self._table.shape[1]))
        for row, one in enumerate(self._tokenizer.encode_batch_fast(plain, add_special_tokens=False)):
            tokens = np.asarray(one.ids, dtype=np.int64)
            for start in range(0, len(tokens), _TOKENS_AT_A_TIME):
                found[row] += self._table[tokens[start : start + _TOKENS_AT_A_TIME]].sum(axis=0, dtype=np.float64)
            found[row] /= max(len(tokens), 1)
        return found


def read_table(path: str) -> npt.NDArray[np.float32]:
    """Return the only tensor of a safetensors file."""
    import msgspec
    import numpy as np

    with open(path, "rb") as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
        (tensor,) = (value for name, value in header.items() if name != "__metadata__")
        kinds = {"F32": np.float32, "F16": np.float16}
        if tensor["dtype"] not in kinds:
            raise InputError(f"{path} has numbers of the type {tensor['dtype']}; {', '.join(kinds)} can be read")
        content = file.read(tensor["data_offsets"][1])
    numbers = np.frombuffer(content, dtype=kinds[tensor["dtype"]]).reshape(tensor["shape"])
    return np.asarray(numbers, dtype=np.float32)
