"""No node runs it: the test answers in the nodes' place."""

from flwr.clientapp import ClientApp

app = ClientApp()
