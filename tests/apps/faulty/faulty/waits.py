"""Runs until the SuperLink tells it that the run is over: asks it again and again."""

import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from faulty.presence import announce

ASK_EVERY_S = 0.2

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    print("faulty: waiting")
    announce(context)
    while True:
        grid.get_node_ids()
        time.sleep(ASK_EVERY_S)
