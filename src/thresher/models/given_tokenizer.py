# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that a script has loaded itself, beside those that are named by a string.

An object of `tokenizers`, `transformers`, `sentencepiece` or `tiktoken` is understood, and any other whose
`encode(text)` returns the tokens of a text. It travels to the workers by pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from thresher.core.planning.fingerprint import describe
from thresher.errors import UsageError, with_article
from thresher.models.surrogates import without_surrogates
from thresher.models.tokenizer import check_tokenizer, load_tokenizer, tokenizer_problems


class CountsTokens(Protocol):
    """A tokenizer that counts tokens."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...


class GivenTokenizer:
    """A tokenizer object of a script."""

    __slots__ = ("__dict__", "given")

    def __init__(self, given: Any) -> None:
        self.given = given
        self.identity = hashlib.sha256(_content(given)).hexdigest()
        """Hash of what the tokenizer does, by which a resumed run notices that it is another one."""

    def count(self, texts: Sequence[str], *, special: bool) -> list[int]:
        """Return the number of tokens of each text; with `special`, those around a text that the tokenizer adds."""
        encode = self._encoder(special)
        return [len(getattr(found, "ids", found)) for found in map(encode, map(without_surrogates, texts))]

    def _encoder(self, special: bool) -> Any:
        given = self.given
        if hasattr(given, "encode_ordinary"):  # tiktoken
            return given.encode_ordinary
        if hasattr(given, "serialized_model_proto"):  # SentencePiece
            return lambda text: given.encode(text, add_bos=special)
        if hasattr(given, "encode_batch") or hasattr(given, "all_special_tokens"):  # tokenizers, transformers
            return lambda text: given.encode(text, add_special_tokens=special)
        return given.encode


class _Counter:
    """A tokenizer object with its setting."""

    def __init__(self, tokenizer: GivenTokenizer, special: bool) -> None:
        self._tokenizer = tokenizer
        self._special = special

    def count(self, texts: Sequence[str]) -> list[int]:
        return self._tokenizer.count(texts, special=self._special)


def checked_tokenizer(caller: str, given: Any) -> str | GivenTokenizer:
    """Return the name of a tokenizer, or a tokenizer object in a form that stages keep; refuse anything else."""
    if isinstance(given, str | GivenTokenizer) or given is None:
        return given if isinstance(given, GivenTokenizer) else check_tokenizer(caller, given)
    if isinstance(given, type) or not (callable(getattr(given, "encode", None)) or hasattr(given, "encode_ordinary")):
        raise UsageError(
            f"{caller}: {with_article(type(given))} is not a tokenizer; give an object with encode(text), a "
            "tokenizer.json, a SentencePiece .model, tiktoken:ENCODING or hf:OWNER/NAME"
        )
    return GivenTokenizer(given)


def is_remote(tokenizer: str | GivenTokenizer) -> bool:
    """Return True if a tokenizer may have to be downloaded."""
    return isinstance(tokenizer, str) and tokenizer.startswith(("hf:", "tiktoken:"))


def problems_of(caller: str, tokenizer: str | GivenTokenizer) -> list[str]:
    """Return why a tokenizer cannot be loaded here."""
    return tokenizer_problems(caller, tokenizer) if isinstance(tokenizer, str) else []


def loaded_tokenizer(caller: str, tokenizer: str | GivenTokenizer, *, special: bool = True) -> CountsTokens:
    """Load a tokenizer. With `special`, the special tokens that it adds to a text count too."""
    if isinstance(tokenizer, str):
        return load_tokenizer(caller, tokenizer, special)
    return _Counter(tokenizer, special)


def _content(given: Any) -> bytes:
    """Return bytes that tell a tokenizer from others, the same in every process."""
    backend = getattr(given, "backend_tokenizer", given)  # the fast ones of transformers
    if hasattr(backend, "to_str"):
        return str(backend.to_str()).encode()
    if hasattr(given, "serialized_model_proto"):
        return bytes(given.serialized_model_proto())
    name = getattr(given, "name", None)
    return (f"{type(given).__qualname__} {name}" if isinstance(name, str) else describe(given)).encode()
