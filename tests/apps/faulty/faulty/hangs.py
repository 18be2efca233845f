"""Hangs without ever asking the SuperLink anything, and takes no notice of SIGTERM."""

import signal
import threading

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from faulty.presence import announce

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce(context)
    threading.Event().wait()
