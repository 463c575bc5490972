# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of language models: one interface over `tokenizers`, SentencePiece and tiktoken.

A tokenizer is named by a string:

- `path/to/tokenizer.json`, or a folder that holds one: the package `tokenizers`;
- `path/to/some.model`: SentencePiece;
- `tiktoken:cl100k_base`: an encoding of tiktoken (downloaded once, or read from `TIKTOKEN_CACHE_DIR`);
- `hf:owner/name`: a tokenizer on the Hugging Face Hub (downloaded once).

A batch is processed without the interpreter's lock and in one thread: there are as many workers as processors.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from thresher.errors import InputError, MissingPackageError, UsageError, refusals
from thresher.models.surrogates import without_surrogates
from thresher.models.token_lists import TokenLists

if TYPE_CHECKING:
    import numpy.typing as npt

_CHUNK = 2**18
"""Number of characters that are encoded at a time: what a package returns takes many times their memory."""
_MOST_IN_TWO_BYTES = 2**16
_END_TOKENS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "<｜end▁of▁sentence｜>")
"""Usual names of the token that ends a document, for files that do not say."""


@dataclass(frozen=True)
class TokenizerOptions:
    """Options of loading a tokenizer."""

    cache_dir: str | None = None
    """Folder for files from the Hugging Face Hub; `None` for the usual one."""
    token: str | None = field(default=None, repr=False)
    """Access token for the Hugging Face Hub; `None` for the one that its own tools have stored."""
    revision: str | None = None
    """Branch, tag or commit on the Hugging Face Hub."""
    split_special_tokens: bool = False
    """True to encode the name of a special token in a text as ordinary text. Only `tokenizers` would do otherwise."""


class Tokenizer(Protocol):
    """A tokenizer that counts tokens and encodes texts."""

    @property
    def vocabulary_size(self) -> int:
        """Return the number that all ids are below."""
        ...

    @property
    def end_id(self) -> int | None:
        """Return the id of the token that ends a document; `None` if there is none, or it is not known."""
        ...

    def id_of(self, token: str) -> int | None:
        """Return the id of a token; `None` if there is no such token."""
        ...

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> TokenLists:
        """Return the ids of the tokens of each text, as `uint16` if all ids fit, else as `int32`."""
        ...


def token_type(vocabulary_size: int | None) -> str:
    """Return the name of the smallest type for ids below `vocabulary_size`: `uint16` or `int32`."""
    return "uint16" if vocabulary_size is not None and vocabulary_size <= _MOST_IN_TWO_BYTES else "int32"


class _Encoder:
    """What all tokenizers share: any text can be encoded."""

    end_id: int | None = None

    @functools.cached_property
    def vocabulary_size(self) -> int:
        """Return the number that all ids are below."""
        return self.size()

    def size(self) -> int:
        """Return the number that all ids are below, which may take long."""
        raise NotImplementedError

    def ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """Return the ids of each text; the texts have no lone surrogates."""
        raise NotImplementedError

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        return [len(ids) for ids in self.ids_of([without_surrogates(text) for text in texts])]

    def encode_batch(self, texts: Sequence[str]) -> TokenLists:
        """Return the ids of the tokens of each text."""
        return encoded(self.ids_of, texts, token_type(self.vocabulary_size))


def encoded(
    ids_of: Callable[[list[str]], Iterable[Sequence[int]]], texts: Sequence[str], kind: npt.DTypeLike
) -> TokenLists:
    """Return the ids of texts as numbers of this type. `ids_of` gets a part of the texts at a time, without lone
    surrogates."""
    parts = [
        TokenLists.of(list(ids_of([without_surrogates(text) for text in part])), kind)
        for part in parts_of(texts, _CHUNK)
    ]
    return TokenLists.joined(parts or [TokenLists.of([], kind)])


def unpadded(tokenizer: Any) -> Any:
    """Return a tokenizer of `tokenizers` that runs in one thread, and neither pads nor cuts: its file may ask for both,
    which would make every count the same."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def parts_of(texts: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    """Yield texts in parts; each but the last has just over `most` characters."""
    start = characters = 0
    for end, text in enumerate(texts, start=1):
        characters += len(text)
        if characters > most or end == len(texts):
            yield texts[start:end]
            start, characters = end, 0


class _HuggingFace(_Encoder):
    def __init__(self, tokenizer: Any, special: bool, options: TokenizerOptions, end_token: str | None) -> None:
        self._tokenizer = unpadded(tokenizer)
        self._special = special
        tokenizer.encode_special_tokens = options.split_special_tokens
        names = _END_TOKENS if end_token is None else (end_token,)
        self.end_id = next((found for name in names if (found := self.id_of(name)) is not None), None)

    def id_of(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def size(self) -> int:
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(one) for one in self._encoded([without_surrogates(text) for text in texts])]

    def ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        return [one.ids for one in self._encoded(texts)]

    def _encoded(self, texts: list[str]) -> Sequence[Any]:
        encoded: Sequence[Any] = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._special)
        return encoded


class _SentencePiece(_Encoder):
    def __init__(self, processor: Any, special: bool) -> None:
        self._processor = processor
        self._special = special and processor.bos_id() >= 0
        self.end_id = processor.eos_id() if processor.eos_id() >= 0 else None

    def size(self) -> int:
        return int(self._processor.get_piece_size())

    def id_of(self, token: str) -> int | None:
        found: int = self._processor.piece_to_id(token)  # that of the unknown token, if there is no such token
        return found if self._processor.id_to_piece(found) == token else None

    def ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        encoded: Iterable[Sequence[int]] = self._processor.encode(texts, add_bos=self._special, num_threads=1)
        return encoded


class _Tiktoken(_Encoder):
    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        with contextlib.suppress(KeyError):  # an encoding need not have such a token
            self.end_id = encoding.eot_token

    def size(self) -> int:
        return int(self._encoding.n_vocab)

    def id_of(self, token: str) -> int | None:
        try:
            found: int = self._encoding.encode_single_token(token)
        except KeyError:
            return None
        return found

    def ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        # A text that holds the name of a special token is a text.
        return [self._encoding.encode_ordinary(text) for text in texts]


def load_tokenizer(caller: str, name: str, special: bool = True, options: TokenizerOptions | None = None) -> Tokenizer:
    """Load the tokenizer that `name` stands for. With `special`, the special tokens that it adds to a text count too.
    `caller` is the name of the stage in error messages."""
    check_tokenizer(caller, name)
    options = options or TokenizerOptions()
    kind, _, rest = name.partition(":")
    if kind == "tiktoken":
        return _Tiktoken(_loaded(caller, name, lambda package: package.get_encoding(rest)))
    path = _loaded(caller, name, lambda _: _from_hub(rest, options)) if kind == "hf" else _file_of(name)
    if path.endswith(".model"):
        check_tokenizer(caller, path)
        pieces = importlib.import_module("sentencepiece")
        return _SentencePiece(_loaded(caller, name, lambda _: pieces.SentencePieceProcessor(model_file=path)), special)
    loaded = _loaded(caller, name, lambda package: package.Tokenizer.from_file(path))
    return _HuggingFace(loaded, special, options, _end_token_beside(path))


_SETTINGS = "tokenizer_config.json"


def _from_hub(repository: str, options: TokenizerOptions) -> str:
    """Return the local path of the tokenizer of a repository on the Hugging Face Hub, with its settings beside it."""
    hub = importlib.import_module("huggingface_hub")
    where = {"cache_dir": options.cache_dir, "token": options.token, "revision": options.revision}
    try:
        path: str = hub.hf_hub_download(repository, "tokenizer.json", **where)
    except importlib.import_module("huggingface_hub.errors").EntryNotFoundError as error:
        if isinstance(error, FileNotFoundError):  # the Hub cannot be reached, which a second file would not change
            cached = hub.try_to_load_from_cache(repository, "tokenizer.model", options.cache_dir, options.revision)
            if isinstance(cached, str):
                return cached
            raise
        path = hub.hf_hub_download(repository, "tokenizer.model", **where)
    with contextlib.suppress(Exception):  # a repository without settings; they only name the end token
        hub.hf_hub_download(repository, _SETTINGS, **where)
    return path


def _end_token_beside(path: str) -> str | None:
    """Return the end token that the settings beside a tokenizer.json name; `None` if they name none."""
    try:
        with open(os.path.join(os.path.dirname(path), _SETTINGS), encoding="utf-8") as opened:
            named = json.load(opened).get("eos_token")
    except (OSError, ValueError, AttributeError):
        return None
    if isinstance(named, dict):
        named = named.get("content")
    return named if isinstance(named, str) else None


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
