# SPDX-License-Identifier: Apache-2.0
"""Errors for truncated and damaged files; the caller adds the file and the position."""

from __future__ import annotations


class DamagedInputError(Exception):
    """Nothing more can be read from a file; all data before was returned. Readers turn it into a failed record."""

    def __init__(self, error: str, message: str) -> None:
        """`error` is a short code such as `truncated`, `message` explains the problem and the next step."""
        super().__init__(message)
        self.error = error
        self.message = message


def truncated(size: int, what: str) -> DamagedInputError:
    """Return the error for a compressed file that ends too early."""
    return DamagedInputError(
        "truncated",
        f"the file ends at its byte {size} in the middle of its {what} data; "
        "the records before are read, the rest is missing: fetch the file again",
    )


def corrupt(position: int, what: str, reason: object) -> DamagedInputError:
    """Return the error for compressed data that cannot be unpacked, or whose checksum is wrong."""
    return DamagedInputError(
        "corrupt-input",
        f"the {what} data is damaged near byte {position} of the compressed file ({reason}); "
        "the records before are read, what follows may be wrong or missing: fetch the file again",
    )


def trailing_garbage(position: int, what: str) -> DamagedInputError:
    """Return the error for bytes after the compressed data that are not compressed data."""
    return DamagedInputError(
        "trailing-garbage",
        f"from byte {position} on, the compressed file holds something that is not {what} data; "
        "the records before are read, these bytes are skipped: fetch the file again or truncate it there",
    )
