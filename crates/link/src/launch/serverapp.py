import os
import sys
from importlib.metadata import entry_points, version

sys.path[:] = [entry for entry in sys.path if entry]
minor = tuple(int(number) for number in version("flwr").split(".")[:2])
address = os.environ.pop("TRELLIS_APP_ADDRESS")
token = os.environ.pop("TRELLIS_APP_TOKEN")


def show_token():
    """Send the token with every call to the SuperLink, as Flower 1.28 and later do by themselves."""
    from collections import namedtuple

    import grpc

    fields = ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    details = namedtuple("details", fields)
    plain = grpc.insecure_channel

    class Token(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, proceed, call, request):
            call = details(*(getattr(call, field, None) for field in fields))
            shown = [*(call.metadata or ()), ("flwr-app-token", token)]
            return proceed(call._replace(metadata=shown), request)

    def channel(target, *args, **kwargs):
        opened = plain(target, *args, **kwargs)
        return grpc.intercept_channel(opened, Token()) if target == address else opened

    grpc.insecure_channel = channel


if minor < (1, 28):
    show_token()
sys.argv = [
    "flwr-serverapp",
    "--insecure",
    "--runtime-api-address" if minor >= (1, 36) else "--serverappio-api-address",
    address,
    "--token",
    token,
]
if os.environ.pop("TRELLIS_APP_INSTALLS", "") and minor >= (1, 30):
    sys.argv.append("--allow-runtime-dependency-installation")
(script,) = entry_points(group="console_scripts", name="flwr-serverapp")
sys.exit(script.load()())
