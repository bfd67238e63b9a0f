"""The picture is a document that any browser reads, and holds what was measured."""

from xml.etree import ElementTree as ET

from tests.bench.plot import Line, Scale, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_every_series_has_its_points_and_its_name() -> None:
    lines = [
        Line(name="subjects & more", points=((1, 1.0), (1000, 1.2), (100_000, 0.9))),
        Line(name="one point", points=((10, 2.0),)),
    ]
    picture = ET.fromstring(draw(lines, flat=1.5))
    assert len(picture.findall(f"{SVG}circle")) == 4
    assert {"subjects & more", "one point", "100,000", "2"} <= {text.text for text in picture.findall(f"{SVG}text")}


def test_sizes_go_by_their_logarithm_and_costs_from_zero() -> None:
    scale = Scale(decades=4, cost_max=2.0)
    assert scale.x(100) - scale.x(1) == scale.x(10_000) - scale.x(100)
    assert scale.y(0.0) - scale.y(1.0) == scale.y(1.0) - scale.y(2.0) > 0
