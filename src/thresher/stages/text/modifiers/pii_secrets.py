# SPDX-License-Identifier: Apache-2.0
"""Where keys and tokens stand in a text that open something: those whose form says what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thresher.stages.text.modifiers.pii_addresses import Span

_TOKENS = {
    "AWS": ("AKIA", "ASIA"),
    "GitHub": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "Slack": ("xox", "xapp-"),
    "Google": ("AIza",),
    "JSON Web Token": ("eyJ",),
}
"""What a token begins with; no pattern is tried on a text without it."""
_PATTERNS = {
    "AWS": re.compile(r"(?<![A-Za-z0-9])A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "GitHub": re.compile(
        r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255})(?![A-Za-z0-9_])"
    ),
    "Slack": re.compile(r"(?<![A-Za-z0-9_-])(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}(?![A-Za-z0-9-])"),
    "Google": re.compile(r"(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    "JSON Web Token": re.compile(
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?(?![A-Za-z0-9_-])"
    ),
}
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(r"[A-Za-z0-9+/=\s]*")


def secrets(text: str) -> Iterator[Span]:
    """Access keys of AWS, tokens of GitHub and Slack, keys of Google, JSON Web Tokens, and blocks of private keys."""
    for service, beginnings in _TOKENS.items():
        if any(beginning in text for beginning in beginnings):
            for found in _PATTERNS[service].finditer(text):
                yield found.span()
    if "-----BEGIN" in text:
        yield from _private_keys(text)


def _private_keys(text: str) -> Iterator[Span]:
    """From the first line of a block to its last; of a block without an end what looks like the key."""
    ends = True
    done = 0
    while (begin := _BEGIN.search(text, done)) is not None:
        end = _END.search(text, begin.end()) if ends else None
        ends = end is not None
        following = _BODY.match(text, begin.end()) if end is None else end
        done = following.end() if following is not None else begin.end()
        while end is None and text[done - 1].isspace():  # white space behind the key is not part of it
            done -= 1
        yield begin.start(), done
