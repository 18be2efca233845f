#!/usr/bin/env python3
"""Write down what Flower's classes answer to the cases made by hand, for the Rust tests, which need no Python.

`record.py PYTHON`, where PYTHON is that of an environment with Flower (1.42). The suite checks that the record is still
what Flower answers.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from strategy.cases import Maker, by_hand, private  # noqa: E402

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent.parent / "crates" / "training" / "strategy" / "tests" / "data" / "recorded.jsonl"
KINDS = ("server-fixed", "server-adaptive", "client-fixed", "client-adaptive")


def cases() -> dict[str, dict]:
    """By name, as both sides read them."""
    made = {name: case.told() for name, case in by_hand().items()}
    return made | {
        f"FedAvg, {kind}": private(Maker(1, scalars=False), kind, "FedAvg", "float32", compat=True).told()
        for kind in KINDS
    }


def lines(answers: list[dict]) -> list[str]:
    def rounds(answer: dict) -> list[dict]:
        return [{key: one[key] for key in ("arrays", "clipping_norm")} for one in answer["rounds"]]

    named = zip(cases().items(), answers, strict=True)
    return [json.dumps({"name": name, "case": case, "rounds": rounds(answer)}) for (name, case), answer in named]


def main(python: str) -> None:
    wishes = "".join(json.dumps({"case": case, "wide": False, "given": None}) + "\n" for case in cases().values())
    done = subprocess.run(
        [python, str(HERE / "official.py")], input=wishes, stdout=subprocess.PIPE, text=True, check=True
    )
    RECORD.write_text("".join(line + "\n" for line in lines([json.loads(line) for line in done.stdout.splitlines()])))


if __name__ == "__main__":
    main(sys.argv[1])
