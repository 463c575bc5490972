# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of two CPUs for one run of NeMo Curator."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def two_cpu_cluster() -> Iterator[None]:
    """Start Ray as NeMo Curator's own client does, without its dashboard, and end it."""
    import os

    # Ray may switch token authentication on by a token left over from an earlier start: then the client waits for ever.
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    from nemo_curator.core.client import RayClient

    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        client = RayClient(num_cpus=2, num_gpus=0, include_dashboard=False, ray_temp_dir=folder)
        client.start()
        try:
            yield
        finally:
            client.stop()
