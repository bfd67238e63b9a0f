"""A picture of how costs grow: lines over a logarithmic axis of sizes, as SVG text, without a plotting library."""

import math
from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

import attrs

WIDTH: Final = 760
HEIGHT: Final = 420
LEFT: Final = 50  # of the axes, in pixels, as the next three
TOP: Final = 20
RIGHT: Final = 540
BOTTOM: Final = 370
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")  # Okabe, Ito
STEP: Final = 0.25  # between two marks of the vertical axis
LEGEND_STEP: Final = 20  # pixels from one name to the next


@attrs.frozen(kw_only=True)
class Line:
    """A series: its name and its points (size, cost)."""

    name: str
    points: tuple[tuple[int, float], ...]


@attrs.frozen(kw_only=True)
class Scale:
    """From sizes and costs to pixels; sizes are shown by their logarithms."""

    decades: int
    cost_max: float

    def x(self, size: int) -> float:
        """Pixels from the left."""
        return LEFT + math.log10(max(size, 1)) / self.decades * (RIGHT - LEFT)

    def y(self, cost: float) -> float:
        """Pixels from the top."""
        return BOTTOM - cost / self.cost_max * (BOTTOM - TOP)


def draw(lines: Sequence[Line], *, flat: float) -> str:
    """An SVG document; a dotted line stands at `flat`."""
    points = [point for line in lines for point in line.points]
    highest = max([flat, *(cost for _, cost in points)]) + STEP / 2
    decades = max(1, math.ceil(math.log10(max([10, *(size for size, _ in points)]))))
    scale = Scale(decades=decades, cost_max=math.ceil(highest / STEP) * STEP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *axes(scale, flat),
    ]
    for number, line in enumerate(lines):
        parts += drawn(line, scale, COLOURS[number % len(COLOURS)], TOP + 10 + LEGEND_STEP * number)
    return "\n".join([*parts, "</svg>", ""])


def axes(scale: Scale, flat: float) -> list[str]:
    """The frame with its marks and names."""
    parts = [f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="black"/>']
    for step in range(round(scale.cost_max / STEP) + 1):
        y = scale.y(step * STEP)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{step * STEP:g}</text>')
    for decade in range(scale.decades + 1):
        x = scale.x(10**decade)
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{10**decade:,}</text>')
    parts.append(f'<path d="M{LEFT} {scale.y(flat):.1f}H{RIGHT}" stroke="black" stroke-dasharray="2 4"/>')
    parts.append(
        f'<text x="{LEFT}" y="{HEIGHT - 10}">how many there are; upwards, server CPU per message by its median</text>'
    )
    return parts


def drawn(line: Line, scale: Scale, colour: str, legend_y: int) -> list[str]:
    """A line with its points and its name in the legend."""
    at = [(scale.x(size), scale.y(cost)) for size, cost in line.points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    return [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at),
        f'<path d="M{RIGHT + 20} {legend_y}h20" stroke="{colour}" stroke-width="2"/>',
        f'<text x="{RIGHT + 46}" y="{legend_y + 4}">{escape(line.name)}</text>',
    ]
