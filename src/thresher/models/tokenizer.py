# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of language models, for counting tokens: one interface over `tokenizers`, SentencePiece and tiktoken.

A tokenizer is named by a string:

- `path/to/tokenizer.json`, or a folder that holds one: the package `tokenizers`;
- `path/to/some.model`: SentencePiece;
- `tiktoken:cl100k_base`: an encoding of tiktoken (downloaded once, or read from `TIKTOKEN_CACHE_DIR`);
- `hf:owner/name`: a tokenizer on the Hugging Face Hub (downloaded once).

A batch is processed without the interpreter's lock and in one thread: there are as many workers as processors.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError, refusals
from thresher.models.surrogates import without_surrogates


class Tokenizer(Protocol):
    """A tokenizer that counts tokens."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
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


def load_tokenizer(caller: str, name: str, special: bool = True) -> Tokenizer:
    """Load the tokenizer that `name` stands for. With `special`, the special tokens that it adds to a text count too.
    `caller` is the name of the stage in error messages."""
    check_tokenizer(caller, name)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    kind, _, rest = name.partition(":")
    if kind == "tiktoken":
        return _Tiktoken(_loaded(caller, name, lambda package: package.get_encoding(rest)))
    if kind == "hf":
        return _HuggingFace(_loaded(caller, name, lambda package: package.Tokenizer.from_pretrained(rest)), special)
    path = _file_of(name)
    if path.endswith(".model"):
        loaded = _loaded(caller, name, lambda package: package.SentencePieceProcessor(model_file=path))
        return _SentencePiece(loaded, special)
    return _HuggingFace(_loaded(caller, name, lambda package: package.Tokenizer.from_file(path)), special)


def check_tokenizer(caller: str, name: object) -> str:
    """Raise an error if `name` cannot be a tokenizer or needs a package that is not installed."""
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"{caller}: {name!r} is not a tokenizer; give a tokenizer.json, a SentencePiece .model, "
            "tiktoken:ENCODING or hf:OWNER/NAME"
        )
    package = _package_of(name)
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(f"{caller}: {name!r} needs the package {package}: pip install 'thresher[tokenizers]'")
    return name


def tokenizer_problems(caller: str, name: str) -> list[str]:
    """Return problems: a file that is missing or not a tokenizer, or an encoding that tiktoken does not know. Nothing
    is downloaded."""
    if name.startswith("tiktoken:"):
        known = importlib.import_module("tiktoken").list_encoding_names()
        encoding = name.removeprefix("tiktoken:")
        legal = f"tiktoken has no encoding {encoding!r}; it has {', '.join(known)}"
        return [] if encoding in known else [f"{caller}: {legal}"]
    return [] if name.startswith("hf:") else refusals(lambda: load_tokenizer(caller, name))


def _check_file(caller: str, name: str) -> None:
    path = _file_of(name)
    if not os.path.isfile(path):
        raise InputError(f"{caller}: there is no file {path!r}; give a tokenizer.json or a SentencePiece .model")


def _package_of(name: str) -> str:
    if name.startswith("tiktoken:"):
        return "tiktoken"
    return "sentencepiece" if name.endswith(".model") else "tokenizers"


def _file_of(name: str) -> str:
    return os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name


def _loaded(caller: str, name: str, make: Callable[[Any], Any]) -> Any:
    if not name.startswith(("hf:", "tiktoken:")):
        _check_file(caller, name)
    module = importlib.import_module(_package_of(name))
    try:
        return make(module)
    except Exception as error:  # these packages raise whatever they like
        raise InputError(f"{caller}: {name!r} cannot be loaded as a tokenizer: {error}") from error
