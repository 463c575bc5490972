# SPDX-License-Identifier: Apache-2.0
"""The choice of a language model by its file, and of the languages that it is to tell apart."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import RunFailedError, UsageError, nearest
from thresher.models.byte_ngram_model import (
    ByteNgramModel,
    bundled_model_path,
    is_byte_ngram_model,
    read_byte_ngram_model,
)
from thresher.models.fasttext_model import FastTextModel, check_model_file, check_package, codes_of, labels_in
from thresher.stages.text.language.codes import LANGUAGES, code_of

if TYPE_CHECKING:
    from thresher.stages.text.index_file import ArrayIndex
    from thresher.stages.text.language.identifier import LanguageIdentifier

_FORMAT = 1
"""Version of the unpacked arrays."""
KERNELS = (
    "thresher.kernels.language.byte_ngrams",
    "thresher.kernels.language.plain_form",
    "thresher.kernels.json.text",
)
"""Modules that a stage which identifies languages loads before workers are forked."""


def check_languages(caller: str, languages: str | Sequence[str] | None, model_path: str | None) -> list[str] | None:
    """Return the languages as a list of the model's codes; `None`: all that it knows.

    The bundled model also accepts other codes for a language that it knows; those of a file are known when it is read.
    """
    if languages is None:
        return None
    given = [languages] if isinstance(languages, str) else list(languages)
    if not given or not all(isinstance(one, str) and one.strip() for one in given):
        raise UsageError(f"{caller}.languages: {languages!r} is not a list of language codes, such as ['en', 'de']")
    if model_path is not None:
        return list(dict.fromkeys(given))
    codes = list(dict.fromkeys(map(code_of, given)))
    refuse_unknown(f"{caller}.languages", [name for name in given if code_of(name) not in LANGUAGES], list(LANGUAGES))
    return codes


def refuse_unknown(parameter: str, unknown: Sequence[str], codes: Sequence[str]) -> None:
    """Raise a `UsageError` if there are languages that a model does not know."""
    if unknown:
        hint = nearest(unknown[0], codes) if len(unknown) == 1 else ""
        raise UsageError(
            f"{parameter}: the model does not know {', '.join(map(repr, unknown))};{hint} "
            f"its codes look like {', '.join(sorted(codes)[:12])}, …"
        )


def check_model_installed(caller: str, model_path: str | None) -> None:
    """Raise an error if the package is missing that a stage needs for its model: a file that is there may be of either
    kind."""
    if model_path is None:
        bundled_model_path(caller)
    elif code_of(model_path) in LANGUAGES and not os.path.exists(model_path):
        raise UsageError(
            f"{caller}.model_path: there is no file {model_path!r}; if it is a language: languages={[model_path]}"
        )
    elif not is_bundled_kind(model_path):
        check_package(caller)


def check_model(caller: str, model_path: str | None, languages: Sequence[str] | None) -> None:
    """Raise an error if the model file is missing or no model, or does not know a language. This is quick: no model is
    loaded."""
    if model_path is None:
        bundled_model_path(caller)
        return
    check_model_file(caller, model_path)
    if not is_byte_ngram_model(model_path):
        _refuse_unknown_of(caller, codes_of(labels_in(caller, model_path)), languages)


def unpack_model(caller: str, model_path: str | None) -> None:
    """Check the model file; unpack it, once on a machine, so that its workers find it unpacked."""
    check_model(caller, model_path, None)
    if is_bundled_kind(model_path):
        _byte_ngrams(caller, model_path or bundled_model_path(caller))


def load_identifier(
    caller: str, model_path: str | None, languages: Sequence[str] | None, given: bool
) -> LanguageIdentifier:
    """Load a model, and refuse languages that it does not know. `given`: probabilities of the languages sum to 1."""
    from thresher.stages.text.language.identifier import ByteNgramIdentifier, FastTextIdentifier

    if model_path is None:
        return ByteNgramIdentifier(_byte_ngrams(caller, bundled_model_path(caller)), languages, given)
    check_model_file(caller, model_path)
    if is_byte_ngram_model(model_path):
        model = _byte_ngrams(caller, model_path)
        _refuse_unknown_of(caller, model.classes, languages)
        return ByteNgramIdentifier(model, languages, given)
    fasttext = FastTextModel(caller, model_path)
    _refuse_unknown_of(caller, codes_of(fasttext.labels), languages)
    return FastTextIdentifier(fasttext, languages, given)


@functools.cache
def _byte_ngrams(caller: str, path: str) -> ByteNgramModel:
    """Return a model, once per process. It is unpacked once per machine, and workers share it in memory."""
    from thresher.stages.text.index_file import cache_folder, cached_index

    with open(path, "rb") as file:
        key = hashlib.sha256(file.read()).hexdigest()
    index = cached_index("languages", [_FORMAT, key], lambda: _as_index(read_byte_ngram_model(caller, path)))
    try:
        return ByteNgramModel(**index.arrays, classes=index.facts["classes"])
    except (ValueError, TypeError, KeyError) as error:
        raise RunFailedError(
            f"{caller}: the unpacked language model in {cache_folder()} is damaged ({error}); delete its files "
            "languages-*.index, and it will be unpacked again"
        ) from error


def _as_index(model: ByteNgramModel) -> ArrayIndex:
    from thresher.stages.text.index_file import ArrayIndex

    arrays: dict[str, Any] = {
        "moves": model.moves,
        "states": model.states,
        "weights": model.weights,
        "prior": model.prior,
    }
    return ArrayIndex({"classes": model.classes}, arrays)


def is_bundled_kind(model_path: str | None) -> bool:
    """Return True if a model is the bundled one, or a file of that kind."""
    if model_path is None:
        return True
    try:
        return is_byte_ngram_model(model_path)
    except OSError:
        return False


def _refuse_unknown_of(caller: str, codes: Sequence[str], languages: Sequence[str] | None) -> None:
    refuse_unknown(f"{caller}.languages", [code for code in languages or () if code not in codes], codes)
