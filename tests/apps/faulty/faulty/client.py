"""A ClientApp that is never called: the ServerApps here send no messages."""

from flwr.clientapp import ClientApp

app = ClientApp()
