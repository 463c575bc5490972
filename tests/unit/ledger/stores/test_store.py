# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from thresher.errors import OutputRefusedError
from thresher.ledger.stores.store import LocalStore


def test_the_root_of_a_store_is_never_removed(tmp_path):
    store = LocalStore(str(tmp_path))
    store.write("kept", b"1")
    with pytest.raises(AssertionError, match="never removed"):
        store.remove_tree("")
    assert store.read("kept") == b"1"


@pytest.mark.parametrize("name", ["..", "/", "a/../.."])
def test_nothing_beside_a_store_is_removed(tmp_path, name):
    store = LocalStore(str(tmp_path / "store"))
    (tmp_path / "kept").write_bytes(b"1")
    with pytest.raises(OutputRefusedError):
        store.remove_tree(name)
    assert (tmp_path / "kept").exists()
