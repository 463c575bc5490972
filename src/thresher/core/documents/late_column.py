# SPDX-License-Identifier: Apache-2.0
"""Columns of texts that stages hold in a form of their own, and that become Arrow, or lines, when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from thresher.core.documents.records import RawLines, Rows


class LateColumn(Protocol):
    """One text for each record of a batch."""

    def take(self, index: Rows) -> LateColumn:
        """The texts of some of the records."""
        ...

    def to_arrow(self) -> pa.Array:
        """The texts as Arrow's large strings."""
        ...

    def patch_lines(self, raw: RawLines, name: str, changed: npt.NDArray[Any] | None) -> list[bytes | memoryview]:
        """The lines of the records, with these texts as the values of `name` where they are changed (`None`: in all of
        them), byte for byte as `json_records.patch_lines` writes them."""
        ...


LateColumns = dict[str, LateColumn]
"""By name. Never changed in place: batches share it."""


def taken(late: LateColumns, index: Rows) -> LateColumns:
    """The same columns of some of the records."""
    return {name: column.take(index) for name, column in late.items()}


def without(late: LateColumns, name: str) -> LateColumns:
    """All columns but one."""
    return {other: column for other, column in late.items() if other != name}
