# SPDX-License-Identifier: Apache-2.0
"""Token ids of texts, as the tokenizer of a model folder makes them for that model."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from thresher.errors import InputError, MissingPackageError
from thresher.models.loading.folder import ModelFolder
from thresher.models.token_lists import TokenLists
from thresher.models.tokenizer import encoded, unpadded


def check_tokenizers(caller: str) -> None:
    """Raise an error if the package tokenizers is not installed."""
    if importlib.util.find_spec("tokenizers") is None:
        raise MissingPackageError(f"{caller} needs the package tokenizers: pip install 'thresher[models]'")


class IdTokenizer:
    """The tokenizer of a model. It runs in one thread: there are as many workers as processors."""

    def __init__(self, folder: ModelFolder, max_length: int | None = None) -> None:
        """`max_length`: tokens of a text at most, special ones included; `None`: as many as the model takes."""
        self._tokenizer = unpadded(_load(folder))
        self.max_length = folder.limited(max_length)
        if self.max_length is not None:
            self._tokenizer.enable_truncation(self.max_length)
        vocabulary = max(self._tokenizer.get_vocab_size(), int(folder.config.get("vocab_size") or 0))
        self._kind = "uint16" if vocabulary <= 2**16 else "uint32"

    def encode(self, texts: Sequence[str]) -> TokenLists:
        """Return the ids of each text as small unsigned integers."""
        return encoded(
            lambda part: [one.ids for one in self._tokenizer.encode_batch_fast(part, add_special_tokens=True)],
            texts,
            self._kind,
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def pad_id_of(folder: ModelFolder) -> int:
    """Return the id that stands for no token. The mask hides what is there, so that 0 does where none is named."""
    named = folder.config.get("pad_token_id")
    return int(named) if isinstance(named, int) else 0


def _load(folder: ModelFolder) -> Any:
    check_tokenizers(folder.caller)
    path = folder.file("tokenizer.json")
    try:
        if path is not None:
            return importlib.import_module("tokenizers").Tokenizer.from_file(path)
        return _converted(folder)
    except (InputError, MissingPackageError):
        raise
    except Exception as error:  # these packages raise whatever they like
        raise InputError(f"{folder.caller}: the tokenizer in {folder.path} cannot be loaded: {error}") from error


def _converted(folder: ModelFolder) -> Any:
    """Return the tokenizer of a folder with files of an older form, which transformers converts."""
    if importlib.util.find_spec("transformers") is None:
        raise MissingPackageError(
            f"{folder.caller}: {folder.path} has no tokenizer.json; to convert its files, pip install "
            "'thresher[transformers]'"
        )
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder.path, use_fast=True, local_files_only=True).backend_tokenizer
