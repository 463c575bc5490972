# SPDX-License-Identifier: Apache-2.0
"""What several kinds of tests need."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# No deadlines: a busy machine is no fault of what is tested. The same examples each time: whether a change passes
# depends on the change. `make search` looks for new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("steady")

# Tests compile what they need, and leave no processes behind.
os.environ["THRESHER_BACKGROUND_COMPILE"] = "0"

# Images for containers often forbid Python to keep bytecode. Each of the thousands of processes that tests start would
# then compile all modules of Thresher again, which takes as long as a small run.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_BUCKETS = itertools.count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give whole files to the processes that run tests, the long ones first."""
    from tests.distribution import ByFile

    return ByFile(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture
def small_heap() -> Iterator[None]:
    """For tests of code that collects garbage often, or in a forked process: what earlier tests left is not looked at.

    Among it are clients whose threads a fork leaves behind, and which would wait for them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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
