# SPDX-License-Identifier: Apache-2.0
"""A typo in the name of a bucket makes no bucket, and servers that do not answer are told of: exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thresher.cli.main import main

pytestmark = pytest.mark.s3

RECIPE = """
name: copy
params: {output: ???, options: {}}
stages:
  - JsonlReader: {file_paths: in.jsonl}
  - WordCountFilter: {min_words: 1}
  - JsonlWriter: {path: "${output}", storage_options: "${options}"}
"""
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    Path("in.jsonl").write_text('{"text": "one two"}\n')
    Path("recipe.yaml").write_text(RECIPE)

    def command(*arguments: str) -> tuple[int, str]:
        code = main(list(arguments))
        return code, "".join(capfd.readouterr())

    return command


def buckets(s3_options: dict[str, Any]) -> set[str]:
    import s3fs

    return set(s3fs.S3FileSystem(**s3_options, skip_instance_cache=True).ls("", refresh=True))


def settings(s3_options: dict[str, Any]) -> str:
    return f"options={{endpoint_url: '{s3_options['endpoint_url']}', key: test, secret: test}}"


def test_no_output_dropped_or_run_folder_makes_a_bucket(run: Run, bucket: str, s3_options: dict[str, Any]) -> None:
    there = buckets(s3_options)
    common = ("run", "recipe.yaml", settings(s3_options), "--executor", "serial")
    for places in (
        ("output=s3://typo-1/out",),
        (f"output=s3://{bucket}/out", "--dropped-to", "s3://typo-2/dropped"),
        (f"output=s3://{bucket}/out", "--run-dir", "s3://typo-3/run"),
        ("output=s3://typo-4/out", "--no-ledger"),
    ):
        code, text = run(*common, *places)
        name = next(word for word in " ".join(places).split("/") if word.startswith("typo"))
        assert (code, f"the bucket {name!r} does not exist" in text, "Traceback" in text) == (2, True, False), text
    code, text = run(*common, f"output=s3://{bucket}/out")
    assert code == 0, "nothing was left that would be foreign"
    assert buckets(s3_options) == there


def test_rethreshold_makes_no_bucket(run: Run, s3_options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    there = buckets(s3_options)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_options["endpoint_url"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    assert run("run", "recipe.yaml", "output=out", "--executor", "serial", "--keep-scores")[0] == 0
    code, text = run(
        "rethreshold", "out", "WordCountFilter.min_words=2", "--output", "s3://typo-5/out", "--executor", "serial"
    )
    assert (code, "the bucket 'typo-5' does not exist" in text) == (2, True), text
    for command in ("report", "audit", "quarantine", "retry", "replay"):
        code, text = run(command, "s3://typo-5/out")
        assert (code, "the bucket 'typo-5' does not exist" in text) == (2, True), text
    assert buckets(s3_options) == there


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{endpoint_url: 'http://127.0.0.1:9', config_kwargs: {retries: {max_attempts: 0}}}", "no credentials"),
        (
            "{endpoint_url: 'http://127.0.0.1:9', key: a, secret: b, config_kwargs: {retries: {max_attempts: 0}}}",
            "cannot connect",
        ),
        ("{endpoint_url: nonsense, key: a, secret: b}", "cannot connect"),
        ("{endpoint: 'http://127.0.0.1:9', key: a, secret: b}", "Check the URL and its storage_options"),
    ],
)
def test_a_wrong_endpoint_or_no_credentials_is_a_message(run: Run, options: str, expected: str) -> None:
    output = ("run", "recipe.yaml", "output=s3://bucket/out", f"options={options}", "--executor", "serial")
    code, text = run(*output)
    assert (code, expected in text, "Traceback" in text) == (2, True, False), text
    code, text = run("plan", "recipe.yaml", "output=out", "JsonlReader.file_paths=s3://bucket/in",
                     f"JsonlReader.storage_options={options}")  # fmt: skip
    assert (code, expected in text, "Traceback" in text) == (2, True, False), text


@pytest.mark.parametrize(
    ("scheme", "package"), [("gs", "gcsfs"), ("abfs", "adlfs"), ("sftp", "paramiko"), ("oss", "ossfs")]
)
def test_the_package_for_a_scheme_is_named(run: Run, scheme: str, package: str) -> None:
    code, text = run("plan", "recipe.yaml", "output=out", f"JsonlReader.file_paths={scheme}://bucket/in")
    assert (code, f"pip install '{package}'" in text) == (2, True), text
