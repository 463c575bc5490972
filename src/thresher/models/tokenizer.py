# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of language models, for counting tokens: one interface over `tokenizers`, SentencePiece and tiktoken.

A tokenizer is named by a text:

- `path/to/tokenizer.json`, or a folder that holds one: the package `tokenizers`;
- `path/to/some.model`: SentencePiece;
- `tiktoken:cl100k_base`: an encoding that tiktoken knows (it fetches it once, or takes it from `TIKTOKEN_CACHE_DIR`);
- `hf:owner/name`: a tokenizer on the Hugging Face Hub (fetched once).

The work on a batch is done outside of Python's lock and in one thread: there are as many workers as processors.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError
from thresher.models.surrogates import without_surrogates


class Tokenizer(Protocol):
    """Something that counts tokens."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text."""
        ...


class _HuggingFace:
    def __init__(self, tokenizer: Any, special: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special
        tokenizer.no_padding()  # a file may ask for both, which would make every count the same
        tokenizer.no_truncation()

    def count(self, texts: Sequence[str]) -> list[int]:
        plain = [without_surrogates(text) for text in texts]
        return [len(one) for one in self._tokenizer.encode_batch_fast(plain, add_special_tokens=self._special)]


class _SentencePiece:
    def __init__(self, processor: Any, special: bool) -> None:
        self._processor = processor
        self._special = special

    def count(self, texts: Sequence[str]) -> list[int]:
        plain = [without_surrogates(text) for text in texts]
        found = self._processor.encode(plain, add_bos=self._special, num_threads=1)
        return [len(one) for one in found]


class _Tiktoken:
    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def count(self, texts: Sequence[str]) -> list[int]:
        # A text that holds the name of a special token is a text.
        return [len(self._encoding.encode_ordinary(without_surrogates(text))) for text in texts]


def load_tokenizer(who: str, name: str, special: bool = True) -> Tokenizer:
    """The tokenizer that `name` stands for; `special` counts the tokens that it puts around a text too."""
    check_tokenizer(who, name)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    kind, _, rest = name.partition(":")
    if kind == "tiktoken":
        return _Tiktoken(_loaded(who, name, lambda package: package.get_encoding(rest)))
    if kind == "hf":
        return _HuggingFace(_loaded(who, name, lambda package: package.Tokenizer.from_pretrained(rest)), special)
    path = _file_of(name)
    if path.endswith(".model"):
        loaded = _loaded(who, name, lambda package: package.SentencePieceProcessor(model_file=path))
        return _SentencePiece(loaded, special)
    return _HuggingFace(_loaded(who, name, lambda package: package.Tokenizer.from_file(path)), special)


def check_tokenizer(who: str, name: object) -> str:
    """Refuse what can be no tokenizer, or needs a package that is not installed."""
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"{who}: {name!r} names no tokenizer; give a tokenizer.json, a SentencePiece .model, "
            "tiktoken:ENCODING or hf:OWNER/NAME"
        )
    package = _package_of(name)
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(f"{who}: {name!r} needs the package {package}: pip install 'thresher[tokenizers]'")
    return name


def _package_of(name: str) -> str:
    if name.startswith("tiktoken:"):
        return "tiktoken"
    return "sentencepiece" if name.endswith(".model") else "tokenizers"


def _file_of(name: str) -> str:
    return os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name


def _loaded(who: str, name: str, make: Callable[[Any], Any]) -> Any:
    path = _file_of(name)
    if not name.startswith(("hf:", "tiktoken:")) and not os.path.isfile(path):
        raise InputError(f"{who}: there is no file {path!r}")
    module = importlib.import_module(_package_of(name))
    try:
        return make(module)
    except Exception as error:  # these packages raise whatever they like
        raise InputError(f"{who}: {name!r} cannot be loaded as a tokenizer: {error}") from error
