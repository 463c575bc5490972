# SPDX-License-Identifier: Apache-2.0
"""Detection of addresses, numbers and secrets in a text; each finder yields the spans of one kind."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from thresher.kernels.edits.networks import NOT_PUBLIC

Span = tuple[int, int]
"""Start and end (exclusive) of a stretch of text."""

_LATIN = "À-ÖØ-öø-ɏ"
"""Accented letters of Latin alphabets. Letters of other scripts are not part of an address: in scripts without spaces,
words adjoin an address."""
_LOCAL = re.compile(rf"[A-Za-z0-9_{_LATIN}.%+'-]+")
_LABEL = rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}-]{{0,61}}[A-Za-z0-9{_LATIN}])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.){{1,10}}(?:xn--[A-Za-z0-9-]{{1,59}}|[A-Za-z{_LATIN}]{{2,24}})")
_LONGEST_LOCAL = 64

# Patterns start with the characters to find and then look behind, which makes the search for the start fast.
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
    """Yield e-mail addresses. Latin letters may be accented; the domain has a dot and ends with letters."""
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
    """Return the start of the part before the `@`; `at` if there is none."""
    backwards = text[first:at][::-1]
    found = _LOCAL.match(backwards)
    if found is None or backwards[0] == ".":
        return at
    return at - len(found[0].partition("..")[0].rstrip(".%+'-"))


def public_ips(text: str) -> Iterator[Span]:
    """Yield IPv4 and IPv6 addresses that are neither private nor reserved."""
    for found in _IPV4.finditer(text):
        if _is_public_v4(found[0]) and not _is_section_number(text, *found.span()):
            yield found.span()
    if "::" not in text and text.count(":") < 6:
        return
    yield from _public_ipv6(text)


def _public_ipv6(text: str) -> Iterator[Span]:
    """Yield IPv6 addresses. The search starts at the first `:` of each run: up to four digits before it, and what may
    follow."""
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
    """Return the start of the digits before a `:`; `None` if there are too many, or other characters adjoin them."""
    digits = _HEX_BEFORE.match(text[max(0, colon - 5) : colon][::-1])
    start = colon - (digits.end() if digits is not None else 0)
    if colon - start > 4 or (start and _TOUCHES.match(text[start - 1])):
        return None
    return start


def _is_section_number(text: str, start: int, end: int) -> bool:
    """Return True for section numbers: `4.2.13.3. Title` at the start of a line, and `Section 9.2.1.4`."""
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


_INTERNATIONAL = re.compile(r"\+(?<![0-9A-Za-z_+]\+)[0-9](?:[ .()/-]{0,2}[0-9]){6,14}(?![0-9A-Za-z_])")
_NORTH_AMERICAN = re.compile(
    r"[(1-9](?<![0-9A-Za-z_+.-].)"
    r"(?:(?<=1)[ .-](?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])|(?<=\()[2-9][0-9]{2}\) ?|(?<=[2-9])[0-9]{2}[ .-])"
    r"[2-9][0-9]{2}[ .-][0-9]{4}"
    r"(?![0-9A-Za-z_-]|\.[0-9])"
)

_DIGITS = re.compile(r"[0-9](?<![0-9A-Za-z_.][0-9])(?:[ -]?[0-9]){12,}(?![0-9A-Za-z_])")
_GROUP = re.compile(r"[0-9]+")
_SHORTEST_CARD, _LONGEST_CARD = 13, 19
_GROUPED = 4
"""Least number of digits per group of a card number, except for the last group; columns of short numbers do not match.
"""
_CARDS = (
    (re.compile(r"4"), (13, 16, 19)),  # Visa
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),  # Mastercard
    (re.compile(r"3[47]"), (15,)),  # American Express
    (re.compile(r"6011|64[4-9]|65"), (16, 17, 18, 19)),  # Discover
    (re.compile(r"62"), (16, 17, 18, 19)),  # UnionPay
    (re.compile(r"352[89]|35[3-8]"), (16,)),  # JCB
    (re.compile(r"30[0-5]|3[689]"), (14,)),  # Diners Club
)
"""Number prefixes of each issuer, and the numbers of digits in use."""

_IBAN = re.compile(r"([A-Z](?<![0-9A-Za-z][A-Z])[A-Z])[0-9]{2}(?= ?[A-Z0-9])")
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",  # codespell:ignore fo
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Countries by the length of their account numbers."""
_IBAN_LENGTHS = {country: length for length, countries in _IBAN_COUNTRIES.items() for country in countries.split()}


def phones(text: str) -> Iterator[Span]:
    """Yield phone numbers: international ones with a plus and 7 to 15 digits, and North American ones written in
    groups."""
    if "+" in text:
        for found in _INTERNATIONAL.finditer(text):
            yield found.span()
    for found in _NORTH_AMERICAN.finditer(text):
        yield found.span()


def cards(text: str) -> Iterator[Span]:
    """Yield card numbers: the prefix and length of an issuer, and a valid check digit (Luhn)."""
    for run in _DIGITS.finditer(text):
        groups = [(run.start() + group.start(), run.start() + group.end()) for group in _GROUP.finditer(run[0])]
        first = 0
        while first < len(groups):
            last = _card_end(text, groups, first)
            if last is not None:
                yield groups[first][0], groups[last][1]
            first = first + 1 if last is None else last + 1


def _card_end(text: str, groups: list[Span], first: int) -> int | None:
    """Return the last group of the longest card number that starts with group `first`; `None` if there is none."""
    digits, end, previous = "", None, 0
    if text[groups[first][0]] not in "23456":  # not a prefix of any issuer
        return None
    for index in range(first, len(groups)):
        start, stop = groups[index]
        if len(digits) + stop - start > _LONGEST_CARD:
            break
        if index > first and previous < _GROUPED:
            break
        previous = stop - start
        digits += text[start:stop]
        if len(digits) >= _SHORTEST_CARD and is_card(digits):
            end = index
    return end


def is_card(digits: str) -> bool:
    """Return True if the digits are a card number: the prefix and length of an issuer, and a valid check digit."""
    known = any(len(digits) in lengths and prefix.match(digits) for prefix, lengths in _CARDS)
    return known and _luhn(digits) == 0


def _luhn(digits: str) -> int:
    """Return the Luhn sum modulo ten, which is 0 for a valid number."""
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 * (value > 9)
    return total % 10


def ibans(text: str) -> Iterator[Span]:
    """Yield international bank account numbers: of the length of their country, with valid check digits."""
    done = 0
    for found in _IBAN.finditer(text):
        length = _IBAN_LENGTHS.get(found[1])
        if length is None or found.start() < done:
            continue
        end = _after_characters(text, found.start(), length)
        if end is not None and is_iban(text[found.start() : end].replace(" ", "")):
            done = end
            yield found.start(), end


def _after_characters(text: str, start: int, count: int) -> int | None:
    """Return the position after `count` letters and digits, with single spaces allowed between them; `None` if another
    letter or digit follows directly."""
    index = start
    while count:
        if index >= len(text):
            return None
        character = text[index]
        if character == " " and text[index - 1] != " ":
            index += 1
            continue
        if not (character.isascii() and (character.isdigit() or character.isupper())):
            return None
        index, count = index + 1, count - 1
    follows = text[index : index + 1]
    return None if follows.isascii() and follows.isalnum() else index


def is_iban(written: str) -> bool:
    """Return True if the check digits are valid: rotated, with letters as numbers, the number is 1 modulo 97."""
    turned = written[4:] + written[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


_TOKENS = {
    "AWS": ("AKIA", "ASIA"),
    "GitHub": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "Slack": ("xox", "xapp-"),
    "Google": ("AIza",),
    "JSON Web Token": ("eyJ",),
}
"""Prefixes of tokens; a pattern is tried only on texts that contain one of its prefixes."""
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
    """Yield AWS access keys, GitHub and Slack tokens, Google keys, JSON Web Tokens, and private key blocks."""
    for service, beginnings in _TOKENS.items():
        if any(beginning in text for beginning in beginnings):
            for found in _PATTERNS[service].finditer(text):
                yield found.span()
    if "-----BEGIN" in text:
        yield from _private_keys(text)


def _private_keys(text: str) -> Iterator[Span]:
    """Yield each block from its first line to its last; for a block without an end, the part that looks like a key."""
    ends = True
    done = 0
    while (begin := _BEGIN.search(text, done)) is not None:
        end = _END.search(text, begin.end()) if ends else None
        ends = end is not None
        following = _BODY.match(text, begin.end()) if end is None else end
        done = following.end() if following is not None else begin.end()
        while end is None and text[done - 1].isspace():  # trailing white space is not part of the key
            done -= 1
        yield begin.start(), done
