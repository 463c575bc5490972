# SPDX-License-Identifier: Apache-2.0
"""Text that a run folder stores: the recipe as YAML, and the hiding of secrets. The driver needs no YAML library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thresher.core.files.filesystem import is_url
from thresher.credentials import has_credentials, without_credentials
from thresher.errors import UsageError
from thresher.ledger.quarantine import encode_text

_SECRET = re.compile(r"key|secret|token|password|passwd|credential|sas|connection_string", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HIDDEN = "***"
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def masked(value: Any, inside_options: bool = False) -> Any:
    """Return `value` with the secrets in all `storage_options` replaced by `***`."""
    if isinstance(value, Mapping):
        return {
            key: _HIDDEN
            if inside_options and _SECRET.search(str(key)) and not isinstance(item, Mapping)
            else masked(item, inside_options or key == "storage_options")
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(item, inside_options) for item in value]
    return value


def yaml_text(value: Any) -> str:
    """Return plain data as block YAML; scalars are written as JSON, which every YAML reader accepts."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _entry(f"{_key(key)}:", item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(head: str, item: Any) -> list[str]:
    if isinstance(item, Mapping | list | tuple) and item:
        return [head, *("  " + line for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *("  " + line for line in rest)]


def _key(key: Any) -> str:
    text = str(key)
    return text if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED else _scalar(text)


def _scalar(value: Any) -> str:
    """Return JSON, with the few characters escaped that YAML does not allow or treats as a line end."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_text(value).decode("utf-8"))


# -- passwords in URLs ------------------------------------------------------------------------------------------------


_PASSWORD = re.compile(rb'(://[^/@:\s"]*:)[^/@\s"]+@')


def without_passwords(text: bytes) -> bytes:
    """Return `text` with the passwords in its URLs replaced by `***`."""
    return _PASSWORD.sub(rb"\1***@", text) if b"@" in text else text


def refuse_password(url: str | None) -> None:
    """Refuse a URL with credentials for a folder that has no storage options of its own."""
    if url is not None and is_url(url) and has_credentials(url):
        raise UsageError(
            f"{without_credentials(url)}: the URL holds a password or a key, which would be shown; "
            "give it in the storage_options of the writer"
        )
