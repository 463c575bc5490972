# SPDX-License-Identifier: Apache-2.0
"""Where e-mail addresses and public IP addresses stand in a text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from thresher.kernels.networks import NOT_PUBLIC

Span = tuple[int, int]
"""From, and up to but not including: places in a text."""

_LATIN = "À-ÖØ-öø-ɏ"
"""Letters with marks, of Latin alphabets. Others are no part of an address: in scripts without spaces the words around
an address touch it."""
_LOCAL = re.compile(rf"[A-Za-z0-9_{_LATIN}.%+'-]+")
_LABEL = rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}-]{{0,61}}[A-Za-z0-9{_LATIN}])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.){{1,10}}(?:xn--[A-Za-z0-9-]{{1,59}}|[A-Za-z{_LATIN}]{{2,24}})")
_LONGEST_LOCAL = 64

# Patterns begin with what they look for, and then look behind it: so the search for their beginning is fast.
_IPV4 = re.compile(r"[0-9](?<![0-9A-Za-z_.][0-9])[0-9]{0,2}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z_]|\.[0-9])")
_SECTIONS = ("section", "chapter", "appendix", "version", "§")
_TITLE = re.compile(r"\. +[^\W\d_]")
_IPV6_REST = re.compile(r":[0-9A-Fa-f:.]+")
_HEX_BEFORE = re.compile(r"[0-9A-Fa-f]*")
_TOUCHES = re.compile(r"[0-9A-Za-z_:.]")
_LONGEST_IPV6 = 45

_NOT_PUBLIC_V4 = tuple(map(ipaddress.IPv4Network, NOT_PUBLIC))
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(map(ipaddress.IPv6Network, ["2001::/23", "2001:db8::/32", "3fff::/20"]))


def emails(text: str) -> Iterator[Span]:
    """E-mail addresses. Letters of Latin alphabets may have marks; the domain has a dot and ends with letters."""
    done = 0
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        start = _local_start(text, max(done, at - _LONGEST_LOCAL), at) if domain is not None else at
        if domain is not None and start < at:
            done = domain.end()
            yield start, done
        at = text.find("@", max(done, at + 1))


def _local_start(text: str, first: int, at: int) -> int:
    """Where the part before the `@` begins; `at` where there is none."""
    backwards = text[first:at][::-1]
    found = _LOCAL.match(backwards)
    if found is None or backwards[0] == ".":
        return at
    return at - len(found[0].partition("..")[0].rstrip(".%+'-"))


def public_ips(text: str) -> Iterator[Span]:
    """IP addresses, version 4 and 6, that are neither private nor kept for another purpose."""
    for found in _IPV4.finditer(text):
        if _is_public_v4(found[0]) and not _numbers_a_section(text, *found.span()):
            yield found.span()
    if "::" not in text and text.count(":") < 6:
        return
    yield from _public_ipv6(text)


def _public_ipv6(text: str) -> Iterator[Span]:
    """From each `:` that is the first of its run: up to four digits before it, and all that may follow."""
    colon = text.find(":")
    while colon >= 0:
        run = _IPV6_REST.match(text, colon)
        end = colon + 1 if run is None else run.end()
        start = _ipv6_start(text, colon)
        if run is not None and start is not None:
            if end < len(text) and _TOUCHES.match(text[end]):  # a word follows: the address ends at a full stop, or not
                end = max(colon, text.rfind(".", colon, end))
            written = text[start:end].rstrip(".")
            written = written if written.endswith("::") else written.removesuffix(":")
            if len(written) <= _LONGEST_IPV6 and _is_public_v6(written):
                yield start, start + len(written)
        colon = text.find(":", max(end, colon + 1))


def _ipv6_start(text: str, colon: int) -> int | None:
    """Where the digits before a `:` begin; `None` where they are too many, or something touches them."""
    digits = _HEX_BEFORE.match(text[max(0, colon - 5) : colon][::-1])
    start = colon - (digits.end() if digits is not None else 0)
    if colon - start > 4 or (start and _TOUCHES.match(text[start - 1])):
        return None
    return start


def _numbers_a_section(text: str, start: int, end: int) -> bool:
    """`4.2.13.3. Title` at the start of a line, and `Section 9.2.1.4`: these numbers are no addresses."""
    before = text[max(0, start - 10) : start]
    if before.rstrip().lower().endswith(_SECTIONS):
        return True
    begins_line = (start <= 10 or "\n" in before) and not before.rpartition("\n")[2].strip()
    return begins_line and _TITLE.match(text, end) is not None


def _is_public_v4(written: str) -> bool:
    try:
        address = ipaddress.IPv4Address(written)
    except ValueError:
        return False
    return not any(address in network for network in _NOT_PUBLIC_V4)


def _is_public_v6(written: str) -> bool:
    try:
        address = ipaddress.IPv6Address(written)
    except ValueError:
        return False
    if address.ipv4_mapped is not None:
        return not any(address.ipv4_mapped in network for network in _NOT_PUBLIC_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
