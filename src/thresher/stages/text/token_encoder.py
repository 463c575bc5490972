# SPDX-License-Identifier: Apache-2.0
"""Stage that encodes the text of each document as token ids."""

from __future__ import annotations

from typing import ClassVar

from thresher.core.arguments.options import check_count, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.credentials import remember
from thresher.errors import UsageError, refusals
from thresher.models.token_lists import TokenLists
from thresher.models.tokenizer import (
    Tokenizer,
    TokenizerOptions,
    check_tokenizer,
    load_tokenizer,
    tokenizer_problems,
)
from thresher.stages.text.columns.not_text import with_texts

LARGEST = 2**31
"""All ids are below it, whatever the vocabulary."""


class TokenEncoder(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write the token ids of each document's whole text to train on; for ids that a model stage reads take Tokenize."""

    looks_at_inputs_only = True
    owner: ClassVar[str] = "TokenEncoder"
    """Name of the class in messages."""
    tokenizer_parameter: ClassVar[str] = "tokenizer"
    """Name of the first parameter in messages."""

    def __init__(  # noqa: PLR0913 - what to encode with, what to encode, and where a tokenizer is downloaded
        self,
        tokenizer: str,
        text_field: str = "text",
        tokens_field: str = "tokens",
        append_eod: bool = False,
        eod_token: str | int | None = None,
        add_special_tokens: bool = False,
        tokenization_batch_size: int = 1000,
        split_special_tokens: bool = False,
        cache_dir: str | None = None,
        hf_token: str | None = None,
        revision: str | None = None,
    ) -> None:
        """`tokenizer`: a tokenizer.json or its folder, a SentencePiece .model, `tiktoken:ENCODING` or `hf:OWNER/NAME`.
        `text_field`: the column of the text.
        `tokens_field`: the column that gets the ids.
        `append_eod`: put the token that ends a document after each document.
        `eod_token`: this token, or its id; by default the one of the tokenizer.
        `add_special_tokens`: also write the special tokens that the tokenizer puts around a text.
        `tokenization_batch_size`: most documents that the tokenizer gets at a time.
        `split_special_tokens`: encode the name of a special token in a text as ordinary text.
        `cache_dir`: folder for a tokenizer that is downloaded.
        `hf_token`: access token for the Hugging Face Hub; by default the one that its own tools have stored.
        `revision`: branch, tag or commit on the Hugging Face Hub.
        """
        caller = self.owner
        self.tokenizer = check_tokenizer(self._caller, tokenizer)
        self.text_field = field_name(caller, "text_field", text_field)
        self.tokens_field = field_name(caller, "tokens_field", tokens_field)
        if text_field == tokens_field:
            raise UsageError(f"{caller}.tokens_field: {tokens_field!r} is the text field; name another")
        self.append_eod, self.eod_token = append_eod, eod_token
        self.add_special_tokens = add_special_tokens
        self.tokenization_batch_size = check_count(f"{caller}.tokenization_batch_size", tokenization_batch_size)
        self.split_special_tokens = split_special_tokens
        self.cache_dir, self.hf_token, self.revision = cache_dir, hf_token, revision
        self._tokenizer: Tokenizer | None = None
        self._end_id: int | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the text."""
        return ["data"], [self.text_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column that receives the ids."""
        return ["data"], [self.tokens_field]

    def check_before_run(self) -> list[str]:
        """Report a missing tokenizer, and a missing token for the end of documents."""
        if self.tokenizer.startswith(("hf:", "tiktoken:")):
            return tokenizer_problems(self._caller, self.tokenizer)
        return refusals(self._prepared)

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Download the tokenizer once per machine, if it is a remote one."""
        if self.tokenizer.startswith(("hf:", "tiktoken:")):
            self._loaded()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Load the tokenizer."""
        self._tokenizer, self._end_id = self._prepared()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Encode the texts, and write the column."""
        batch, lists = self.encoded(task)
        if self._end_id is not None:
            lists = lists.followed_by(self._end_id)
        self.count("tokens", len(lists.ids))
        return batch.replace(self.tokens_field, lists.to_arrow(), [True] * len(lists))

    def encoded(self, batch: DocumentBatch) -> tuple[DocumentBatch, TokenLists]:
        """Return the documents that have a text, and the token ids of each."""
        if self._tokenizer is None:
            self.setup()
        assert self._tokenizer is not None
        batch, texts = with_texts(batch, self.text_field)
        size = self.tokenization_batch_size
        starts = range(0, max(1, len(texts)), size)
        return batch, TokenLists.joined([self._tokenizer.encode_batch(texts[start : start + size]) for start in starts])

    @property
    def _caller(self) -> str:
        return f"{self.owner}.{self.tokenizer_parameter}"

    def _prepared(self) -> tuple[Tokenizer, int | None]:
        """Return the tokenizer, and the id that is put after each document."""
        tokenizer = self._loaded()
        return tokenizer, end_id_of(tokenizer, self.eod_token, self.owner) if self.append_eod else None

    def _loaded(self) -> Tokenizer:
        if self.hf_token is not None and self.tokenizer.startswith("hf:"):
            remember({"token": self.hf_token})
        options = TokenizerOptions(self.cache_dir, self.hf_token, self.revision, self.split_special_tokens)
        return load_tokenizer(self._caller, self.tokenizer, self.add_special_tokens, options)


def end_id_of(
    tokenizer: Tokenizer | None, eod_token: str | int | None, caller: str, vocabulary_size: int | None = None
) -> int:
    """Return the id of the token that ends a document: the one that is named, else that of the tokenizer."""
    if isinstance(eod_token, int):
        size = vocabulary_size or (LARGEST if tokenizer is None else tokenizer.vocabulary_size)
        if not 0 <= eod_token < size:
            raise UsageError(f"{caller}.eod_token: {eod_token!r} is no token id; ids are from 0 to {size - 1:,}")
        return eod_token
    found = None if tokenizer is None else tokenizer.end_id if eod_token is None else tokenizer.id_of(eod_token)
    if found is None:
        what = "no token that ends a document is known" if eod_token is None else f"there is no token {eod_token!r}"
        raise UsageError(f"{caller}.append_eod: {what}; name a token of the tokenizer, or its id, with eod_token")
    return found
