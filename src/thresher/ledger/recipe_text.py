# SPDX-License-Identifier: Apache-2.0
"""A recipe as YAML text, without the secrets. Small enough that the driver need not load a YAML library for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thresher.ledger.quarantine import encode_text

_SECRET = re.compile(r"key|secret|token|password|passwd|credential|sas|connection_string", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_HIDDEN = "***"
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def masked(value: Any, inside_options: bool = False) -> Any:
    """`value` with the secrets in all `storage_options` replaced by `***`."""
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
    """Plain data as block YAML; scalars are written as JSON, which every YAML reader takes."""
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
    """JSON, with the few characters escaped that YAML does not allow or takes for the end of a line."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode_text(value).decode("utf-8"))
