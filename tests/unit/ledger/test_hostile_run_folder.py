# SPDX-License-Identifier: Apache-2.0
"""A run folder may come from anywhere: what it says never leads out of its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from thresher.errors import OutputRefusedError
from thresher.ledger.folder.output_files import remove_replaced
from thresher.ledger.records import CommitRecord, OutputFile, encode
from thresher.ledger.stores.store import LocalStore, escapes_folder

OUTSIDE = ["../precious", "/etc/hostname", "a/../../precious", "..", "x\\y", "a\0b"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_store_follows_a_name_that_leads_out(tmp_path: Path, name: str) -> None:
    assert escapes_folder(name)
    with pytest.raises(OutputRefusedError, match="not below its folder"):
        LocalStore(str(tmp_path)).remove(name)


def test_starting_over_removes_nothing_outside_the_output_folder(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / "out").mkdir()
    folder = tmp_path / "out" / "_thresher"
    record = CommitRecord("u", 1, outputs=(OutputFile("../precious", 7, 1, "0" * 64),))
    (folder / "old" / "r" / "ledger").mkdir(parents=True)
    (folder / "old" / "r" / "ledger" / "000001.jsonl").write_bytes(encode(record) + b"\n")
    with pytest.raises(OutputRefusedError, match=r"'\.\./precious'"):
        remove_replaced(LocalStore(str(folder)), LocalStore(str(tmp_path / "out")), None, "old/r")
    assert precious.read_text() == "keep me"
