# SPDX-License-Identifier: Apache-2.0
"""Signatures of kernels, in Numba's notation but without importing Numba, which takes longer than loading all kernels:

    types.void(types.Array(types.uint8, 1, "C", readonly=True), types.int64[:, ::1])

`as_numba` converts them for Numba when something is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class _Result:
    """A type of result; calling it with the types of the parameters gives a signature."""

    def __call__(self, *parameters: Any) -> Signature:
        return Signature(self, parameters)


@dataclass(frozen=True)
class Scalar(_Result):
    """A number, or nothing."""

    name: str
    """Name of the type in Numba and NumPy."""

    def __getitem__(self, axes: slice | tuple[slice, ...]) -> Array:
        """Return the type of a writable array: `[::1]` has one dimension, `[:, ::1]` two."""
        return Array(self, len(axes) if isinstance(axes, tuple) else 1, "C")


@dataclass(frozen=True)
class Array(_Result):
    """A contiguous array of numbers in row-major order."""

    item: Scalar
    """Type of the items."""
    ndim: int
    """Number of dimensions."""
    layout: str
    """Always `C`."""
    readonly: bool = False
    """True if the kernel only reads it; writable arrays are accepted too."""


@dataclass(frozen=True)
class Items(_Result):
    """A tuple of values."""

    kinds: tuple[Any, ...]
    """Types of the values."""
    named: type | None = None
    """The class of a named tuple."""


@dataclass(frozen=True)
class Signature:
    """Types of the parameters and of the result of a kernel."""

    result: Any
    """Type of the result."""
    parameters: tuple[Any, ...]
    """Types of the parameters."""


class types:  # noqa: N801  # reads as Numba's module of that name
    """The types that kernels use, under Numba's names."""

    void = Scalar("void")
    boolean = Scalar("boolean")
    uint8, uint16, uint32, uint64 = Scalar("uint8"), Scalar("uint16"), Scalar("uint32"), Scalar("uint64")
    int16, int32, int64 = Scalar("int16"), Scalar("int32"), Scalar("int64")
    float32, float64 = Scalar("float32"), Scalar("float64")
    Array = Array

    @staticmethod
    def Tuple(kinds: Sequence[Any]) -> Items:  # noqa: N802  # Numba's name
        """Return the type of a tuple."""
        return Items(tuple(kinds))

    @staticmethod
    def NamedTuple(kinds: Sequence[Any], named: type) -> Items:  # noqa: N802  # Numba's name
        """Return the type of a named tuple."""
        return Items(tuple(kinds), named)


def as_numba(kind: Any) -> Any:
    """Convert a type or signature to Numba's; return one that is Numba's already unchanged."""
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
    if hasattr(kind, "return_type"):  # a signature of Numba's that may contain types of ours
        return kind.replace(args=as_numba(kind.args))
    return kind
