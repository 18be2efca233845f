#!/usr/bin/env python3
"""Runs the pytest suites in the environment of Flower 1.25: `tests/run.py [--optional] [pytest arguments]`.

Tests that need other releases find them themselves, and are skipped one by one if a release is not available. If the
official packages are not available, nothing runs, which counts as one skip; the exit code is then 1, or 0 with
--optional (for `make test`, whose other parts do not need them).
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from provision import DEFAULT_VERSION, CannotBeHad, provision  # noqa: E402


def main(arguments: list[str]) -> int:
    optional = "--optional" in arguments
    arguments = [argument for argument in arguments if argument != "--optional"]
    try:
        environment = provision()
    except CannotBeHad as why:
        print(f"SKIP: official Flower {DEFAULT_VERSION} is not available here: {why}")
        print("==== 0 passed, 0 failed, 1 skipped (the whole suite against official Flower) ====")
        return 0 if optional else 1
    if binary := os.environ.get("TRELLIS_BIN"):
        os.environ["TRELLIS_BIN"] = str(Path(binary).resolve())
    os.chdir(Path(__file__).resolve().parent)
    python = str(environment / "bin" / "python")
    sys.stdout.flush()
    os.execv(python, [python, "-m", "pytest", *arguments])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
