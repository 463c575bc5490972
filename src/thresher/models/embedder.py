# SPDX-License-Identifier: Apache-2.0
"""Embeddings of texts: vectors that are close if texts mean similar things.

Static embedders are tables of vectors for tokens; a text has the mean of the vectors of its tokens. That is fast on a
CPU, knows nothing of the order of words, and does not depend on the texts beside it. They are named by a string:

- `wordllama`: the table that comes inside the package of that name;
- a folder, a URL or `owner/name` of the Hugging Face Hub in the layout of model2vec (its package is not needed).

Transformers are run by the stage `EmbeddingCreatorStage`, which takes both kinds.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError, nearest
from thresher.models.loading.folder import ModelFolder
from thresher.models.loading.reference import ModelReference
from thresher.models.surrogates import without_surrogates
from thresher.models.tokenizer import unpadded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EMBEDDERS = ("wordllama",)
MOST_CHARACTERS = 100_000
"""So many characters of a text are looked at."""
_WEIGHTS = ("weights", "l2_supercat_256.safetensors")
_TOKENIZER = ("tokenizers", "l2_supercat_tokenizer_config.json")
_TOKENS_AT_A_TIME = 8192
_MODEL2VEC_TOKENS = 512
"""Tokens of a text that model2vec looks at, unless its configuration says otherwise."""


class Embedder(Protocol):
    """Makes vectors of texts."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[Any]:
        """Return one vector for each text."""
        ...


def is_static(reference: ModelReference) -> bool:
    """Return True if a name stands for a table of vectors, as far as that can be told without a download."""
    if reference.name in EMBEDDERS:
        return True
    path = reference.known_folder()
    return path is not None and _is_table(ModelFolder(path, reference.caller))


def _is_table(folder: ModelFolder) -> bool:
    return folder.file("model.safetensors") is not None and "embeddings" in folder.weight_names()


def check_embedder(caller: str, name: Any) -> str:
    """Return a name of a static embedder if it can be one and its packages are installed."""
    if not isinstance(name, str) or not (name in EMBEDDERS or "/" in name or os.path.isdir(name)):
        raise UsageError(
            f"{caller}.embedder: {name!r} is not an embedder.{nearest(str(name), EMBEDDERS)} Embedders: "
            f"{', '.join(EMBEDDERS)}, or a folder, URL or owner/name of the hub with a model of model2vec. For vectors "
            "of a transformer, put EmbeddingCreatorStage before it"
        )
    needed = ("wordllama", "tokenizers") if name in EMBEDDERS else ("tokenizers",)
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingPackageError(
            f"{caller}.embedder: {name!r} needs the package {missing[0]}; install it with: pip install "
            "'thresher[embeddings]'"
        )
    for problem in [] if name in EMBEDDERS else ModelReference(name, f"{caller}.embedder").problems():
        raise InputError(problem)
    return name


@functools.cache
def load_embedder(caller: str, name: str) -> StaticEmbedder:
    """Return a static embedder, once per process."""
    check_embedder(caller, name)
    if name not in EMBEDDERS:
        return static_embedder(ModelReference(name, f"{caller}.embedder"))
    spec = importlib.util.find_spec(name)
    assert spec is not None, "checked above"
    assert spec.submodule_search_locations is not None, "it is a package"
    folder = next(iter(spec.submodule_search_locations))
    weights, tokenizer = (os.path.join(folder, *parts) for parts in (_WEIGHTS, _TOKENIZER))
    for path in (weights, tokenizer):
        if not os.path.exists(path):
            raise InputError(f"{caller}.embedder: {name} has no file {path}; version 0.4 of the package has it")
    (table,) = read_tensors(weights).values()
    return StaticEmbedder(TokenTable(table), tokenizer)


def static_embedder(reference: ModelReference) -> StaticEmbedder:
    """Return the embedder of a folder in the layout of model2vec; it is downloaded if it is not here yet."""
    folder = ModelFolder(reference.fetch(), reference.caller)
    tokenizer = folder.file("tokenizer.json")
    if tokenizer is None or not _is_table(folder):
        raise InputError(
            f"{reference.caller}: {folder.path} is no static model: it needs a tokenizer.json, and a tensor "
            "`embeddings` in model.safetensors. EmbeddingCreatorStage runs transformers"
        )
    tensors = read_tensors(folder.weights())
    longest = folder.config.get("max_length", _MODEL2VEC_TOKENS)
    table = TokenTable(
        tensors["embeddings"],
        tensors.get("weights"),
        tensors.get("mapping"),
        most_tokens=None if longest is None else int(longest),
        skips_unknown=True,
        normalize=bool(folder.config.get("normalize", False)),
    )
    return StaticEmbedder(table, tokenizer)


@dataclass(frozen=True)
class TokenTable:
    """Vectors of tokens, and how those of a text become one."""

    vectors: npt.NDArray[Any]
    """One vector per row."""
    weights: npt.NDArray[Any] | None = None
    """By what the vector of each token is multiplied."""
    mapping: npt.NDArray[Any] | None = None
    """The row of each token, where that is not its number."""
    most_tokens: int | None = None
    """Tokens of a text that count; `None`: all."""
    skips_unknown: bool = False
    """Leave out the token that stands for unknown words."""
    normalize: bool = False
    """Scale vectors to the length 1."""

    def of(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the sum of the vectors of some tokens."""
        import numpy as np

        rows = self.vectors[tokens if self.mapping is None else self.mapping[tokens]]
        if self.weights is not None:
            rows = rows * self.weights[tokens][:, None]
        return np.asarray(rows.sum(axis=0, dtype=np.float64))


class StaticEmbedder:
    """Vectors for tokens; a text has the mean of the vectors of its tokens. An `Embedder`."""

    def __init__(self, table: TokenTable, tokenizer_path: str) -> None:
        import tokenizers

        self._table = table
        self._tokenizer = unpadded(tokenizers.Tokenizer.from_file(tokenizer_path))
        self._most_characters = MOST_CHARACTERS
        self._unknown: int | None = None
        if table.most_tokens is not None:
            self._tokenizer.enable_truncation(table.most_tokens)
            self._most_characters = table.most_tokens * _median_length(self._tokenizer)
        if table.skips_unknown:
            named = getattr(self._tokenizer.model, "unk_token", None)
            self._unknown = None if named is None else self._tokenizer.token_to_id(named)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return one vector for each text; that of a text without tokens is zero.

        Each is computed alone, so that it does not depend on the texts beside it.
        """
        import numpy as np

        plain = [without_surrogates(text[: self._most_characters]) for text in texts]
        found = np.zeros((len(plain), self._table.vectors.shape[1]))
        for row, one in enumerate(self._tokenizer.encode_batch_fast(plain, add_special_tokens=False)):
            tokens = np.asarray(one.ids, dtype=np.int64)
            if self._unknown is not None:
                tokens = tokens[tokens != self._unknown]
            for start in range(0, len(tokens), _TOKENS_AT_A_TIME):
                found[row] += self._table.of(tokens[start : start + _TOKENS_AT_A_TIME])
            found[row] /= max(len(tokens), 1)
        if self._table.normalize:
            found /= np.linalg.norm(found, axis=1, keepdims=True) + 1e-32
        return found


def _median_length(tokenizer: Any) -> int:
    """Return the median length of the tokens of a vocabulary, in characters."""
    import numpy as np

    return int(np.median([len(token) for token in tokenizer.get_vocab()]))


def read_tensors(path: str) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a safetensors file, those of floats in single precision."""
    import msgspec
    import numpy as np

    kinds: dict[str, Any] = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8}
    kinds |= {"I32": np.int32, "I64": np.int64}
    found = {}
    with open(path, "rb") as file:
        header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
        content = file.read()
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        if tensor["dtype"] not in kinds:
            raise InputError(f"{path} has numbers of the type {tensor['dtype']}; {', '.join(kinds)} can be read")
        start, end = tensor["data_offsets"]
        numbers = np.frombuffer(content[start:end], dtype=kinds[tensor["dtype"]]).reshape(tensor["shape"])
        found[name] = numbers if tensor["dtype"] in ("I32", "I64") else np.asarray(numbers, dtype=np.float32)
    return found
