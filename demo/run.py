#!/usr/bin/env python3
"""The second demo: an unmodified Flower app, with numpy, sent by the official `flwr run` to a federation of `trellis up`.

Starts with any python3, and provisions official Flower for the `flwr` command and the apps. Exit code 0 only if the run
completed, the model learned, and nothing is left of the federation.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from console import complain, result_table  # noqa: E402
from provision import DEFAULT_VERSION, CannotBeHad, provision  # noqa: E402

FEDERATION = "local"
NODES = 5
COMMAND_LIMIT_S = 120.0
RUN_LIMIT_S = 300.0
LEARNED_ACCURACY = 0.85


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="rounds of training (default: 10)")
    return parser.parse_args()


def main() -> int:
    options = parse()
    trellis = Path(os.environ.get("TRELLIS_BIN", HERE.parent / "target" / "release" / "trellis"))
    if not trellis.exists():
        complain("there is no trellis binary", f"{trellis} does not exist", "make demo-flower builds it; or set TRELLIS_BIN")
        return 1
    try:
        flower = provision() / "bin"
    except CannotBeHad as why:
        complain(f"official Flower {DEFAULT_VERSION} is needed", str(why), "allow a package index, then try again")
        return 1
    directory = Path(tempfile.mkdtemp(prefix="trellis-demo-"))
    code = 1
    try:
        Demo(directory, trellis, flower).show(options.rounds)
        code = 0
    except KeyboardInterrupt:
        complain("interrupted", "Ctrl-C", "make demo-flower starts it again")
        code = 130
    except (RuntimeError, subprocess.SubprocessError) as failed:
        complain("the demo did not work", str(failed), f"read the logs in {directory}")
    if code == 0:
        shutil.rmtree(directory)
    return code


class Demo:
    """A copy of the app, with a home for the server and one for `flwr`, that no other program shares."""

    def __init__(self, directory: Path, trellis: Path, flower: Path):
        self.app = directory / "app"
        self.result = directory / "result.json"
        self.trellis, self.flower = str(trellis), flower
        shutil.copytree(HERE / "app", self.app)
        self.environment = os.environ | {
            "TRELLIS_HOME": str(directory / "home"),
            "FLWR_HOME": str(directory / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PATH": f"{flower}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def run(self, *argv: str, limit_s: float = COMMAND_LIMIT_S) -> None:
        print(f"\n$ {' '.join([Path(argv[0]).name, *argv[1:]])}", flush=True)
        done = subprocess.run(argv, cwd=self.app, env=self.environment, stdin=subprocess.DEVNULL, timeout=limit_s, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{Path(argv[0]).name} {argv[1]} ended with {done.returncode}")

    def show(self, rounds: int) -> None:
        began = time.monotonic()
        print("Five post offices learn to sort letters; none shows one to anybody.", flush=True)
        try:
            self.run(self.trellis, "up", "--detach", "--nodes", str(NODES), "--python", str(self.flower / "python"))
            config = f'num-server-rounds={rounds} nodes={NODES} result-path="{self.result}"'
            argv = [str(self.flower / "flwr"), "run", ".", FEDERATION, "--stream", "--run-config", config]
            self.run(*argv, limit_s=RUN_LIMIT_S)
            self.run(self.trellis, "runs")
        finally:
            self.run(self.trellis, "down")
        self.conclude(time.monotonic() - began)

    def conclude(self, took_s: float) -> None:
        curve = json.loads(self.result.read_text())["curve"] if self.result.exists() else []
        if not curve:
            raise RuntimeError("the run did not complete: it left no result")
        print("\nAccuracy on letters that nobody trained on:\n")
        print(result_table(curve))
        print(f"\n  {took_s:.1f} s from the first process to the last")
        if curve[-1]["accuracy"] < LEARNED_ACCURACY:
            raise RuntimeError(f"the model did not learn: accuracy {curve[-1]['accuracy']:.1%}")


if __name__ == "__main__":
    sys.exit(main())
