"""Says one line and completes."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from faulty.presence import announce

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    announce(context)
    print("faulty: nothing to do")
