# SPDX-License-Identifier: Apache-2.0
"""The picture is well-formed, shows every group of stages, and needs nothing from outside."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.unit.simulate.profiles import MB, machines, profile_of, three_ops
from thresher.simulate.chart import html, show_time, svg
from thresher.simulate.inputs import make_units
from thresher.simulate.rehearsal import Rehearsal, rehearse


@pytest.fixture(scope="module")
def found() -> Rehearsal:
    spec = three_ops(machines(2, gpus=1), 4, dedicated_workers=2, gpus=1.0)
    profile = profile_of(spec)
    return rehearse(spec, make_units(profile, spec.ops, data_bytes=40 * MB), profile)


def test_the_picture_is_valid_xml_with_all_panels(found: Rehearsal) -> None:
    drawn = svg(found, "a <pipeline> & more", "4 CPUs")
    root = ElementTree.fromstring(drawn)
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("CPU busy") for text in texts)
    assert any(text.startswith("GPU busy") for text in texts)
    assert "Memory in flight" in texts
    assert any("a <pipeline> & more" in text for text in texts)
    for name in ("read", "work", "write"):
        assert name in texts


def test_every_point_lies_inside_the_picture(found: Rehearsal) -> None:
    root = ElementTree.fromstring(svg(found, "name", "4 CPUs"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for polygon in root.iter("{http://www.w3.org/2000/svg}polygon"):
        for point in polygon.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_the_page_loads_nothing(found: Rehearsal) -> None:
    page = html(found, "name", "4 CPUs")
    assert "<svg" in page
    for word in ("<script", "src=", "href=", "url(", "@import"):
        assert word not in page


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(4.25, "4.2 s"), (60, "1 min 0 s"), (200, "3 min 20 s"), (18_720, "5 h 12 min"), (273_600, "3 d 4 h")],
)
def test_times_are_shown_as_people_say_them(seconds: float, shown: str) -> None:
    assert show_time(seconds) == shown
