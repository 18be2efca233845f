#!/usr/bin/env python3
"""The demo: our SuperLink, five of our SuperNodes, and a training that runs to completion before your eyes.

Starts with any python3, provisions official Flower (for the ServerApp and the `flwr` command: the nodes need no Python),
then continues inside that environment. Exit code 0 only if the run
completed, the model learned, and every process ended cleanly.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path.insert(0, str(TESTS))

from provision import DEFAULT_VERSION, CannotBeHad, provision  # noqa: E402

NODES = 5
# Each office has many of some digits and few of others.
PARTITION = "dirichlet:0.5"
ONLINE_LIMIT_S = 60.0
RUN_LIMIT_S = 300.0
LEARNED_ACCURACY = 0.85


def enter_environment() -> None:
    """Continue inside the environment with official Flower, building it first where it is missing."""
    try:
        environment = provision()
    except CannotBeHad as why:
        from console import complain

        what = f"official Flower {DEFAULT_VERSION} is needed for the ServerApp"
        complain(what, str(why), "allow a package index, then try again")
        sys.exit(1)
    if Path(sys.prefix).resolve() != environment.resolve():
        python = str(environment / "bin" / "python")
        os.execv(python, [python, str(HERE / "run.py"), *sys.argv[1:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="rounds of training (default: 10)")
    return parser.parse_args()


def main() -> int:
    options = parse()
    enter_environment()
    from console import Console, complain
    from harness.workspace import Workspace, trellis_binary

    if not trellis_binary().exists():
        why = f"{trellis_binary()} does not exist"
        complain("there is no trellis binary", why, "make demo builds it; or set TRELLIS_BIN")
        return 1
    directory = Path(tempfile.mkdtemp(prefix="trellis-demo-"))
    workspace = Workspace(directory)
    console = Console(coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    code = 1
    try:
        code = show(options, workspace, console)
    except KeyboardInterrupt:
        complain("interrupted", "Ctrl-C", "make demo starts it again")
        code = 130
    except AssertionError as failed:
        complain("the demo did not work", str(failed), f"read the logs in {workspace.logs}")
    finally:
        workspace.close()
        console.close()
        if code == 0:
            shutil.rmtree(directory)
    return code


def show(options: argparse.Namespace, workspace, console) -> int:
    from harness.flower_cli import FlwrCli
    from harness.own_supernode import OwnNode, OwnSupernode
    from harness.superlink import LinkOptions, Superlink

    began = time.monotonic()
    console.say("Five post offices learn to read digits; none shows a letter to anybody.\n")
    superlink = Superlink(workspace, LinkOptions())
    console.follow("superlink", workspace.logs / "superlink.log")
    superlink.start()
    app = OwnNode(native="mlp", flags=("--client-app-setting", f"partition={PARTITION}", "--log-format", "text"))
    nodes = [OwnSupernode(workspace, superlink, office, NODES, options=app) for office in range(NODES)]
    for node in nodes:
        console.follow(node.name, workspace.logs / f"{node.name}.log")
        node.start()
    superlink.control.wait_nodes_online(NODES, ONLINE_LIMIT_S)

    result_path = workspace.root / "result.json"
    cli = FlwrCli(workspace, workspace.copy_app(HERE / "app"), superlink)
    stream = cli.follow(num_server_rounds=options.rounds, nodes=NODES, result_path=result_path)
    console.follow("run", stream.log)
    stream.wait_exit(RUN_LIMIT_S)
    if not superlink.control.runs():
        raise AssertionError("the SuperLink did not take the run")
    (run,) = superlink.control.runs().values()
    trained_s = time.monotonic() - began

    # What the parts say while they are being stopped (that the others are gone) is of no interest.
    console.close()
    complaints = stop_all(superlink, nodes)
    return conclude(console, run, result_path, complaints, trained_s)


def stop_all(superlink, nodes) -> list[str]:
    """Ask every process to end, nodes first; the complaints."""
    codes = [(process.name, process.stop()) for process in [*(node.process for node in nodes), superlink.process]]
    return [f"{name} ended with {code}" for name, code in codes if code != 0]


def conclude(console, run, result_path: Path, complaints: list[str], trained_s: float) -> int:
    from console import result_table

    if run.status != "finished:completed":
        raise AssertionError(f"run {run.run_id} is {run.status}: {run.details or 'no reason given'}")
    result = json.loads(result_path.read_text())
    console.say("\nAccuracy on digits that nobody trained on:\n")
    console.say(result_table(result["curve"]))
    console.say(f"\n  run {run.run_id}: {run.status}, {trained_s:.1f} s from the first process to the last round")
    if result["curve"][-1]["accuracy"] < LEARNED_ACCURACY:
        raise AssertionError(f"the model did not learn: accuracy {result['curve'][-1]['accuracy']:.1%}")
    if complaints:
        raise AssertionError("; ".join(complaints))
    console.say("  every process ended cleanly")
    return 0


if __name__ == "__main__":
    sys.exit(main())
