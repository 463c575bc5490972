# SPDX-License-Identifier: Apache-2.0
"""What kernels take and give, said as Numba says it and without importing Numba, which takes longer than all kernels
take to load:

    types.void(types.Array(types.uint8, 1, "C", readonly=True), types.int64[:, ::1])

`as_numba` makes Numba's own of it, where something is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class _Result:
    """What a kernel may give: called with what it takes, the whole signature."""

    def __call__(self, *parameters: Any) -> Signature:
        return Signature(self, parameters)


@dataclass(frozen=True)
class Scalar(_Result):
    """A number, or nothing."""

    name: str
    """As Numba and NumPy call it."""

    def __getitem__(self, axes: slice | tuple[slice, ...]) -> Array:
        """An array of them that may be written: `[::1]` has one dimension, `[:, ::1]` two."""
        return Array(self, len(axes) if isinstance(axes, tuple) else 1, "C")


@dataclass(frozen=True)
class Array(_Result):
    """Numbers one behind the other, the last dimension first."""

    item: Scalar
    """What it holds."""
    ndim: int
    """How many dimensions it has."""
    layout: str
    """Always `C`."""
    readonly: bool = False
    """Whether the kernel only reads it; then one that may be written fits too."""


@dataclass(frozen=True)
class Items(_Result):
    """Several values in a tuple."""

    kinds: tuple[Any, ...]
    """What each of them is."""
    named: type | None = None
    """The class of a named tuple."""


@dataclass(frozen=True)
class Signature:
    """What a kernel takes and gives."""

    result: Any
    """What it gives."""
    parameters: tuple[Any, ...]
    """What it takes."""


class types:  # noqa: N801  # reads as Numba's module of that name
    """The kinds that kernels know, by the names that Numba has for them."""

    void = Scalar("void")
    boolean = Scalar("boolean")
    uint8, uint16, uint32, uint64 = Scalar("uint8"), Scalar("uint16"), Scalar("uint32"), Scalar("uint64")
    int32, int64 = Scalar("int32"), Scalar("int64")
    float64 = Scalar("float64")
    Array = Array

    @staticmethod
    def Tuple(kinds: Sequence[Any]) -> Items:  # noqa: N802  # Numba's name
        """A tuple of values of these kinds."""
        return Items(tuple(kinds))

    @staticmethod
    def NamedTuple(kinds: Sequence[Any], named: type) -> Items:  # noqa: N802  # Numba's name
        """A named tuple of values of these kinds."""
        return Items(tuple(kinds), named)


def as_numba(kind: Any) -> Any:
    """The same for Numba; what is Numba's own already stays as it is."""
    from numba import types as numba_types

    made: Any = numba_types
    if isinstance(kind, Signature):
        return as_numba(kind.result)(*map(as_numba, kind.parameters))
    if isinstance(kind, Scalar):
        return getattr(made, kind.name)
    if isinstance(kind, Array):
        return made.Array(as_numba(kind.item), kind.ndim, kind.layout, readonly=kind.readonly)
    if isinstance(kind, Items):
        kinds = tuple(map(as_numba, kind.kinds))
        return made.Tuple(kinds) if kind.named is None else made.NamedTuple(kinds, kind.named)
    if isinstance(kind, tuple):
        return tuple(map(as_numba, kind))
    if hasattr(kind, "return_type"):  # a signature of Numba's, in which kinds of ours may be
        return kind.replace(args=as_numba(kind.args))
    return kind
