# SPDX-License-Identifier: Apache-2.0
"""UrlBlocklistFilter drops records by their address, and says which list is the reason."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.errors import InputError, UsageError
from thresher.stages.text import index_file
from thresher.stages.text.rules.web.url_blocklist import UrlBlocklistFilter, host_of, plain_url


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(index_file, "cache_folder", lambda: str(folder))


def list_of(folder: Path, name: str, *entries: str) -> str:
    (folder / name).write_text("\n".join(entries) + "\n")
    return str(folder / name)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://bad.example/", ("domain", "bad.example")),
        ("http://www.Bad.Example:8080/x", ("domain", "bad.example")),
        ("https://user:word@a.b.bad.example.", ("domain", "bad.example")),
        ("bad.example/page", ("domain", "bad.example")),
        ("https://notbad.example/", None),
        ("https://bad.example.org/", None),
        ("https://sub.fine.example/", ("domain", "sub.fine.example")),
        ("https://fine.example/", None),
        ("http://10.0.0.7/x", ("domain", "10.0.0.7")),
        ("https://fine.example/Page?q=1#part", ("url", "fine.example/Page?q=1")),
        ("//FINE.example/Page?q=1", ("url", "fine.example/Page?q=1")),
        ("https://fine.example/page?q=1", None),
        ("https://fine.example/dir", ("url", "fine.example/dir")),
        ("https://fine.example/Spam-and-eggs", ("banned-word", "spam")),
        ("https://fine.example/spammer", None),
        ("https://fine.example/hot/deal", ("soft-word", "deal hot")),
        ("https://fine.example/hot/hot", None),
        ("https://fine.example/c-a.s_i-no", ("banned-subword", "casino")),
        ("", None),
        ("not an address", None),
    ],
)
def test_the_reason_is_the_first_list_that_fits(url: str, reason: tuple[str, str] | None, tmp_path: Path) -> None:
    stage = UrlBlocklistFilter(
        domains=list_of(tmp_path, "domains", "# remark", "", "bad.example", "*.sub.fine.example", "10.0.0.7"),
        urls=list_of(tmp_path, "urls", "http://fine.example/Page?q=1", "fine.example/dir/"),
        banned_words=list_of(tmp_path, "words", "Spam"),
        soft_banned_words=list_of(tmp_path, "soft", "hot", "deal"),
        banned_subwords=list_of(tmp_path, "subwords", "casino"),
    )
    assert stage.reasons([url]) == [reason]


def test_records_are_dropped_under_the_reason_and_those_without_an_address_stay(tmp_path: Path) -> None:
    stage = UrlBlocklistFilter(
        domains=list_of(tmp_path, "d", "bad.example"), banned_words=list_of(tmp_path, "w", "spam"), url_field="u"
    )
    records: list[dict[str, Any]] = [
        {"u": "http://x.example/spam"},
        {"u": "http://bad.example"},
        {"u": None},
        {"text": "no address"},
        {"u": 5},
        {"u": "http://x.example/"},
        {"u": "http://spam.bad.example"},
    ]
    assert written(stage.process(batch_of([]))) == []
    made = stage.process(batch_of(records))
    assert written(made) == records[2:6]
    assert [(rows.rule, rows.scores, written(rows.batch)) for rows in made._dropped] == [
        ("domain", ["bad.example", "bad.example"], [records[1], records[6]]),
        ("banned-word", ["spam"], [records[0]]),
    ]


def test_lists_may_be_packed_and_several(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a.example\r\nb.example"))
    (tmp_path / "b.zst").write_bytes(zstandard.compress(b"c.example\n"))
    stage = UrlBlocklistFilter(domains=[str(tmp_path / "a.gz"), str(tmp_path / "b.zst")])
    found = stage.reasons([f"http://{name}.example" for name in "abcd"])
    assert [reason is not None for reason in found] == [True, True, True, False]


def test_many_entries_take_eight_bytes_each(tmp_path: Path) -> None:
    stage = UrlBlocklistFilter(domains=list_of(tmp_path, "d", *(f"site{n}.example" for n in range(20_000))))
    assert stage._hashes().arrays["domains"].nbytes == 8 * 20_000
    assert stage.reasons(["http://www.site19999.example", "http://site20000.example"]) == [
        ("domain", "site19999.example"),
        None,
    ]


@given(st.text(max_size=40))
def test_any_text_has_a_host_and_a_plain_form(url: str) -> None:
    assert host_of(url) == host_of(url).lower()
    assert plain_url("http://host/" + url.strip("#")) == plain_url("HTTPS://HOST/" + url.strip("#"))


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://[2001:DB8::1]:80/x", "[2001:db8::1]"),
        ("HTTPS://Example.ORG?x", "example.org"),
        ("example.org:443", "example.org"),
        ("ftp://a@b@example.org/", "example.org"),
        ("http:///path", "path"),
        ("http://", ""),
    ],
)
def test_hosts_are_found_in_odd_addresses(url: str, host: str) -> None:
    assert host_of(url) == host


def test_a_missing_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no list is given"):
        UrlBlocklistFilter()
    with pytest.raises(InputError, match="nowhere"):
        UrlBlocklistFilter(domains=str(tmp_path / "nowhere")).setup()
