# SPDX-License-Identifier: Apache-2.0
"""A client that asks a model many things at a time, within limits, and pays for nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import queue
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any, TypeVar

import msgspec

from thresher.models.endpoint.budget import Budget, EndpointError, Usage
from thresher.models.endpoint.endpoint import Endpoint, check_packages
from thresher.models.endpoint.exchange import TOO_MANY, Exchange, RequestRefused, TryAgain
from thresher.models.endpoint.loop_thread import LoopThread
from thresher.models.endpoint.pacing import LONGEST_WAIT_S, Pace, backoff_s
from thresher.models.endpoint.request import BYTES_PER_TOKEN, Answer, FailedRequest, Request
from thresher.models.endpoint.store import BEAT_S, AnswerStore, Refusal, Reserve
from thresher.models.endpoint.structured import asked_again, read_value

Result = TypeVar("Result")
_POLL_S = 0.1
"""Time between two looks whether another process has an answer, or requests in flight have left room in the budget."""


class LLMClient:
    """Asks the model behind an OpenAI-compatible endpoint.

    Make one per worker, in `setup`, and close it in `teardown`:

        def setup(self, worker_metadata=None):
            endpoint = {"base_url": "http://127.0.0.1:8000/v1", "model": "small"}
            self.client = LLMClient(endpoint, cache_path=cache_file(worker_metadata.run_dir))

        def process(self, batch):
            answers = self.client.ask([f"Summarize: {text}" for text in batch.values("text")])
    """

    def __init__(
        self,
        endpoint: Endpoint | Mapping[str, Any],
        *,
        cache_path: str | None = None,
        budget: Budget | None = None,
        max_reasks: int = 2,
        name: str = "LLMClient",
        account: str = "",
    ) -> None:
        """`endpoint`: an `Endpoint`, or its fields.
        `cache_path`: the file that keeps answers; without it they are kept in memory only.
        `budget`: the most tokens and money that `account` may use, by default that of `name`.
        `max_reasks`: how often a request is made again if its answer does not fit its schema.
        """
        check_packages(name)
        self.endpoint = Endpoint.of(name, endpoint)
        self.name = name
        self.usage = Usage()
        """What this client has used since it was made."""
        self._budget = budget or Budget()
        self._max_reasks = max_reasks
        self._cache_path, self._account = cache_path, account or name
        self._paces = Pace(self.endpoint.requests_per_minute), Pace(self.endpoint.tokens_per_minute)
        self._running: dict[bytes, asyncio.Future[Answer]] = {}
        self._operations: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._asking = 0
        self._last_success = self._resume_at = float("-inf")
        self._thread = LoopThread()
        try:
            self._thread.run(self._open())
        except BaseException:
            self._thread.stop()
            raise

    def ask(self, requests: Iterable[str | Request]) -> list[Answer | FailedRequest]:
        """Return the answer to each request, or why it has none, in order. A text is a prompt.

        Raises `BudgetSpentError` and `EndpointError`, once the requests in flight have ended.
        """
        return list(self.answers(requests))

    def answers(self, requests: Iterable[str | Request]) -> Iterator[Answer | FailedRequest]:
        """Yield what `ask` returns, each once it and those before are there; the others are asked meanwhile."""
        arrived: queue.SimpleQueue[tuple[int, Answer | FailedRequest] | None] = queue.SimpleQueue()
        task = self._thread.start(self._ask_all(requests, lambda number, answer: arrived.put((number, answer))))
        task.when_done(lambda: arrived.put(None))
        early: dict[int, Answer | FailedRequest] = {}
        number = 0
        try:
            while (found := arrived.get()) is not None:
                early[found[0]] = found[1]
                while number in early:
                    yield early.pop(number)
                    number += 1
            task.result()
        finally:
            task.cancel()

    def spent(self) -> Usage:
        """Return what was paid from the budget, over all processes and earlier attempts."""
        return self._thread.run(self._spent())

    def close(self) -> None:
        """Close the connections and the file."""
        if not self._thread.is_stopped:
            try:
                self._thread.run(self._close())
            finally:
                self._thread.stop()

    async def _open(self) -> None:
        self._store = AnswerStore(self._cache_path, self._account, self._budget)
        self._exchange = Exchange(self.endpoint)
        self._slots = asyncio.Semaphore(self.endpoint.max_concurrency)
        self._gate = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._beat = asyncio.create_task(self._show_life())

    async def _close(self) -> None:
        self._beat.cancel()
        await self._exchange.close()
        self._store.close()

    async def _spent(self) -> Usage:
        return self._store.spent()

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._store.beat()

    async def _stored(self, operation: Callable[[], Result]) -> Result:
        """Return the result of an operation of the store, once it is on disk; those that come together are one
        transaction."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._operations.append((operation, future))
        if len(self._operations) == 1:
            loop.call_soon(self._store_all)
        return await future

    def _store_all(self) -> None:
        waiting, self._operations = self._operations, []
        try:
            with self._store.together():
                results = [operation() for operation, _ in waiting]
        except Exception as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
        else:
            for (_, future), result in zip(waiting, results, strict=True):
                if not future.done():
                    future.set_result(result)

    # -- many requests ------------------------------------------------------------------------------------------------

    async def _ask_all(
        self, requests: Iterable[str | Request], arrived: Callable[[int, Answer | FailedRequest], None]
    ) -> None:
        """Call `arrived` with the number of each request and its answer, in whatever order they come."""
        failures: list[BaseException] = []
        waiting = iter(enumerate(requests))
        if not self._asking:
            self._stopping.clear()  # the failure that ended earlier requests may be over
        self._asking += 1

        async def ask_in_turn() -> None:
            for number, given in waiting:
                if self._stopping.is_set():
                    return
                try:
                    arrived(number, await self._ask(Request(given) if isinstance(given, str) else given))
                except RequestRefused as refused:
                    arrived(number, refused.failed)
                except asyncio.CancelledError:
                    raise
                except _Stopped:
                    return
                except BaseException as error:
                    failures.append(error)
                    self._stopping.set()
                    return

        most = min(self.endpoint.max_concurrency, length_hint(requests, self.endpoint.max_concurrency))
        try:
            await _finish([asyncio.create_task(ask_in_turn()) for _ in range(max(1, most))])
        finally:
            self._asking -= 1
        if failures or self._stopping.is_set():
            raise failures[0] if failures else EndpointError(f"{self.endpoint.url}: other requests ended the run")

    async def _ask(self, request: Request) -> Answer:
        """Return the answer to a request, asking again while it does not fit the schema."""
        keys: list[bytes] = []
        for reasks in itertools.count():
            keys.append(request.key(self.endpoint))
            answer = await self._complete(keys[-1], request)
            failed = _unusable(answer)
            if failed is None and request.schema is not None:
                value, fault = read_value(answer, request.schema)
                if not fault:
                    return msgspec.structs.replace(answer, value=value)
                if reasks < self._max_reasks:
                    request = asked_again(request, answer, fault)
                    self.usage.asked_again += 1
                    continue
                failed = RequestRefused(
                    "answer-invalid", f"after {reasks + 1} attempts, the answer does not fit: {fault}"
                )
            if failed is None:
                return answer
            await self._stored(functools.partial(self._store.forget, keys))
            raise failed
        raise AssertionError("the loop ends by a return")

    # -- one request --------------------------------------------------------------------------------------------------

    async def _complete(self, key: bytes, request: Request) -> Answer:
        """Return the answer to a request that is stored, on its way, or sent now."""
        running = self._running.get(key)
        if running is not None:
            answer = await asyncio.shield(running)
            self.usage.cached += 1
            return answer
        future = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._stored_or_sent(key, request)
        except BaseException as error:
            future.set_exception(_Stopped() if isinstance(error, asyncio.CancelledError) else error)
            future.exception()  # nobody may be waiting for it
            raise
        finally:
            del self._running[key]
        future.set_result(answer)
        return answer

    async def _stored_or_sent(self, key: bytes, request: Request) -> Answer:
        sent, answered = request.most_tokens(self.endpoint)
        most = Reserve(sent + answered, self.endpoint.cost(sent, answered))
        claim = functools.partial(self._store.claim, key, most)
        known = await self._stored(claim)
        while isinstance(known, Refusal):
            if known is Refusal.SPENT:
                spent = self._store.spent()
                raise self._budget.spent_error(self.name, spent.input_tokens + spent.output_tokens, spent.cost)
            if known is Refusal.ASKED:
                await self._sleep(_POLL_S)
                known = await self._stored(claim)
            else:
                known = await self._claim_when_there_is_room(claim)
        if known is not None:
            self.usage.cached += 1
            return known
        try:
            answer = await self._send_until_answered(request, sent // BYTES_PER_TOKEN + answered)
            cost = self.endpoint.cost(answer.input_tokens, answer.output_tokens)
            await self._stored(functools.partial(self._store.put, key, answer, cost))
        except BaseException:
            self._store.release(key)
            raise
        self.usage.requests += 1
        self.usage.input_tokens += answer.input_tokens
        self.usage.output_tokens += answer.output_tokens
        self.usage.cost += cost
        return answer

    async def _claim_when_there_is_room(self, claim: Callable[[], Answer | Refusal | None]) -> Answer | Refusal | None:
        """Claim a request when those in flight have left room in the budget; one at a time looks."""
        async with self._gate:
            known = await self._stored(claim)
            while known is Refusal.FULL:
                await self._sleep(_POLL_S)
                known = await self._stored(claim)
            return known

    async def _send_until_answered(self, request: Request, tokens: int) -> Answer:
        """Send a request, again after each failure that may pass. `tokens`: what it may use, for the rate."""
        clock = asyncio.get_running_loop().time
        body = request.body(self.endpoint)
        began, failures = clock(), 0
        while True:
            await self._wait_for_turn(tokens)
            try:
                async with self._slots:
                    answer = await self._exchange.send(body)
            except TryAgain as failure:
                self._paces[1].take(-tokens)
                failures += 1
                if failures > self.endpoint.max_retries:
                    await self._give_up(failure, self._last_success > began)
                    began, failures = clock(), 1
                self.usage.retries += 1
                await self._back_off(failure, failures)
            else:
                self._last_success = clock()
                self._paces[1].take(answer.input_tokens + answer.output_tokens - tokens)
                return answer

    async def _give_up(self, failure: TryAgain, others_succeed: bool) -> None:
        """Raise the failure of a request that was sent often enough, unless the server is just busy. `others_succeed`:
        other requests were answered meanwhile."""
        failed = failure.failed
        busy = failed.error == f"endpoint-{TOO_MANY}"
        if others_succeed and busy:
            return
        if others_succeed or (not busy and await self._exchange.is_alive()):
            attempts = self.endpoint.max_retries + 1
            raise RequestRefused(failed.error, f"no answer after {attempts} attempts: {failed.message}")
        raise EndpointError(
            f"{self.endpoint.url} answers no request: {failed.message}. Answers so far are kept; see to the server, or "
            "raise endpoint.max_retries, and run the same command again"
        )

    async def _back_off(self, failure: TryAgain, failures: int) -> None:
        jitter = random.random()
        wait_s = backoff_s(failures, jitter)
        if failure.wait_s is not None:
            if failure.wait_s > LONGEST_WAIT_S:
                raise EndpointError(
                    f"{self.endpoint.url} asks to wait {failure.wait_s:,.0f} seconds: {failure.failed.message}. "
                    "Answers so far are kept; run the same command again later"
                )
            clock = asyncio.get_running_loop().time
            self._resume_at = max(
                self._resume_at, clock() + failure.wait_s
            )  # for all requests: it is the server's wish
            wait_s = failure.wait_s + jitter * min(1.0, wait_s)
        await self._sleep(wait_s)

    async def _wait_for_turn(self, tokens: int) -> None:
        """Wait until the rates and the server allow another request, and charge it."""
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            wait_s = max(self._resume_at - now, *(pace.wait_s(now) for pace in self._paces))
            if wait_s <= 0:
                break
            await self._sleep(wait_s)
        for pace, amount in zip(self._paces, (1, tokens), strict=True):
            pace.take(amount)

    async def _sleep(self, seconds: float) -> None:
        """Wait; raise `_Stopped` if no more requests are to be sent."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        if self._stopping.is_set():
            raise _Stopped


class _Stopped(Exception):
    """Raised in requests that have not been sent when the run is to end."""


async def _finish(tasks: Sequence[asyncio.Task[None]]) -> None:
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _unusable(answer: Answer) -> RequestRefused | None:
    """Return why an answer cannot be used, whatever it says."""
    if answer.finish_reason == "length":
        return RequestRefused("answer-cut", "the answer was cut off; raise max_tokens in the sampling parameters")
    if answer.finish_reason == "content_filter":
        return RequestRefused("answer-filtered", "the server withholds the answer (content_filter)")
    if not answer.text:
        return RequestRefused("answer-empty", f"the answer is empty (finish_reason {answer.finish_reason})")
    return None
