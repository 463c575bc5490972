# SPDX-License-Identifier: Apache-2.0
"""Passwords in URLs (`ftp://name:password@host/`): refused where a run writes, hidden in what it keeps of its input."""

from __future__ import annotations

import re

from thresher.core.filesystem import is_url
from thresher.errors import UsageError

_PASSWORD = re.compile(rb'(://[^/@:\s"]*:)[^/@\s"]+@')


def without_passwords(text: bytes) -> bytes:
    """`text` with the passwords in its URLs replaced by `***`."""
    return _PASSWORD.sub(rb"\1***@", text) if b"@" in text else text


def refuse_password(url: str | None) -> None:
    """Refuse a URL with a password: the names of outputs stand in messages, reports and the run folder."""
    if url is not None and is_url(url) and _PASSWORD.search(url.encode("utf-8", "surrogateescape")):
        shown = without_passwords(url.encode("utf-8", "surrogateescape")).decode("utf-8", "replace")
        raise UsageError(f"{shown}: the URL holds a password, which would be shown; give it in storage_options")
