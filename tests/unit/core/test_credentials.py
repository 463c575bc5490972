# SPDX-License-Identifier: Apache-2.0
"""Credentials are split from URLs, reach whoever opens them, and are redacted from every text."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from thresher import JsonlReader, JsonlWriter
from thresher.core.planning.fingerprint import fingerprint
from thresher.credentials import (
    has_credentials,
    message_of,
    redacted,
    redacted_errors,
    remember,
    split_urls,
    with_credentials,
    without_credentials,
)
from thresher.errors import InputError, RunFailedError, UsageError


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.credentials._known", set())
    monkeypatch.setattr("thresher.credentials._known_pattern", None)


SPLIT = [
    ("http://me:pa55word@host/a.jsonl", "http://host/a.jsonl"),
    ("http://me:p@55:word@host:8080/a.jsonl?v=2", "http://host:8080/a.jsonl?v=2"),
    ("https://ghp_token@host/a.jsonl", "https://host/a.jsonl"),
    ("ftp://me@host/a.jsonl", "ftp://host/a.jsonl"),
    ("https://host/a.jsonl?token=abcdef", "https://host/a.jsonl"),
    ("https://host/a.jsonl?v=2&api_key=abcdef&w=3", "https://host/a.jsonl?v=2&w=3"),
    (
        "https://b.s3.amazonaws.com/a.jsonl?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F1&X-Amz-Signature=ff",
        "https://b.s3.amazonaws.com/a.jsonl",
    ),
    ("https://x.blob.core.windows.net/c/a.jsonl?sv=2022&se=2030&sr=b&sig=ab%2Fc", "https://x.blob.core.windows.net/c/a.jsonl"),
    ("https://cdn/a.jsonl?Expires=1&Signature=abc&Key-Pair-Id=K", "https://cdn/a.jsonl"),
    ("s3://AKIA:se/cr+et@bucket/in/", "s3://bucket/in/"),
    ("s3://AKIA:secret@bucket/a@b.jsonl", "s3://bucket/a@b.jsonl"),
    ("zip://in/a.jsonl::https://me:pw@host/a.zip?token=x", "zip://in/a.jsonl::https://host/a.zip"),
]  # fmt: skip
PLAIN = [
    "/data/a@b:c",
    "http://host:8000/in/a@b.jsonl",
    "http://host/a.jsonl?version=3&author=me",
    "s3://bucket/in/a?.jsonl",
    "abfs://container@account.dfs.core.windows.net/in",
    "github://org:repo@main/in/a.jsonl",
    "hf://datasets/me/set@main/a.jsonl",
]


@pytest.mark.parametrize(("url", "public"), SPLIT)
def test_the_name_of_a_file_has_no_credentials_and_they_come_back_when_it_is_opened(url: str, public: str) -> None:
    (name,), options = split_urls("file_paths", [url], {"anon": False}, UsageError)
    assert name == public == without_credentials(url)
    assert has_credentials(url)
    opened, given = with_credentials(name, options)
    if url.startswith("s3://"):
        assert opened == public
        assert given == {"anon": False, "key": "AKIA", "secret": url[len("s3://AKIA:") : url.index("@")]}
    else:
        assert given == {"anon": False}
        assert sorted(opened.replace("?", "&").split("&")) == sorted(url.replace("?", "&").split("&"))


@pytest.mark.parametrize("url", PLAIN)
def test_what_only_looks_like_a_login_stays(url: str) -> None:
    assert split_urls("file_paths", [url], None, UsageError) == ([url], None)
    assert redacted(f"{url} does not exist") == f"{url} does not exist"


@pytest.mark.parametrize("url", [url for url, _ in SPLIT if "ftp://me@" not in url])
def test_no_text_shows_what_is_split_from_a_url(url: str) -> None:
    said = redacted(f"ClientResponseError: 403, url='{url}' in {url!r}, {url}")
    for secret in (
        "pa55word",
        "p@55",
        "ghp_token",
        "abcdef",
        "AK%2F1",
        "=ff",
        "ab%2Fc",
        "=abc",
        "se/cr",
        "secret",
        "pw@",
    ):
        assert secret not in said or secret not in url
    assert "403" in said


def test_files_below_a_folder_or_a_glob_are_opened_with_the_credentials_of_that() -> None:
    given = ["http://me:pass-word@host/in", "http://other/x/*.jsonl?token=t0k3n"]
    public, options = split_urls("file_paths", given, None, UsageError)
    assert public == ["http://host/in", "http://other/x/*.jsonl"]
    assert with_credentials("http://host/in/a.jsonl", options)[0] == "http://me:pass-word@host/in/a.jsonl"
    assert with_credentials("http://other/x/a.jsonl", options)[0] == "http://other/x/a.jsonl?token=t0k3n"
    assert with_credentials("http://third/x/a.jsonl", options) == ("http://third/x/a.jsonl", {})


def test_each_signed_url_of_a_list_keeps_its_own_signature() -> None:
    given = [f"https://host/{name}.jsonl?X-Amz-Signature={name * 8}" for name in "ab"]
    public, options = split_urls("file_paths", given, None, UsageError)
    assert public == ["https://host/a.jsonl", "https://host/b.jsonl"]
    assert [with_credentials(url, options)[0] for url in public] == given


@pytest.mark.parametrize("tail", ["?token=one {}?token=two", " {}"])
def test_two_files_that_only_credentials_tell_apart_are_refused(tail: str) -> None:
    given = [url.format("https://me:two@host/a") for url in ("https://me:one@host/a" + tail).split(" ")]
    with pytest.raises(UsageError, match="two different logins or signatures") as refused:
        JsonlReader(given)
    assert "one" not in str(refused.value).replace("read one per run", "")


def test_a_new_password_or_signature_is_no_change_of_the_pipeline() -> None:
    urls = ["http://me:first@host/a?token=x", "http://you:second@host/a?token=y", "http://host/a"]
    prints = [fingerprint([JsonlReader(url), JsonlWriter(f"s3://K{n}:s@b/out")], "1.0") for n, url in enumerate(urls)]
    assert prints[0] == prints[1] == prints[2]


def test_stages_carry_credentials_to_workers_and_show_none() -> None:
    reader = pickle.loads(pickle.dumps(JsonlReader("http://me:pass-word@host/a")))
    assert with_credentials(reader.file_paths, reader.storage_options)[0] == "http://me:pass-word@host/a"
    assert "pass-word" not in repr(reader)
    writer = JsonlWriter("s3://AKIAKEY:pass-word@bucket/out")
    assert writer.path == "s3://bucket/out"


@pytest.mark.parametrize(
    "options",
    [
        {"key": "pass-word"},
        {"secret": "pass-word"},
        {"token": "pass-word"},
        {"client_kwargs": {"aws_session_token": "pass-word"}},
        {"client_kwargs": {"headers": {"Authorization": "Bearer pass-word"}}},
        {"client_kwargs": {"auth": ("me", "pass-word")}},
        {"connection_string": "AccountKey=pass-word"},
    ],
)
def test_credentials_in_storage_options_are_redacted_wherever_they_appear(options: dict[str, Any]) -> None:
    remember({**options, "endpoint_url": "http://host", "username": "thresher"})
    said = redacted("thresher: http://host said no to pass-word and AccountKey=pass-word, also as pass%2Dword")
    assert "pass-word" not in said.replace("pass%2Dword", "")
    assert said.startswith("thresher: http://host said no to ***")


def test_credentials_of_the_environment_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    with_credentials("s3://bucket/a", None)
    assert redacted("signed with wJalrXUtnFEMI/K7MDENG.") == "signed with ***."


def test_our_errors_and_their_causes_tell_no_credentials() -> None:
    secret = "http://me:pass-word@host/a"

    def fail() -> None:
        try:
            raise FileNotFoundError(secret)
        except FileNotFoundError as error:
            raise InputError(f"{secret} does not exist") from error

    with (
        pytest.raises(InputError, match=r"^http://\*\*\*@host/a does not exist") as ours,
        redacted_errors(RunFailedError),
    ):
        fail()
    assert ours.value.__cause__ is None
    assert ours.value.__context__ is None
    with pytest.raises(RunFailedError, match=r"OSError: http://\*\*\*@host/a"), redacted_errors(RunFailedError):
        raise OSError(secret)
    assert message_of(OSError(secret)) == "http://***@host/a"


def test_an_uncaught_error_of_a_run_shows_no_password() -> None:
    code = (
        "from thresher import JsonlReader, JsonlWriter, Pipeline, SerialExecutor\n"
        "stages = [JsonlReader('http://me:pass-word@127.0.0.1:9/a.jsonl?token=s1gned-away'), JsonlWriter('never')]\n"
        "Pipeline('p', stages=stages).run(SerialExecutor(), progress='none')\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "InputError" in told.stderr
    assert "pass-word" not in told.stderr
    assert "s1gned-away" not in told.stderr
