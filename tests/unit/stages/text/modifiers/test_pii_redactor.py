# SPDX-License-Identifier: Apache-2.0
"""What is replaced, what is left alone, and that the compiled scan sees all that the plain definition finds."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from tests.unit.stages.text.modifiers.any_text import as_bytes
from thresher.core.tally import context_of
from thresher.errors import MissingPackageError, UsageError
from thresher.kernels.edits.pii import KINDS, kinds_in
from thresher.stages.text.modifiers.pii_finders import _luhn
from thresher.stages.text.modifiers.pii_redactor import FINDERS, PiiRedactor
from thresher.stages.text.modify import Modify

redact = PiiRedactor().modify_document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to john.doe+x@mail.example.co.uk.", "write to <EMAIL>."),
        ("<a@b.org>, 'c@d.de' (e_f-g@h-i.museum)", "<<EMAIL>>, '<EMAIL>' (<EMAIL>)"),
        ("jürgen.müller@straße.de", "<EMAIL>"),
        ("请联系john@example.com谢谢", "请联系<EMAIL>谢谢"),
        ("http://x.org/?mail=me@x.org&b", "http://x.org/?mail=<EMAIL>&b"),
        ("a@b, @user, a@b.c, a@@b.org, .@b.org, a.@b.org", "a@b, @user, a@b.c, a@@b.org, .@b.org, a.@b.org"),
        ("a@b.org@c.org", "<EMAIL>@c.org"),
    ],
)
def test_email(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 8.8.8.8:53, 93.184.216.34.", "from <IP>:53, <IP>."),
        ("10.0.0.1 192.168.1.1 127.0.0.1 172.16.5.4 169.254.1.1", None),
        ("203.0.113.9 100.64.0.1 224.0.0.1 255.255.255.255 0.0.0.0", None),
        ("1.2.3 1.2.3.4.5 v1.2.3.4 300.1.1.1 1.2.3.4a 08.8.8.8", None),
        ("see\n4.2.13.3. Title, Section 9.2.1.4, version 8.8.4.4", None),
        ("8.8.8.8. Title\nask 8.8.8.8. Then\n8.8.8.8 example.org", "8.8.8.8. Title\nask <IP>. Then\n<IP> example.org"),
        ("2001:4860:4860::8888 and [2606:4700::1111]", "<IP> and [<IP>]"),
        ("2a00:1450:4001:81b:0:0:0:200e.", "<IP>."),
        ("::1 fe80::1 fd00::1 2001:db8::1 :: 12:30:45 std::vector a::b", None),
        ("::ffff:8.8.8.8 ::ffff:10.0.0.1", "<IP> ::ffff:10.0.0.1"),
    ],
)
def test_public_ip(text: str, expected: str | None) -> None:
    assert redact(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+49 (0) 30 901820, +1-212-555-0100", "<PHONE>, <PHONE>"),
        ("call (212) 555-0123 or 212.555.0123 or 1-800-555-0199", "call <PHONE> or <PHONE> or <PHONE>"),
        ("2019-05-12 10:30, 1234567890, 212-555-01234, +12, 112-555-0123", None),
        ("1.212.555.0123.4 and 212-555-0123-9", None),
    ],
)
def test_phone(text: str, expected: str | None) -> None:
    assert redact(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4111 1111 1111 1111, 5500-0000-0000-0004", "<CARD>, <CARD>"),
        ("378282246310005 30569309025904 6011111111111117", "<CARD> <CARD> <CARD>"),
        ("no 1234 4111 1111 1111 1111 5", "no 1234 <CARD> 5"),
        ("2a 33 24 22 00 00 00 00 14 00 00 00 44, 41 11 11 11 11 11 11 11", None),
        ("4111 1111 1111 1112 and 1111111111111117", None),
        ("x4111111111111111 and 41111111111111110000", None),
    ],
)
def test_card_numbers_have_an_issuer_and_a_check_digit(text: str, expected: str | None) -> None:
    assert redact(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DE89370400440532013000 GB29 NWBK 6016 1331 9268 19", "<IBAN> <IBAN>"),
        ("ES91 2100 0418 4502 0005 1332 BANK", "<IBAN> BANK"),
        ("NO9386011117947.", "<IBAN>."),
        ("DE89370400440532013001 XX89370400440532013000 DE893704004405320130001", None),
    ],
)
def test_account_numbers_have_the_length_of_their_country_and_check_digits(text: str, expected: str | None) -> None:
    assert redact(text) == (text if expected is None else expected)


PRIVATE_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow==\nabc/+\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id=AKIAIOSFODNN7EXAMPLE;", "id=<KEY>;"),
        ("ghp_" + "a1B2" * 9, "<KEY>"),
        ("github_pat_" + "a1_B2" * 10, "<KEY>"),
        ("token xoxb-123456789012-abcdefGHIJ", "token <KEY>"),
        ("key: AIza" + "Sy-_B" * 7, "key: <KEY>"),
        (f"Bearer {JWT}", "Bearer <KEY>"),
        (f"a\n{PRIVATE_KEY}\nb", "a\n<KEY>\nb"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n\nText goes on, here.", "<KEY>, here."),
        ("-----BEGIN PUBLIC KEY-----\nMIIE\n-----END PUBLIC KEY-----", None),
        ("AKIA is a prefix, ghp_ too, xoxo, eyJ.eyJ, AIza", None),
    ],
)
def test_keys_and_tokens(text: str, expected: str | None) -> None:
    assert redact(text) == (text if expected is None else expected)


def test_of_two_that_overlap_the_one_looked_for_first_counts() -> None:
    assert PiiRedactor().find("4111-1111-1111-1111@example.org") == [(0, 31, "email")]


def test_kinds_and_replacements_can_be_chosen() -> None:
    only = PiiRedactor(kinds=["email"], replacements={"email": "[mail]"})
    assert only.modify_document("a@b.org 8.8.8.8") == "[mail] 8.8.8.8"
    assert only.take_counts() == {"replaced email": 1}
    assert only.take_counts() == {}


def test_the_stage_counts_by_kind_and_leaves_other_records_as_they_came() -> None:
    stage = Modify(PiiRedactor())
    batch = batch_of([{"text": "a@b.org, c@d.org, 8.8.8.8"}, {"text": "nothing: 12:30"}, {"text": 7}])
    changed = stage.process(batch)
    assert written(changed) == [{"text": "<EMAIL>, <EMAIL>, <IP>"}, {"text": "nothing: 12:30"}]
    assert context_of(stage).noted.counts == {"replaced email": 2, "replaced ip": 1}
    assert [rows.error for rows in changed._failed] == ["not-a-string"]


class Names:
    def find_names(self, text: str) -> list[tuple[int, int]]:
        place = text.find("Ada")
        return [(place, place + 3)] if place >= 0 else []


class TestNames:
    def test_a_model_of_the_users_finds_them(self) -> None:
        named = PiiRedactor(name_model=Names())
        assert named.modify_document("Ada, ada@b.org") == "<NAME>, <EMAIL>"
        assert named.may_change(as_bytes(["x"])) is None
        assert written(Modify(named).process(batch_of([{"text": "Ada"}]))) == [{"text": "<NAME>"}]

    def test_without_a_model_the_message_says_what_to_give(self) -> None:
        with pytest.raises(UsageError, match="names are found by a model, and there is none; give name_model"):
            PiiRedactor(kinds=["name"])

    def test_a_package_that_is_not_installed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gliner", None)
        with pytest.raises(MissingPackageError, match="pip install gliner, or give an object with find_names"):
            PiiRedactor(name_model="some/model").load_model()

    def test_a_model_stays_behind_when_the_stage_travels(self) -> None:
        redactor = PiiRedactor(name_model=Names())
        redactor.modify_document("Ada")
        assert pickle.loads(pickle.dumps(redactor))._model is None
        assert copy.copy(redactor).take_counts() == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ["e-mail"]}, "Did you mean 'email'"),
        ({"kinds": []}, "is not a list of kinds"),
        ({"kinds": "email"}, "is not a list of kinds"),
        ({"replacements": {"mail": "x"}}, "is not a text for a kind"),
        ({"name_model": 3}, "is not a model"),
    ],
)
def test_a_wrong_parameter_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PiiRedactor(**arguments)


# -- the compiled scan ----------------------------------------------------------------------------------------------

SAMPLES = [
    "john@example.com",
    "8.8.8.8",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "+49 (0) 30 901820",
    "(212) 555-0123",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "NO9386011117947",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1_B2" * 10,
    "xoxb-123456789012-abcdefGHIJ",
    "xapp-1-A0123-456789",
    "AIza" + "Sy-_B" * 7,
    JWT,
    PRIVATE_KEY,
]
pieces = st.one_of(
    st.sampled_from(SAMPLES),
    st.text(alphabet="0123456789 .-()+/", max_size=24),
    st.text(alphabet="0123456789abcdefABCDEF:.", max_size=24),
    st.text(alphabet="aé@.-_'%+:/ü北", max_size=12),
    st.text(max_size=6),
    st.sampled_from(["4111111111111111", "378282246310005", "2125550123", "255"]),
    st.ip_addresses().map(str),
    st.emails(),
)
mixtures = st.lists(pieces, max_size=8).flatmap(
    lambda parts: st.sampled_from(["", " ", "\n", "-", "x"]).map(lambda s: s.join(parts))
)


@given(texts=st.lists(mixtures, min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_the_scan_sees_every_kind_that_the_definition_finds(texts: list[str]) -> None:
    for text, seen in zip(texts, kinds_in(as_bytes(texts)).tolist(), strict=True):
        for kind, finder in FINDERS.items():
            if any(start < end for start, end in finder(text)):
                assert seen & KINDS[kind], f"{kind} in {text!r}"


@pytest.mark.parametrize("shift", range(0, 70, 3))
def test_the_scan_finds_them_at_every_place_of_a_block(shift: int) -> None:
    texts = ["a " * (shift // 2) + " " * (shift % 2) + sample for sample in SAMPLES]
    for text, seen in zip(texts, kinds_in(as_bytes(texts)).tolist(), strict=True):
        kinds = {kind for _, _, kind in PiiRedactor().find(text)}
        assert kinds
        assert all(seen & KINDS[kind] for kind in kinds)


def test_the_scan_stays_inside_its_text() -> None:
    texts = [
        "john",
        "@example.com",
        "8.8.",
        "8.8",
        "+49 30 9",
        "01820 4111 ",
        "1111 1111",
        "AK",
        "IAIOSFODNN7EXAMPLE",
    ]
    assert kinds_in(as_bytes(texts)).tolist() == [0] * len(texts)


@given(st.ip_addresses(network="10.0.0.0/8"), st.ip_addresses(network="11.0.0.0/8"))
def test_private_addresses_stay_and_public_ones_go(private: Any, public: Any) -> None:
    assert redact(f"{private} {public}") == f"{private} <IP>"


@given(st.text(alphabet="0123456789", min_size=15, max_size=15))
def test_one_digit_of_ten_completes_a_card_number(digits: str) -> None:
    assert sum(_luhn(digits + check) == 0 for check in "0123456789") == 1


@pytest.mark.parametrize(
    "filler", ["1", "1 ", "a@", "@", ":", "f:", "1.", "+1", "eyJ", "-----BEGIN PRIVATE KEY-----", "A", "DE89"]
)
def test_long_runs_of_anything_take_linear_time(filler: str) -> None:
    text = filler * (400_000 // len(filler))
    assert isinstance(redact(text), str)
