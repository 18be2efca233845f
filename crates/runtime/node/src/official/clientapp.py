import os
import signal
import sys
import threading
import time
from importlib.metadata import entry_points, version


def end_with(node):
        # Replaces flwr's --parent-pid, which checks whether a process with the node's pid exists: pids are reused, and a sandbox
        # hides other processes.
    while os.getppid() == node:
        time.sleep(0.2)
    os.killpg(0, signal.SIGKILL)


threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
sys.path[:] = [entry for entry in sys.path if entry]
minor = tuple(int(number) for number in version("flwr").split(".")[:2])
sys.argv = [
    "flwr-clientapp",
    "--insecure",
    "--runtime-api-address" if minor >= (1, 36) else "--clientappio-api-address",
    os.environ.pop("TRELLIS_APP_ADDRESS"),
    "--token",
    os.environ.pop("TRELLIS_APP_TOKEN"),
]
if os.environ.pop("TRELLIS_APP_INSTALLS", "") and minor >= (1, 29):
    sys.argv.append("--allow-runtime-dependency-installation")
(script,) = entry_points(group="console_scripts", name="flwr-clientapp")
sys.exit(script.load()())
