# SPDX-License-Identifier: Apache-2.0
"""Writer of token ids for Megatron-Core, under the name and with the parameters that NeMo Curator gives it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from thresher.core.arguments.options import check_count, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import CompositeStage, ProcessingStage
from thresher.core.task import FileGroupTask
from thresher.errors import UsageError
from thresher.stages.io.file_writer import FileWriter
from thresher.stages.io.megatron.documents import EncodedDocuments, ListedDocuments
from thresher.stages.io.megatron.indexed_file import SUFFIXES, TokenFiles

_COLUMNS = ("tokens", "token_ids")
"""Names of the column of ids, where no column is given; it differs from that of the text."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HONOURED = ("revision", "split_special_tokens")
"""Arguments of `AutoTokenizer.from_pretrained` that mean something here."""


class MegatronTokenizerWriter(CompositeStage[DocumentBatch, FileGroupTask]):
    """Encode texts and write their token ids for Megatron-Core, a .bin and an .idx file per unit of the input.

    The ids of a document are one sequence. A document without tokens is dropped.
    """

    is_sink = True

    def __init__(  # noqa: PLR0913 - the parameters of the same writer in NeMo Curator, and those of every writer of files
        self,
        path: str,
        model_identifier: str | None = None,
        cache_dir: str | None = None,
        hf_token: str | None = None,
        text_field: str = "text",
        tokenization_batch_size: int = 1000,
        append_eod: bool = False,
        transformers_init_kwargs: dict[str, Any] | None = None,
        tokens_field: str | None = None,
        vocab_size: int | None = None,
        eod_token: str | int | None = None,
        add_special_tokens: bool = False,
        mode: str = "error",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """`path`: the folder or URL for the files.
        `model_identifier`: the tokenizer: a tokenizer.json or its folder, a SentencePiece .model, `tiktoken:ENCODING`,
        or a name on the Hugging Face Hub.
        `cache_dir`: folder for a tokenizer that is downloaded.
        `hf_token`: access token for the Hugging Face Hub; by default the one that its own tools have stored.
        `text_field`: the column of the text.
        `tokenization_batch_size`: most documents that the tokenizer gets at a time.
        `append_eod`: put the token that ends a document after each document.
        `transformers_init_kwargs`: `revision` and `split_special_tokens` are honoured; the tokenizer is loaded without
        transformers.
        `tokens_field`: a column of token ids that are written in place of encoding a text.
        `vocab_size`: the number that the ids in `tokens_field` are below: up to 65536 an id takes 2 bytes, else 4.
        `eod_token`: the token that ends a document, or its id; by default the one of the tokenizer.
        `add_special_tokens`: also write the special tokens that the tokenizer puts around a text.
        `mode`: what to do with a folder that holds something: `error` refuses it, `overwrite` replaces the data files,
        `append` adds files with names of their own.
        `storage_options`: what fsspec is given for URLs.
        """
        if (model_identifier is None) == (tokens_field is None):
            raise UsageError(
                "MegatronTokenizerWriter: give model_identifier, the tokenizer, or tokens_field, a column of token "
                f"ids; {'neither is' if tokens_field is None else 'both are'} given"
            )
        if vocab_size is not None:
            check_count("MegatronTokenizerWriter.vocab_size", vocab_size)
            if tokens_field is None:
                raise UsageError("MegatronTokenizerWriter.vocab_size: the tokenizer knows it; leave it out")
        self.column = tokens_field or next(name for name in _COLUMNS if name != text_field)
        self.files = TokenFileWriter(path, self.column, mode, storage_options)
        self.path, self.mode, self.storage_options = self.files.path, self.files.mode, self.files.storage_options
        self.model_identifier, self.cache_dir, self.hf_token = model_identifier, cache_dir, hf_token
        self.text_field = field_name("MegatronTokenizerWriter", "text_field", text_field)
        self.tokenization_batch_size, self.append_eod = tokenization_batch_size, append_eod
        self.transformers_init_kwargs = _honoured(transformers_init_kwargs or {})
        self.tokens_field, self.vocab_size, self.eod_token = tokens_field, vocab_size, eod_token
        self.add_special_tokens = add_special_tokens
        self.decompose()  # refuses wrong parameters

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the text, or that of the token ids."""
        return ["data"], [self.text_field if self.tokens_field is None else self.tokens_field]

    def decompose(self) -> list[Any]:
        """Return the stage that makes sequences of documents, and the writer of their files."""
        return [self._documents().with_(name=f"{self.name}-tokens"), self.files.with_(name=self.name)]

    def _documents(self) -> ProcessingStage[Any, Any]:
        if self.tokens_field is not None:
            return ListedDocuments(self.tokens_field, self.vocab_size, self.append_eod, self.eod_token)
        assert self.model_identifier is not None, "one of the two is given"
        return EncodedDocuments(
            tokenizer_name(self.model_identifier),
            self.text_field,
            self.column,
            self.append_eod,
            self.eod_token,
            self.add_special_tokens,
            self.tokenization_batch_size,
            cache_dir=self.cache_dir,
            hf_token=self.hf_token,
            **self.transformers_init_kwargs,
        )


class TokenFileWriter(FileWriter):
    """Write lists of token ids, a .bin and an .idx file per unit of the input."""

    def __init__(self, path: str, tokens_field: str, mode: str, storage_options: dict[str, Any] | None) -> None:
        """`tokens_field`: the column of ids, which have the type of the files. The others are those of every writer of
        files."""
        super().__init__(path, mode=mode, storage_options=storage_options)
        self.tokens_field = field_name("MegatronTokenizerWriter", "tokens_field", tokens_field)
        self.fields = [self.tokens_field]

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """Return nothing: readers of these files map them into memory."""
        return ()

    def extension(self) -> str:
        """Return nothing: the suffixes are all of it."""
        return ""

    def suffixes(self) -> tuple[str, ...]:
        """Return the suffixes of ids and index."""
        return SUFFIXES

    def fitting(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch: the stage before has made it."""
        return batch

    def open_writer(self, local_path: str) -> TokenFiles:
        """Return a writer for one pair of files."""
        return TokenFiles(local_path, self.tokens_field)


def tokenizer_name(identifier: Any) -> Any:
    """Return the name of a tokenizer: a file, a folder and a name with its kind as they are, others are on the Hub."""
    if not isinstance(identifier, str):
        return identifier  # refused where it is used
    is_file = os.path.exists(identifier) or identifier.endswith((".json", ".model"))
    return identifier if is_file or not _HUB_NAME.fullmatch(identifier) else f"hf:{identifier}"


def _honoured(given: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in given if name not in _HONOURED]
    if unknown:
        raise UsageError(
            f"MegatronTokenizerWriter.transformers_init_kwargs: {unknown[0]!r} has no meaning without transformers; "
            f"honoured are {' and '.join(_HONOURED)}, leave out the others"
        )
    return given
