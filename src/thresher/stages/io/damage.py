# SPDX-License-Identifier: Apache-2.0
"""What is said when a file breaks off or turns out to be damaged; which file, and where in it, is said elsewhere."""

from __future__ import annotations


class DamagedInputError(Exception):
    """Nothing more can be read from a file; all before was given. Never leaves a reader: it becomes a failed record."""

    def __init__(self, error: str, message: str) -> None:
        """`error` is a short word such as `truncated`, `message` says what is wrong and what to do."""
        super().__init__(message)
        self.error = error
        self.message = message


def truncated(size: int, what: str) -> DamagedInputError:
    """A packed file that ends too early."""
    return DamagedInputError(
        "truncated",
        f"the file ends at its byte {size} in the middle of its {what} data; "
        "the records before are read, the rest is missing: fetch the file again",
    )


def corrupt(position: int, what: str, reason: object) -> DamagedInputError:
    """Packed data that cannot be unpacked, or whose checksum is wrong."""
    return DamagedInputError(
        "corrupt-input",
        f"the {what} data is damaged near byte {position} of the packed file ({reason}); "
        "the records before are read, what follows may be wrong or missing: fetch the file again",
    )


def trailing_garbage(position: int, what: str) -> DamagedInputError:
    """Bytes behind packed data that are none."""
    return DamagedInputError(
        "trailing-garbage",
        f"from byte {position} on the packed file holds something that is not {what} data; "
        "the records before are read, these bytes are passed over: fetch the file again or cut it there",
    )
