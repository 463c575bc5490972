# SPDX-License-Identifier: Apache-2.0
"""Base of the stages that ask a language model about each document."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.resources import Resources, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.models.endpoint.budget import Budget, Usage
from thresher.models.endpoint.client import LLMClient
from thresher.models.endpoint.endpoint import Endpoint, check_packages
from thresher.models.endpoint.request import Answer, FailedRequest, Request
from thresher.models.endpoint.store import cache_file
from thresher.stages.text.llm.prompt import PromptTemplate

MAX_TOKENS = 1024
"""Most tokens of an answer, where the sampling parameters do not say."""
_PART = 64
"""Documents that go on together, unless more are asked about at a time."""
_COUNTED = {
    "requests": "requests",
    "retries": "retries",
    "asked_again": "asked again for another form",
    "cached": "answers from the cache",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "cost": "cost in millionths",
}
"""Names in the report of what a client used."""


@dataclass(frozen=True)
class Asking:
    """How a model is asked, whatever the stage."""

    endpoint: Endpoint | Mapping[str, Any]
    """The address of the model, and the limits."""
    prompt: str
    """The template of the prompt."""
    system: str = ""
    """The template of the system message."""
    sampling: Mapping[str, Any] | None = None
    """Parameters that are sent as they are."""
    max_cost: float | None = None
    """Most money that the stage may use in a run."""
    max_total_tokens: int | None = None
    """Most tokens that the stage may use in a run."""
    cache_path: str | None = None
    """The file with answers; `None`: in the run folder."""


class EndpointStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Ask a model about each document, many at a time. A stage defines `added` and, for JSON answers, `schema`.

    A document whose request fails for good is quarantined with the reason; the others are unaffected. Every answer is
    stored before it is used, so a run that was killed pays for no answer twice.
    """

    resources = Resources(cpus=0.25)
    deterministic = False
    looks_at_inputs_only = True
    without_influence = frozenset({"endpoint", "max_cost", "max_total_tokens", "cache_path", "_client", "_counted"})
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answers; `None` for plain text."""
    max_reasks: int = 2
    """How often a document is asked about again whose answer does not fit the schema."""

    fans_out = True
    """Documents go on in parts."""

    _client: LLMClient | None = None
    _counted: Usage
    """What the client had used when it was counted last."""

    def ask_with(self, asking: Asking) -> None:
        """Keep how the model is asked; called in constructors."""
        kind = type(self).__name__
        check_packages(kind)
        self.endpoint = Endpoint.of(kind, asking.endpoint)
        self.model, self.api = self.endpoint.model, self.endpoint.api
        self.prompt = PromptTemplate(f"{kind}.prompt", asking.prompt)
        self.system = PromptTemplate(f"{kind}.system", asking.system)
        if not self.prompt.columns:
            raise UsageError(
                f"{kind}.prompt: {asking.prompt!r} names no column, so that every document would get the same answer; "
                "write {text} where the text belongs"
            )
        self.sampling = _checked_sampling(kind, asking.sampling)
        self.max_cost, self.max_total_tokens = asking.max_cost, asking.max_total_tokens
        self.cache_path = asking.cache_path
        if asking.cache_path is not None and (not isinstance(asking.cache_path, str) or not asking.cache_path):
            raise UsageError(f"{kind}.cache_path: {asking.cache_path!r} is not the path of a file")
        if asking.max_cost is not None and not (self.endpoint.input_price or self.endpoint.output_price):
            raise UsageError(
                f"{kind}.max_cost: {asking.max_cost!r} is never reached without prices; give endpoint.input_price and "
                "endpoint.output_price, for a million tokens"
            )
        try:
            self._budget()
        except UsageError as error:
            raise UsageError(f"{kind}.{error}") from None

    # -- what a stage defines -----------------------------------------------------------------------------------------

    def added(self, batch: DocumentBatch, answers: Sequence[Answer]) -> DocumentBatch:
        """Return the documents with what the answers say, one for each."""
        raise NotImplementedError

    # -- what all of them have ----------------------------------------------------------------------------------------

    def num_workers(self) -> int:
        """Return 1: one process has all requests in flight, and so keeps the limits exactly."""
        return 1

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that the prompt names."""
        return ["data"], list(dict.fromkeys((*self.prompt.columns, *self.system.columns)))

    def check_before_run(self) -> list[str]:
        """Report a missing key."""
        return self.endpoint.problems(type(self).__name__)

    def preloads(self) -> list[str]:
        """Return the package of connections, which takes long to import."""
        return ["aiohttp"]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Open connections and the file with answers."""
        worker = worker_metadata or WorkerMetadata()
        self._client = LLMClient(
            self.endpoint.share_of(worker.rank, worker.num_workers),
            cache_path=self.cache_path or cache_file(worker.run_dir),
            budget=self._budget(),
            max_reasks=self.max_reasks,
            name=self.name,
            account=f"{worker.run_id}/{self.name}",
        )
        self._counted = Usage()

    def teardown(self) -> None:
        """Close connections and the file."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Return the documents of one task with their answers."""
        first, *others = self._in_parts(task)
        return first.joined(others) if others else first

    def process_batch(self, tasks: list[DocumentBatch]) -> list[Any]:
        """Ask about all documents of all tasks at a time. Parts of a single task go on as soon as they are answered."""
        if len(tasks) == 1:
            return [self._in_parts(tasks[0])]
        ready = [self._without_gaps(task) for task in tasks]
        answers = self._answers([request for task in ready for request in self._requests(task)])
        made = [self._settled(task, list(itertools.islice(answers, len(task)))) for task in ready]
        self._count_used(answers)
        return made

    def _in_parts(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        """Yield the documents of a task in order, some at a time, while the others are asked about."""
        task = self._without_gaps(task)
        answers = self._answers(self._requests(task))
        size = max(_PART, self.endpoint.max_concurrency)
        for start in range(0, max(1, len(task)), size):
            rows = range(start, min(start + size, len(task)))
            # What was set aside before is noted in the first part only.
            part = task if len(rows) == len(task) else task.pick(rows) if start else task.take(rows)
            made = self._settled(part, list(itertools.islice(answers, len(rows))))
            self._count_used(answers if rows.stop == len(task) else None)
            yield made

    def _answers(self, requests: list[Request]) -> Iterator[Answer | FailedRequest]:
        if self._client is None:
            self.setup()
        assert self._client is not None
        return self._client.answers(requests)

    def _count_used(self, ended: Iterator[Any] | None) -> None:
        """Count what was used since the last time; `ended`: answers of which all were taken."""
        assert self._client is not None
        for _ in ended or ():
            raise AssertionError("there is an answer for each document")
        for name, text in _COUNTED.items():
            used = getattr(self._client.usage, name)
            if n := used - getattr(self._counted, name):
                setattr(self._counted, name, used)
                self.count(text, n)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_client", "_counted")}

    def _budget(self) -> Budget:
        return Budget(self.max_cost, self.max_total_tokens)

    def _without_gaps(self, batch: DocumentBatch) -> DocumentBatch:
        """Set aside the documents that lack a column of the prompt."""
        for column in self.inputs()[1]:
            missing = [row for row, value in enumerate(batch.values(column)) if value is None]
            if missing:
                text = f"field {column!r} is missing or null, and the prompt needs it"
                batch = batch.set_aside(missing, error="field-missing", messages=[text] * len(missing))
        return batch

    def _requests(self, batch: DocumentBatch) -> list[Request]:
        columns = self.inputs()[1]
        rows = zip(*(batch.values(column) for column in columns), strict=True)
        documents = (dict(zip(columns, row, strict=True)) for row in rows)
        return [
            Request(self.prompt.fill(values), self.system.fill(values), self.sampling, self.schema)
            for values in documents
        ]

    def _settled(self, batch: DocumentBatch, answers: list[Answer | FailedRequest]) -> DocumentBatch:
        """Return the documents with their answers; those without one are set aside."""
        by_error: dict[str, list[tuple[int, str]]] = {}
        for row, answer in enumerate(answers):
            if isinstance(answer, FailedRequest):
                by_error.setdefault(answer.error, []).append((row, answer.message))
        gone: list[int] = []
        for error, failures in by_error.items():
            places = [row - sum(other < row for other in gone) for row, _ in failures]
            batch = batch.set_aside(places, error=error, messages=[message for _, message in failures])
            gone += [row for row, _ in failures]
        return self.added(batch, [answer for answer in answers if isinstance(answer, Answer)])


def _checked_sampling(kind: str, given: Any) -> dict[str, Any]:
    """Return the sampling parameters with those that are usual; raise if they are none."""
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{kind}.sampling: {given!r} is not a mapping such as {{temperature: 0}}")
    usual = {} if "max_completion_tokens" in (given or {}) else {"max_tokens": MAX_TOKENS}
    merged = {"temperature": 0, **usual, **(given or {})}
    sampling = {name: value for name, value in merged.items() if value is not None}
    try:
        msgspec.json.encode(sampling)
    except TypeError as error:
        raise UsageError(f"{kind}.sampling: {given!r} cannot be written as JSON: {error}") from None
    return sampling


def text_or(what: str, given: Any, usual: str) -> str:
    """Return a text, or the usual one for `None`; raise for anything else."""
    if given is None:
        return usual
    if not isinstance(given, str):
        raise UsageError(f"{what}: {given!r} is not a text")
    return given


def texts_of(answers: Sequence[Answer]) -> Any:
    """Return the texts of answers as a column."""
    return column_of([answer.text for answer in answers], "string")


def column_of(values: Sequence[Any], kind: str) -> Any:
    """Return values as a column of the type of a JSON schema; nested ones stay Python objects."""
    import pyarrow as pa

    types = {"string": pa.large_string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
    return pa.array(values, type=types[kind]) if kind in types else list(values)
