# SPDX-License-Identifier: Apache-2.0
"""Names of column types in recipes. They are validated without Arrow, which the driver does not load."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 float double string large_string binary "
    "large_binary date32 date64 json timestamp[s] timestamp[ms] timestamp[us] timestamp[ns]"
)
TYPE_NAMES = frozenset(_PLAIN.split())
"""Legal names; `list<…>` around one of them is also legal."""
_LIST = re.compile(r"list<(.+)>")
_OTHER_NAMES = {"float": "float32", "double": "float64"}


def is_type_name(name: str) -> bool:
    """Return True if a name is a legal type."""
    inner = _LIST.fullmatch(name)
    return name in TYPE_NAMES or (inner is not None and is_type_name(inner[1]) and "json" not in name)


def parse_type(name: str) -> pa.DataType:
    """Return the type of a legal name."""
    import pyarrow as pa

    from thresher.core.documents.json_records import json_type

    inner = _LIST.fullmatch(name)
    if inner is not None:
        return pa.list_(pa.field("element", parse_type(inner[1])))
    return json_type() if name == "json" else pa.type_for_alias(_OTHER_NAMES.get(name, name))
