# SPDX-License-Identifier: Apache-2.0
"""Models of the Hugging Face Hub, from a server on loopback that answers as the hub does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub", reason="needs the extra `models`")
COMMIT = "c" * 40
FILES = {
    "config.json": b'{"id2label": {"0": "a"}}',
    "model.safetensors": b"weights",
    "onnx/model.onnx": b"graph",
    "onnx/model_quantized.onnx": b"another graph",
    "pytorch_model.bin": b"pickle",
    "tf_model.h5": b"weights of another framework",
}
FETCH = """
import sys
from thresher.models.loading.reference import ModelReference
print(ModelReference(sys.argv[1], "x", cache_dir=sys.argv[2]).fetch())
"""


class Hub(BaseHTTPRequestHandler):
    """One repository."""

    asked: list[str]

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        name = path.removeprefix(f"/owner/name/resolve/{COMMIT}/")
        content, kind = FILES.get(name), "application/octet-stream"
        if path.startswith("/api/models/owner/name"):
            kind = "application/json"
            tree = [{"type": "file", "path": one, "size": len(FILES[one]), "oid": "0" * 40} for one in FILES]
            facts = {"id": "owner/name", "sha": COMMIT, "siblings": [{"rfilename": one} for one in FILES]}
            content = json.dumps(tree if "/tree/" in path else facts).encode()
        elif content is not None and with_body:
            self.asked.append(name)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content or b"")))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
        self.end_headers()
        if with_body:
            self.wfile.write(content or b"")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(name: str, cache: Path, endpoint: str, offline: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": offline, "HF_HUB_DISABLE_XET": "1"}
    environment["HF_HUB_DISABLE_PROGRESS_BARS"] = environment["HF_HUB_DISABLE_TELEMETRY"] = "1"
    command = [sys.executable, "-c", FETCH, name, str(cache)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_only_the_files_that_are_needed_are_fetched_and_only_once(tmp_path: Path, hub: str) -> None:
    done = fetch("owner/name", tmp_path, hub)
    assert done.returncode == 0, done.stderr
    place = Path(done.stdout.strip())
    found = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    wanted = ("config.json", "model.safetensors", "onnx/model.onnx")
    assert found == {name: FILES[name] for name in wanted}
    assert sorted(Hub.asked) == sorted(wanted)
    assert fetch("hf:owner/name", tmp_path, hub).stdout == done.stdout
    assert fetch("owner/name", tmp_path, hub, offline="1").stdout == done.stdout
    assert len(Hub.asked) == len(wanted)
    missing = fetch("owner/other", tmp_path, hub)
    assert "cannot be fetched from the Hugging Face Hub" in missing.stderr
