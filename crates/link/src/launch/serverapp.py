import os
import sys
from importlib.metadata import entry_points

sys.path[:] = [entry for entry in sys.path if entry]
sys.argv = [
    "flwr-serverapp",
    "--insecure",
    "--serverappio-api-address",
    os.environ.pop("TRELLIS_APP_ADDRESS"),
    "--token",
    os.environ.pop("TRELLIS_APP_TOKEN"),
]
(script,) = entry_points(group="console_scripts", name="flwr-serverapp")
sys.exit(script.load()())
