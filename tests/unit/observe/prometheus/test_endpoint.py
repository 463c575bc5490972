# SPDX-License-Identifier: Apache-2.0
"""The endpoint on a real port: what it answers, whom it turns away, and that nobody can hold it up."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from tests.unit.observe.prometheus.snapshots import INFO, SNAPSHOT
from thresher.errors import UsageError
from thresher.observe.prometheus.endpoint import MOST_CLIENTS, MetricsEndpoint
from thresher.observe.prometheus.exposition import OPENMETRICS, PLAIN


@pytest.fixture
def endpoint() -> Iterator[MetricsEndpoint]:
    made = MetricsEndpoint(0)
    made.start(INFO)
    yield made
    made.shut_down()


def get(endpoint: MetricsEndpoint, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    """Status, content type and body of an answer."""
    client = http.client.HTTPConnection(endpoint.address, timeout=20)
    client.request("GET", path, headers=headers)
    answer = client.getresponse()
    body = answer.read().decode()
    client.close()
    return answer.status, answer.headers["Content-Type"], body


def test_the_last_snapshot_is_served_in_the_format_that_is_asked_for(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint) == (200, PLAIN, "\n")
    endpoint.update(SNAPSHOT)
    assert "thresher_run_seconds 12.5\n" in get(endpoint)[2]
    endpoint.update(replace(SNAPSHOT, elapsed_s=13.5))
    status, kind, body = get(endpoint, Accept="application/openmetrics-text;version=1.0.0")
    assert (status, kind) == (200, OPENMETRICS)
    assert "thresher_run_seconds 13.5\n" in body
    assert body.endswith("# EOF\n")


def test_snapshots_are_wanted_once_a_second(endpoint: MetricsEndpoint) -> None:
    assert endpoint.due(0.0)
    endpoint.update(replace(SNAPSHOT, elapsed_s=10.0))
    assert not endpoint.due(10.5)
    assert endpoint.due(11.0)


def test_an_outlet_is_served_beside_the_pipeline(endpoint: MetricsEndpoint) -> None:
    endpoint.update(SNAPSHOT)
    for _ in range(2):  # two outlets may have one name, on two levels
        endpoint.start(replace(INFO, outlet="short"))
        endpoint.update(SNAPSHOT)
    body = get(endpoint)[2]
    assert "thresher_run_seconds 12.5\n" in body
    assert 'thresher_run_seconds{outlet="short"} 12.5\n' in body
    assert 'thresher_run_seconds{outlet="short-2"} 12.5\n' in body


def test_other_paths_lead_to_the_metrics_and_nowhere_else(endpoint: MetricsEndpoint) -> None:
    for path in ("/", "/../../etc/passwd", "/metrics/../x"):
        assert get(endpoint, path)[::2] == (404, "the metrics are at /metrics\n")


def test_a_page_that_reaches_loopback_under_its_own_name_is_turned_away(endpoint: MetricsEndpoint) -> None:
    assert get(endpoint, Host="evil.example:80")[0] == 403
    assert get(endpoint, Host="localhost:9464")[0] == 200


def test_slow_clients_hold_nobody_up_and_too_many_are_turned_away(endpoint: MetricsEndpoint) -> None:
    endpoint.update(SNAPSHOT)
    host, _, port = endpoint.address.rpartition(":")
    slow = [socket.create_connection((host, int(port))) for _ in range(MOST_CLIENTS - 1)]
    try:
        for client in slow:
            client.sendall(b"GET /metr")
        assert get(endpoint)[0] == 200
        more = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
        assert b"" in [client.recv(1) for client in more[1:]]
        for client in more:
            client.close()
    finally:
        for client in slow:
            client.close()


def test_a_port_that_is_in_use_is_refused(endpoint: MetricsEndpoint) -> None:
    port = int(endpoint.address.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"--metrics-port {port} .*cannot listen there: Address already in use"):
        MetricsEndpoint(port)


def test_the_end_waits_until_the_last_figures_are_fetched(endpoint: MetricsEndpoint) -> None:
    endpoint.update(SNAPSHOT)
    get(endpoint)  # too early: these are not the last ones
    waiting = threading.Thread(target=endpoint.linger, args=(100.0,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    assert get(endpoint)[0] == 200
    waiting.join(60)
    assert not waiting.is_alive()


def test_without_a_client_the_end_waits_no_longer_than_allowed(endpoint: MetricsEndpoint) -> None:
    endpoint.update(SNAPSHOT)
    endpoint.linger(0.0)
    _, are_last = endpoint.text("text/plain")
    assert are_last, "what is served from now on are the last figures"
