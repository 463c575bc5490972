# SPDX-License-Identifier: Apache-2.0
"""Passwords and keys are nowhere in what a run writes or prints, however it ends."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import wait_until
from tests.faults.disturbed import SOURCES
from tests.faults.guarded_server import guarded_server
from thresher.cli.main import main

pytest.importorskip("aiohttp")

PASSWORD, OTHER_PASSWORD, SIGNATURE = "pa55-w0rd", "0ther-pa55", "s1gned-4way"
KEY, SECRET, SESSION = "AKIAVERYSECRET", "wJalr/XUtn+FEMI", "s3ss10n-t0ken"
SECRETS = (PASSWORD, OTHER_PASSWORD, SIGNATURE, KEY, SECRET, SESSION, "pa55%2Dw0rd", "wJalr%2FXUtn")
GOOD = "".join(f'{{"text": "record number {n} with enough words to stay"}}\n' for n in range(40)).encode()
FILES = {
    "good.jsonl": GOOD,
    "bad.jsonl": GOOD + b'not json\n{"text": 5}\n\xff\xfe\n[1]\n',
    "damaged.jsonl.gz": gzip.compress(GOOD * 20)[:-300],
    "damaged.parquet": b"PAR1" + b"\x00" * 200 + b"PAR1",
}
RECIPE = """
name: guarded
params: {input_path: ???, output_path: ???, options: {}}
stages:
  - %s: {file_paths: "${input_path}", storage_options: "${options}", blocksize: 1kB}
  - WordCountFilter: {min_words: 3}
%s  - JsonlWriter: {path: "${output_path}", storage_options: "${options}"}
"""
STAGES = '''
import os, time
from thresher import ProcessingStage

class Raising(ProcessingStage):
    """Names its input in an error, as a stage may that opens it once more."""
    def process(self, batch):
        raise ValueError(f"cannot use {batch.ids.source_at(0)[1]} nor http://me:pa55-w0rd@host/a?token=s1gned-4way")

class Broken(ProcessingStage):
    def setup(self, worker_metadata=None):
        raise OSError("no answer from http://me:pa55-w0rd@host/a?X-Amz-Signature=s1gned-4way")

class Waiting(ProcessingStage):
    def process(self, batch):
        open("working", "w").close()
        while not os.path.exists("go-on"):
            time.sleep(0.01)
        return batch
'''


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with guarded_server(FILES, {f"me:{PASSWORD}", f"me:{OTHER_PASSWORD}"}, {SIGNATURE}) as address:
        yield address


class Place:
    """A folder where commands run, and everything that they printed."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capture = folder, patch, capture
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setattr("tempfile.tempdir", str(folder / "tmp"))
        self.printed = b""
        self.environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCES}", "TMPDIR": str(folder / "tmp")}
        (folder / "tmp").mkdir()
        (folder / "leaky.py").write_text(STAGES)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "thresher", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def end(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Exit code and everything that was printed."""
        out, err = process.communicate(timeout=100)
        self.printed += out + err
        return process.returncode, (out + err).decode("utf-8", "replace")

    def thresher(self, *arguments: str) -> tuple[int, str]:
        """Run a command in this process, which takes less time, and knows of no secret from before."""
        self._patch.setattr("thresher.credentials._known", set())
        self._patch.setattr("thresher.credentials._known_pattern", None)
        self._capture.readouterr()
        code = main(list(arguments))
        shown = "".join(self._capture.readouterr())
        self.printed += shown.encode()
        return code, shown

    def run(self, source: str, *more: str, reader: str = "JsonlReader", stage: str = "", command: str = "run") -> Any:
        stages = f"  - {{_target_: leaky.{stage}}}\n" if stage else ""
        (self.folder / "recipe.yaml").write_text(RECIPE % (reader, stages))
        places = (
            f"input_path={source}",
            *(() if any("output_path" in text for text in more) else ("output_path=out",)),
        )
        return self.thresher(command, "recipe.yaml", *places, "--trust", "leaky", *more)

    def check(self) -> None:
        """No secret is in any file but the stages and their bytecode, or in what was printed."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("leaky.")]
        texts = {str(path): _unpacked(path) for path in files}
        for secret in SECRETS:
            for where, text in {**texts, "printed": self.printed, "names": "\n".join(texts).encode()}.items():
                assert secret.encode() not in text, (
                    secret,
                    where,
                    text[max(0, text.find(secret.encode()) - 200) :][:400],
                )


def _unpacked(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".parquet" and content.startswith(b"PAR1"):
        import pyarrow.parquet as pq

        return content + str(pq.read_table(path).to_pylist()).encode()
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        from zstandard import ZstdDecompressor

        with ZstdDecompressor().stream_reader(content, read_across_frames=True) as reader:
            return bytes(reader.read())
    return content


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Place]:
    yield Place(tmp_path, monkeypatch, capfd)
    sys.modules.pop("leaky", None)


def urls(host: str, name: str) -> tuple[str, str]:
    """A file by password and by signature."""
    return (
        f"http://me:{PASSWORD}@{host}/in/{name}",
        f"http://{host}/in/{name}?X-Amz-Expires=60&X-Amz-Signature={SIGNATURE}",
    )


EXECUTORS = pytest.mark.parametrize("executor", [("--executor", "serial"), ("--workers", "2")], ids=["serial", "local"])


@EXECUTORS
@pytest.mark.parametrize("kind", [0, 1], ids=["password", "signature"])
def test_a_run_and_all_that_looks_at_it_later(place: Place, host: str, executor: tuple[str, ...], kind: int) -> None:
    url = urls(host, "bad.jsonl")[kind]
    options = ("--max-errors", "100%", "--keep-scores", "--dropped-to", "dropped", *executor)
    assert place.run(url, "--json", command="plan")[0] == 0
    code, text = place.run(url, *options)
    assert code == 0, text
    assert sum(path.read_bytes().count(b"\n") for path in (place.folder / "out").glob("*.jsonl")) == 40
    assert place.run(urls(host, "bad.jsonl")[1 - kind], *options)[0] == 0, "other credentials, and the same run"
    for command in ("report", "quarantine", "audit", "replay"):
        for how in ((), ("--json",)):
            code, text = place.thresher(command, "out", *how)
            assert code == 0, text
    entry = next((place.folder / "out/_thresher/quarantine").glob("*.jsonl")).read_text()
    record = entry.partition('"id":"')[2].partition('"')[0]
    again = f"JsonlReader.file_paths={url}"
    assert place.thresher("why", "out", record, again)[0] == 0
    assert place.thresher("why", "out", "--text", "number 7", again)[0] == 0
    for command, *more in (
        ("why", record),
        ("retry",),
        ("rethreshold", "WordCountFilter.min_words=2", "--output", "more"),
    ):
        code, text = place.thresher(command, "out", *more)
        assert "JsonlReader.file_paths" in text, "says which credentials are missing"
        assert code == (0 if command == "why" else 2)
    assert place.thresher("retry", "out", again, *executor)[0] == 0
    code, text = place.thresher(
        "rethreshold", "out", "WordCountFilter.min_words=2", again, "--output", "more", *executor
    )
    assert code == 0, text
    place.check()


@EXECUTORS
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("missing.jsonl", "does not exist"),
        ("status/401/a.jsonl", "401"),
        ("status/403/a.jsonl", "403"),
        ("status/404/a.jsonl", "does not exist"),
        ("status/500/a.jsonl", "500"),
    ],
)
def test_input_that_is_refused(place: Place, host: str, executor: tuple[str, ...], name: str, expected: str) -> None:
    for url in urls(host, name):
        code, text = place.run(url.replace("/in/status/", "/status/"), *executor)
        assert (code, "Traceback" in text, expected in text) == (2, False, True), text
    assert not (place.folder / "out").exists()
    place.check()


def test_a_wrong_password_and_a_host_that_refuses(place: Place, host: str) -> None:
    for address, expected in (
        (f"me:{SECRET.replace('/', '')}@{host}", "401"),
        (f"me:{PASSWORD}@127.0.0.1:9", "connect"),
    ):
        for more in ((), ("--json",)):
            code, text = place.run(f"http://{address}/in/good.jsonl", *more)
            assert (code, "Traceback" in text, expected in text) == (2, False, True), text
    place.check()


@EXECUTORS
@pytest.mark.parametrize(
    ("name", "reader"), [("damaged.jsonl.gz", "JsonlReader"), ("damaged.parquet", "ParquetReader")]
)
def test_damaged_input(place: Place, host: str, executor: tuple[str, ...], name: str, reader: str) -> None:
    for number, url in enumerate(urls(host, name)):
        code, text = place.run(url, f"output_path=out{number}", "--max-errors", "100%", *executor, reader=reader)
        assert code in (0, 3), text
        assert place.thresher("quarantine", f"out{number}")[0] == 0
    place.check()


@EXECUTORS
@pytest.mark.parametrize("stage", ["Raising", "Broken"])
def test_a_stage_that_raises_with_a_url_in_its_message(
    place: Place, host: str, executor: tuple[str, ...], stage: str
) -> None:
    for number, url in enumerate(urls(host, "good.jsonl")):
        code, text = place.run(url, f"output_path=out{number}", "--max-errors", "100%", *executor, stage=stage)
        assert code in (0, 1, 3), text
        place.thresher("quarantine", f"out{number}")
    place.check()


@EXECUTORS
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_and_goes_on(place: Place, host: str, executor: tuple[str, ...], how: int) -> None:
    stages = "  - {_target_: leaky.Waiting}\n"
    (place.folder / "recipe.yaml").write_text(RECIPE % ("JsonlReader", stages))
    source = ("run", "recipe.yaml", f"input_path={urls(host, 'bad.jsonl')[0]}", "output_path=out")
    process = place.start(*source, "--trust", "leaky", "--max-errors", "100%", *executor)
    wait_until((place.folder / "working").exists, "the stage to work")
    process.send_signal(how)
    if how == signal.SIGINT:
        (place.folder / "go-on").touch()
    assert place.end(process)[0] == (130 if how == signal.SIGINT else -how)
    place.check()
    (place.folder / "go-on").touch()
    changed = urls(host, "bad.jsonl")[0].replace(PASSWORD, OTHER_PASSWORD)
    code, text = place.run(changed, "--max-errors", "100%", *executor, stage="Waiting")
    assert code == 0, text
    place.check()


@pytest.mark.s3
@EXECUTORS
def test_keys_of_s3_in_urls_options_and_environment(
    place: Place,
    bucket: str,
    s3_options: dict[str, Any],
    executor: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import s3fs

    files = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    files.pipe_file(f"{bucket}/in/bad.jsonl", FILES["bad.jsonl"])
    files.pipe_file(f"{bucket}/in/good.jsonl", GOOD)
    endpoint = s3_options["endpoint_url"]
    in_url = (f"s3://{KEY}:{SECRET}@{bucket}", f"options={{endpoint_url: '{endpoint}'}}")
    in_options = (
        f"s3://{bucket}",
        f"options={{endpoint_url: '{endpoint}', key: {KEY}, secret: {SECRET}, token: {SESSION}}}",
    )
    in_environment = (f"s3://{bucket}", f"options={{endpoint_url: '{endpoint}'}}")
    for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET), ("SESSION_TOKEN", SESSION)):
        monkeypatch.setenv(f"AWS_{name}", value)
    for number, (root, options) in enumerate((in_url, in_options, in_environment)):
        output = f"output_path={root}/out{number}"
        code, text = place.run(f"{root}/in", output, options, "--max-errors", "100%", *executor)
        assert code == 0, text
        run, opened = f"s3://{bucket}/out{number}", ("--storage-option", f"endpoint_url={endpoint}")
        for command in ("report", "quarantine", "audit"):
            code, text = place.thresher(command, run, *opened)
            assert code == 0, text
        for source, expected in (("missing", "does not exist"), ("in/*.csv", "no file matches")):
            code, text = place.run(f"{root}/{source}", output, options, *executor)
            assert (code, "Traceback" in text, expected in text) == (2, False, True), text
        stage = ("Raising", "Broken", "Raising")[number]
        failed = f"output_path={root}/failed{number}"
        assert place.run(f"{root}/in", failed, options, *executor, stage=stage)[0] in (0, 1, 3)
    files.get(f"{bucket}/", str(place.folder / "fetched"), recursive=True)
    assert len(list((place.folder / "fetched").rglob("run.json"))) == 6
    place.check()
