#!/usr/bin/env python3
"""Draws accuracies as lines: `draw_curves.py CURVES.json PICTURE.svg`, the curves as `--curves` of the suite writes them."""

import json
import sys
from pathlib import Path

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 185, 20, 44
COLOURS = ["#c2410c", "#1d4ed8", "#047857", "#7c3aed"]
LABEL_GAP = 16
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #334155 }
  .grid { stroke: #cbd5e1; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  @media (prefers-color-scheme: dark) { text { fill: #cbd5e1 } .grid { stroke: #475569 } }
"""


def draw(curves: dict[str, list[float]]) -> str:
    rounds = max(map(len, curves.values()))

    def x(index: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * index / max(1, rounds - 1)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts.append(f"<title>Accuracy by round: {', '.join(curves)}</title><style>{STYLE}</style>")
    for tenth in range(0, 11, 2):
        height = y(tenth / 10)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{tenth * 10} %</text>')
    for index in range(rounds):
        parts.append(f'<text x="{x(index):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{index + 1}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">round</text>')
    for (name, values), colour, label in zip(curves.items(), COLOURS, _label_heights(curves, y)):
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
        parts.append(f'<polyline class="line" stroke="{colour}" points="{points}"/>')
        parts.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{label + 4:.1f}" style="fill:{colour};font-weight:600">'
            f"{name} {values[-1]:.0%}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label_heights(curves: dict[str, list[float]], y) -> list[float]:
    """Where each name stands: at the end of its line, or as far below the one before as letters need."""
    ends = sorted((y(values[-1]), name) for name, values in curves.items())
    heights: dict[str, float] = {}
    last = float("-inf")
    for end, name in ends:
        last = heights[name] = max(end, last + LABEL_GAP)
    return [heights[name] for name in curves]


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw(json.loads(Path(sys.argv[1]).read_text())))
