"""What the demo prints at its end."""

import sys

BAR_WIDTH = 40


def result_table(curve: list[dict]) -> str:
    """The learning curve, one row per round, with a bar for the accuracy."""
    rows = ["  round     loss  accuracy"]
    for point in curve:
        bar = "#" * round(point["accuracy"] * BAR_WIDTH)
        rows.append(f"  {point['round']:>5}  {point['loss']:>7.4f}  {point['accuracy']:>8.1%}  {bar}")
    return "\n".join(rows)


def complain(what: str, why: str, remedy: str) -> None:
    print(f"\ndemo: {what}\n  why: {why}\n  do:  {remedy}", file=sys.stderr, flush=True)
