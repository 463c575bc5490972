# SPDX-License-Identifier: Apache-2.0
"""The client against a real server with faults: answers, retries, limits, budgets, stored answers."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import Server, serving
from thresher.credentials import redacted
from thresher.errors import RunFailedError, UsageError
from thresher.models.endpoint.budget import Budget, BudgetSpentError, EndpointError
from thresher.models.endpoint.client import LLMClient
from thresher.models.endpoint.request import Answer, FailedRequest, Request
from thresher.models.endpoint.store import cache_file

SCORE = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server")) as one:
        yield one


def asked(server: Server, requests: list[Any], options: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    client = LLMClient(server.endpoint(**(options or {})), **more)
    try:
        return client.ask(requests)
    finally:
        client.close()


def texts(answers: list[Any]) -> list[str]:
    return [one.text if isinstance(one, Answer) else one.error for one in answers]


def test_answers_come_in_the_order_of_the_requests(server: Server) -> None:
    prompts = [f"order {n}" for n in range(50)]
    assert texts(asked(server, prompts)) == prompts


def test_failures_that_pass_are_retried_and_no_other_request_is_affected(server: Server) -> None:
    prompts = ["[429:1] a", "[500:2] b", "[cut:1] c", "[garbled:1] d", "plain", "[slow:1] e"]
    client = LLMClient(server.endpoint(timeout_s=1.0))
    assert texts(client.ask(prompts)) == prompts
    assert (client.usage.requests, client.usage.retries) == (6, 6)
    client.close()


def test_what_fails_for_good_says_why_and_the_rest_is_answered(server: Server) -> None:
    prompts = ["[400] a", "[500] b", "good", "[length] c", "[empty] d"]
    failed = asked(server, prompts, {"max_retries": 1})
    assert texts(failed) == ["endpoint-400", "endpoint-500", "good", "answer-cut", "answer-empty"]
    assert isinstance(failed[0], FailedRequest)
    assert "as wanted" in failed[0].message
    assert "max_tokens" in failed[3].message


def test_a_server_that_asks_to_wait_is_left_alone_by_all_requests(server: Server) -> None:
    before = server.stats()["requests"]
    client = LLMClient(server.endpoint(max_concurrency=1))
    assert texts(client.ask(["[429:1] wait", "after"])) == ["[429:1] wait", "after"]
    client.close()
    assert server.stats()["requests"] - before == 3


def test_an_answer_that_does_not_fit_the_schema_is_asked_for_again(server: Server, tmp_path: Path) -> None:
    prompts = ["fits", "[unfit:1] never the first time", "[unfit] never"]
    client = LLMClient(server.endpoint(), cache_path=str(tmp_path / "a.sqlite"), max_reasks=2)
    fits, _, never = client.ask([Request(prompt, schema=SCORE) for prompt in prompts])
    assert isinstance(fits, Answer)
    assert fits.value == {"score": 0}
    assert isinstance(never, FailedRequest)
    assert never.error == "answer-invalid"
    assert "$.score: 'very' is not of type 'integer'" in never.message
    assert client.usage.asked_again == 3
    client.close()
    attempts = Counter(one["prompt"] for one in server.answered())
    assert attempts["[unfit] never"] == 3
    assert texts(asked(server, [Request("fits", schema=SCORE)], cache_path=str(tmp_path / "a.sqlite"))) == [fits.text]
    asked(server, [Request("[unfit] never", schema=SCORE)], cache_path=str(tmp_path / "a.sqlite"), max_reasks=0)
    assert Counter(one["prompt"] for one in server.answered()) == {**attempts, "[unfit] never": 4}


@pytest.mark.parametrize("options", [{"structured_output": "json_object"}, {"structured_output": "prompt"}])
def test_a_server_without_schemas_is_told_the_schema_in_words(server: Server, options: dict[str, Any]) -> None:
    (answer,) = asked(server, [Request('{"score": 3}', schema=SCORE)], options)
    assert isinstance(answer, Answer)
    assert answer.value == {"score": 3}


def test_plain_completions_are_asked_by_a_prompt(server: Server) -> None:
    assert texts(asked(server, [Request("one\n\ntwo", system="Be brief.")], {"api": "completions"})) == ["two"]


def test_equal_requests_are_sent_once_at_a_time_and_ever(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "answers.sqlite")
    for _ in range(2):
        assert texts(asked(server, ["twin"] * 20, cache_path=path)) == ["twin"] * 20
    assert Counter(one["prompt"] for one in server.answered())["twin"] == 1
    asked(server, [Request("twin", sampling={"temperature": 1})], cache_path=path)
    assert Counter(one["prompt"] for one in server.answered())["twin"] == 2


def _ask_the_same(url: str, path: str, barrier: Any, results: Any) -> None:
    client = LLMClient({"base_url": url, "model": "stand-in"}, cache_path=path)
    barrier.wait()
    results.put([one.text for one in client.ask([f"shared {n}" for n in range(40)]) if isinstance(one, Answer)])
    client.close()


def test_several_processes_send_each_request_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3), context.Queue()
    with serving(tmp_path, delay_s=0.05) as server:
        arguments = (server.url, str(tmp_path / "answers.sqlite"), barrier, results)
        processes = [context.Process(target=_ask_the_same, args=arguments) for _ in range(3)]
        for process in processes:
            process.start()
        found = [results.get(timeout=60) for _ in processes]
        for process in processes:
            process.join()
        assert found == [[f"shared {n}" for n in range(40)]] * 3
        assert Counter(one["prompt"] for one in server.answered()) == {f"shared {n}": 1 for n in range(40)}


def test_no_more_requests_are_in_flight_than_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, delay_s=0.05) as server:
        asked(server, [f"n {n}" for n in range(40)], {"max_concurrency": 7})
        assert server.stats()["most_in_flight"] == 7


def test_requests_of_several_threads_share_the_limit(tmp_path: Path) -> None:
    with serving(tmp_path, delay_s=0.05) as server:
        client = LLMClient(server.endpoint(max_concurrency=5))
        threads = [
            threading.Thread(target=client.ask, args=([f"{name} {n}" for n in range(20)],))
            for name in ("left", "right")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        assert server.stats() == {"requests": 40, "in_flight": 0, "most_in_flight": 5}


def test_a_budget_of_tokens_is_never_exceeded_and_a_larger_one_goes_on(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "answers.sqlite")
    requests = [Request(f"budget {n}", sampling={"max_tokens": 5}) for n in range(60)]
    spent = 0
    for budget in (100, 160):
        with pytest.raises(BudgetSpentError, match=rf"of max_total_tokens={budget}; .* run the same command again"):
            asked(server, requests, cache_path=path, budget=Budget(max_total_tokens=budget))
        client = LLMClient(server.endpoint(), cache_path=path)
        used = client.spent()
        client.close()
        assert spent < used.input_tokens + used.output_tokens <= budget
        spent = used.input_tokens + used.output_tokens
    assert all(isinstance(one, Answer) for one in asked(server, requests, cache_path=path))
    assert {one["prompt"]: 1 for one in server.answered() if one["prompt"].startswith("budget")} == {
        request.prompt: 1 for request in requests
    }
    counted = Counter(one["prompt"] for one in server.answered())
    assert all(counted[request.prompt] == 1 for request in requests)


def test_a_budget_of_money_counts_prices_of_both_directions(server: Server) -> None:
    prices = {"input_price": 1_000_000, "output_price": 2_000_000, "max_concurrency": 1}
    client = LLMClient(server.endpoint(**prices), budget=Budget(max_cost=100))
    with pytest.raises(BudgetSpentError, match=r"66\.0000 of max_cost=100"):
        client.ask([Request(f"money {n}", sampling={"max_tokens": 6}) for n in range(99)])
    assert (client.usage.requests, client.usage.cost) == (11, 66_000_000)
    client.close()


def test_accounts_have_budgets_of_their_own(server: Server, tmp_path: Path) -> None:
    path = str(tmp_path / "answers.sqlite")
    for account in ("judge", "rewrite"):
        budget = Budget(max_total_tokens=40)
        assert texts(asked(server, [account], cache_path=path, account=account, budget=budget)) == [account]


@pytest.mark.parametrize(
    ("rates", "least", "most"),
    [({"requests_per_minute": 60}, 3, 11), ({"tokens_per_minute": 60}, 12, 60)],
    ids=["requests", "tokens"],
)
def test_rates_are_kept(tmp_path: Path, rates: dict[str, float], least: float, most: float) -> None:
    with serving(tmp_path) as server:
        client = LLMClient(server.endpoint(max_concurrency=1, **rates))
        waits: list[float] = []

        async def note(seconds: float) -> None:
            waits.append(seconds)
            for pace in client._paces:
                pace._seen = None if pace._seen is None else pace._seen - seconds  # as if the time had passed

        client._sleep = note  # type: ignore[method-assign]
        client.ask([f"paced {n}" for n in range(5)])  # two tokens each, and two of the answer
        client.close()
    assert least < sum(waits) <= most


def test_the_answers_of_a_run_are_on_a_local_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_file(None) is None
    assert cache_file("/out/_thresher") == "/out/_thresher/stages/answers.sqlite"
    remote = [cache_file(f"s3://bucket/{name}/_thresher") for name in ("one", "two")]
    assert all(str(path).startswith("/cache/thresher/answers/") for path in remote)
    assert len(set(remote)) == 2


def test_a_wrong_key_ends_at_once_and_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_LLM_KEY", "sk-wrong-0123456789")
    path = tmp_path / "answers.sqlite"
    with serving(tmp_path, key="sk-right-0123456789") as server:
        options = {"api_key_env": "TEST_LLM_KEY"}
        with pytest.raises(EndpointError, match=r"refuses requests.*api_key_env.*HTTP 401"):
            asked(server, [f"secret {n}" for n in range(9)], options, cache_path=str(path))
        monkeypatch.setenv("TEST_LLM_KEY", "sk-right-0123456789")
        assert texts(asked(server, ["secret"], options, cache_path=str(path))) == ["secret"]
    assert redacted("key sk-right-0123456789 and sk-wrong-0123456789") == "key *** and ***"
    assert b"sk-" not in b"".join(file.read_bytes() for file in tmp_path.glob("answers.sqlite*"))


def test_a_server_that_is_gone_ends_the_run_and_blames_no_request(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        pass
    with pytest.raises(EndpointError, match=r"answers no request.*run the same command again"):
        asked(server, ["anybody there?"], {"max_retries": 1})


def test_a_server_that_is_always_busy_ends_the_run(server: Server) -> None:
    with pytest.raises(EndpointError, match="answers no request: HTTP 429"):
        asked(server, ["[429] a", "[429] b"], {"max_retries": 1})


def test_a_file_that_holds_no_answers_is_named(tmp_path: Path, server: Server) -> None:
    (tmp_path / "answers.sqlite").write_bytes(b"something else" * 100)
    with pytest.raises(RunFailedError, match=r"answers\.sqlite: file is not a database.*cache_path"):
        asked(server, ["a"], cache_path=str(tmp_path / "answers.sqlite"))


def test_the_stored_answers_are_a_plain_sqlite_file(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "answers.sqlite"
    asked(server, ["one", "two"], cache_path=str(path))
    with sqlite3.connect(path) as opened:
        assert opened.execute("SELECT COUNT(*) FROM answers").fetchone() == (2,)
        assert opened.execute("SELECT COUNT(*) FROM claims").fetchone() == (0,)
    opened.close()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"model": "m"}, "base_url: Endpoint needs it"),
        ({"base_url": "localhost:8000", "model": "m"}, "is not the address of an endpoint"),
        ({"base_url": "http://me:secret@x/v1", "model": "m"}, "with a login or key"),
        ({"base_url": "http://x/v1", "model": "m", "api_key": "k"}, "would be stored and shown"),
        ({"base_url": "http://x/v1", "model": "m", "max_concurency": 1}, "Did you mean 'max_concurrency'"),
        ({"base_url": "http://x/v1", "model": "m", "max_concurrency": 0}, "not a whole number of 1 or more"),
        ({"base_url": "http://x/v1", "model": "m", "api": "responses"}, "must be one of"),
        ({"base_url": "http://x/v1", "model": "m", "output_price": -1}, "is not a price"),
        ({"base_url": "http://x/v1", "model": ""}, "is not the name of a model"),
        ("http://x/v1", "give a mapping"),
    ],
)
def test_a_wrong_endpoint_is_refused_with_what_is_legal(given: Any, fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        LLMClient(given)
    assert "secret" not in str(caught.value)
