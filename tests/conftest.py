# SPDX-License-Identifier: Apache-2.0
"""What several kinds of tests need."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a busy machine is no fault of what is tested
settings.load_profile("patient")

_BUCKETS = itertools.count(1)


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """Storage options that lead to a real S3 server on loopback."""
    pytest.importorskip("s3fs")
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {"endpoint_url": f"http://{host}:{port}", "key": "test", "secret": "test", "use_listings_cache": False}
    server.stop()


@pytest.fixture
def bucket(s3_options: dict[str, Any]) -> str:
    """A new bucket; the server keeps what other tests made."""
    import s3fs

    name = f"bucket-{next(_BUCKETS)}"
    s3fs.S3FileSystem(**s3_options, skip_instance_cache=True).mkdir(name)
    return name
