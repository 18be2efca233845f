"""A client of the Control API for waiting: it is fast, and it returns reasons, which `flwr ls` does not print."""

from dataclasses import dataclass

import grpc
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, ShowFederationRequest, StreamLogsRequest
from flwr.proto.control_pb2_grpc import ControlStub

from harness.credentials import TlsFiles
from harness.waiting import wait_for

CALL_LIMIT_S = 5.0
LOG_LIMIT_S = 1.0


@dataclass(frozen=True)
class RunState:
    """The status in the form of `flwr ls` (`finished:completed`), and the reason."""

    run_id: int
    status: str
    details: str

    @property
    def finished(self) -> bool:
        return self.status.startswith("finished")


class Control:
    """Each call uses a new channel, so that a restarted SuperLink is noticed at once."""

    def __init__(self, address: str, tls: TlsFiles | None):
        self._address = address
        self._tls = tls

    def runs(self) -> dict[int, RunState]:
        answer = self._call("ListRuns", ListRunsRequest())
        return {run_id: _state(run_id, run.status) for run_id, run in answer.run_dict.items()}

    def run(self, run_id: int) -> RunState:
        return self.runs()[run_id]

    def nodes(self) -> dict[int, str]:
        """The status of each registered node by id."""
        answer = self._call("ListNodes", ListNodesRequest())
        return {node.node_id: node.status for node in answer.nodes_info}

    def online_nodes(self) -> list[int]:
        return sorted(node_id for node_id, status in self.nodes().items() if status == "online")

    def federation_runs(self) -> list[int]:
        answer = self._call("ShowFederation", ShowFederationRequest(federation_name="default"))
        return [run.run_id for run in answer.federation.runs]

    def logged(self, run_id: int) -> str:
        """The current log of a run. The stream of an active run is cut off."""
        text = ""
        with self._channel() as channel:
            try:
                for piece in ControlStub(channel).StreamLogs(StreamLogsRequest(run_id=run_id), timeout=LOG_LIMIT_S):
                    text += piece.log_output
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise
        return text

    def wait_nodes_online(self, count: int, limit_s: float) -> list[int]:
        def look() -> list[int] | None:
            online = self.online_nodes()
            return online if len(online) == count else None

        return wait_for(f"{count} nodes online", tolerant(look), limit_s)

    def wait_finished(self, run_id: int, limit_s: float) -> RunState:
        """Waits for the end of a run, also through outages of the SuperLink."""

        def look() -> RunState | None:
            state = self.run(run_id)
            return state if state.finished else None

        return wait_for(f"run {run_id} to finish", tolerant(look), limit_s)

    def wait_status(self, run_id: int, status: str, limit_s: float) -> RunState:
        def look() -> RunState | None:
            state = self.run(run_id)
            return state if state.status == status else None

        return wait_for(f"run {run_id} to be {status}", tolerant(look), limit_s)

    def _call(self, method: str, request):
        with self._channel() as channel:
            return getattr(ControlStub(channel), method)(request, timeout=CALL_LIMIT_S)

    def _channel(self) -> grpc.Channel:
        if self._tls is None:
            return grpc.insecure_channel(self._address)
        return grpc.secure_channel(self._address, grpc.ssl_channel_credentials(self._tls.ca.read_bytes()))


def tolerant(probe):
    """Wraps a probe: an unavailable or slow SuperLink counts as 'not yet'."""

    def look():
        try:
            return probe()
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return None
            raise

    return look


def _state(run_id: int, status) -> RunState:
    text = f"{status.status}:{status.sub_status}" if status.sub_status else status.status
    return RunState(run_id, text, status.details)
