"""Raises after it has started."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from faulty.presence import announce

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    announce(context)
    raise ValueError("the faulty app raised on purpose")
