"""Cannot be imported."""

import a_module_that_does_not_exist  # noqa: F401
from flwr.serverapp import ServerApp

app = ServerApp()
