# SPDX-License-Identifier: Apache-2.0
"""The stage before the files of token ids: it makes of each document what its sequence will hold, and nothing else."""

from __future__ import annotations

from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.models.token_lists import TokenLists
from thresher.models.tokenizer import token_type
from thresher.stages.text.token_encoder import LARGEST, TokenEncoder, end_id_of


class EncodedDocuments(TokenEncoder):
    """Encode texts, and keep nothing but the token ids of documents that have any."""

    owner = "MegatronTokenizerWriter"
    tokenizer_parameter = "model_identifier"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Return the documents that have tokens."""
        task.name_records()
        batch, lists = self.encoded(task)
        return sequences(self, batch, lists, self._end_id)


class ListedDocuments(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Keep the token ids that documents bring along, of those that have any."""

    looks_at_inputs_only = True

    def __init__(
        self, tokens_field: str, vocab_size: int | None, append_eod: bool, eod_token: str | int | None
    ) -> None:
        """`tokens_field`: the column of ids. `vocab_size`: the number that ids are below. `append_eod`: put the id
        `eod_token` after each document."""
        self.tokens_field, self.vocab_size = tokens_field, vocab_size
        self.end_id = end_id_of(None, eod_token, "MegatronTokenizerWriter", vocab_size) if append_eod else None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of ids."""
        return ["data"], [self.tokens_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Return the documents that have tokens."""
        from thresher.stages.text.columns.token_ids import token_lists

        task.name_records()
        batch, lists = token_lists(task, self.tokens_field, self.vocab_size or LARGEST)
        return sequences(self, batch, lists.as_type(token_type(self.vocab_size)), self.end_id)


def sequences(
    stage: EncodedDocuments | ListedDocuments, batch: DocumentBatch, lists: TokenLists, end_id: int | None
) -> DocumentBatch:
    """Return the sequences of documents as a batch with one column, `stage.tokens_field`; documents without tokens are
    dropped."""
    import pyarrow as pa

    from thresher.stages.text.columns.token_ids import without_empty

    batch, lists = without_empty(batch, lists)
    if end_id is not None:
        lists = lists.followed_by(end_id)
    stage.count("tokens", len(lists.ids))
    table = pa.table({stage.tokens_field: lists.to_arrow()})
    made = DocumentBatch.from_table(table, batch.ids, batch.dataset_name)  # type: ignore[arg-type]  # they have names
    made._dropped, made._failed = batch._dropped, batch._failed
    return made
