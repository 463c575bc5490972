# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os

import pytest

from thresher.errors import OutputRefusedError, RunFailedError
from thresher.ledger.stores.errors import writing


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (errno.ENOSPC, RunFailedError, "the disk is full"),
        (errno.EDQUOT, RunFailedError, "quota"),
        (errno.EACCES, OutputRefusedError, "permission denied"),
        (errno.EROFS, OutputRefusedError, "read-only"),
        (errno.ENOTDIR, OutputRefusedError, "file is in the way"),
        (errno.EIO, RunFailedError, "Input/output error"),
    ],
)
def test_what_the_system_says_is_told_with_the_path_and_what_to_do(code, kind, said):
    with pytest.raises(kind) as failed, writing("the/folder"):
        raise OSError(code, os.strerror(code))

    message = str(failed.value)
    assert message.startswith("the/folder: ")
    assert said in message
    assert any(advice in message for advice in ("make room", "Choose another", "the same command goes on"))


def test_the_file_that_the_system_names_is_named():
    with pytest.raises(RunFailedError, match=r"the/folder/file\.jsonl"), writing("the/folder"):
        raise OSError(errno.ENOSPC, "No space left on device", "the/folder/file.jsonl")
