"""A gRPC client that makes a call, says nothing until it is told to, and makes another call on the same channel.

`silent_client.py ADDRESS CA_FILE GO_FILE`: waits for GO_FILE to appear, and after its second call to be ended. It has
no keepalive of its own, as official clients: what keeps its connection is the SuperLink.
"""

import signal
import sys
import time
from pathlib import Path

import grpc
from flwr.proto.control_pb2 import ListFederationsRequest
from flwr.proto.control_pb2_grpc import ControlStub

CALL_LIMIT_S = 10.0
CHECK_S = 0.1


def outcome(control: ControlStub) -> str:
    try:
        control.ListFederations(ListFederationsRequest(), timeout=CALL_LIMIT_S)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def main(address: str, ca: str, go: str) -> None:
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(Path(ca).read_bytes())) as channel:
        control = ControlStub(channel)
        print(f"first call: {outcome(control)}", flush=True)
        while not Path(go).exists():
            time.sleep(CHECK_S)
        print(f"second call: {outcome(control)}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
