"""Prints numbered lines as fast as it can."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    for number in range(1, int(context.run_config["lines"]) + 1):
        print(f"chatty line {number}")
