"""Tells the test which process the ServerApp is."""

import os
from pathlib import Path

from flwr.app import Context


def announce(context: Context) -> None:
    path = str(context.run_config["pid-path"])
    if path:
        draft = Path(path + ".draft")
        draft.write_text(f"{os.getpid()}\n")
        draft.replace(path)
