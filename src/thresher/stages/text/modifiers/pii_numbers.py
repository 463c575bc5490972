# SPDX-License-Identifier: Apache-2.0
"""Where phone numbers, card numbers and account numbers stand in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thresher.stages.text.modifiers.pii_addresses import Span

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
"""Digits of a card number stand together by four or more, but for the last ones; columns of short numbers are none."""
_CARDS = (
    (re.compile(r"4"), (13, 16, 19)),  # Visa
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),  # Mastercard
    (re.compile(r"3[47]"), (15,)),  # American Express
    (re.compile(r"6011|64[4-9]|65"), (16, 17, 18, 19)),  # Discover
    (re.compile(r"62"), (16, 17, 18, 19)),  # UnionPay
    (re.compile(r"352[89]|35[3-8]"), (16,)),  # JCB
    (re.compile(r"30[0-5]|3[689]"), (14,)),  # Diners Club
)
"""How the numbers of issuers begin, and how many digits they have."""

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
"""Characters of an account number, and the countries whose numbers have so many."""
_IBAN_LENGTHS = {country: length for length, countries in _IBAN_COUNTRIES.items() for country in countries.split()}


def phones(text: str) -> Iterator[Span]:
    """Phone numbers: international ones with a plus, 7 to 15 digits; and North American ones written in groups."""
    if "+" in text:
        for found in _INTERNATIONAL.finditer(text):
            yield found.span()
    for found in _NORTH_AMERICAN.finditer(text):
        yield found.span()


def cards(text: str) -> Iterator[Span]:
    """Card numbers: the digits of an issuer, as many as it uses, and a check digit that is right (Luhn)."""
    for run in _DIGITS.finditer(text):
        groups = [(run.start() + group.start(), run.start() + group.end()) for group in _GROUP.finditer(run[0])]
        first = 0
        while first < len(groups):
            last = _card_end(text, groups, first)
            if last is not None:
                yield groups[first][0], groups[last][1]
            first = first + 1 if last is None else last + 1


def _card_end(text: str, groups: list[Span], first: int) -> int | None:
    """The last group of the card number that begins with a group; the longest, where there are several."""
    digits, end, previous = "", None, 0
    if text[groups[first][0]] not in "23456":  # no issuer's
        return None
    for place in range(first, len(groups)):
        start, stop = groups[place]
        if len(digits) + stop - start > _LONGEST_CARD:
            break
        if place > first and previous < _GROUPED:
            break
        previous = stop - start
        digits += text[start:stop]
        if len(digits) >= _SHORTEST_CARD and is_card(digits):
            end = place
    return end


def is_card(digits: str) -> bool:
    """Whether digits are a card number: an issuer's, and with the right check digit."""
    known = any(len(digits) in lengths and prefix.match(digits) for prefix, lengths in _CARDS)
    return known and _luhn(digits) == 0


def _luhn(digits: str) -> int:
    """The sum that must be a multiple of ten, modulo ten."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 * (value > 9)
    return total % 10


def ibans(text: str) -> Iterator[Span]:
    """International bank account numbers: as long as those of their country, with the right check digits."""
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
    """The place behind `count` letters and digits, single spaces between them left out; no other may follow at once."""
    place = start
    while count:
        if place >= len(text):
            return None
        character = text[place]
        if character == " " and text[place - 1] != " ":
            place += 1
            continue
        if not (character.isascii() and (character.isdigit() or character.isupper())):
            return None
        place, count = place + 1, count - 1
    follows = text[place : place + 1]
    return None if follows.isascii() and follows.isalnum() else place


def is_iban(written: str) -> bool:
    """Whether the check digits are right: the number, turned round and letters as numbers, leaves 1 modulo 97."""
    turned = written[4:] + written[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1
