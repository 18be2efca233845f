# Generated from trellis/aio/_client.py by generate.py; do not edit.
"""The synchronous client: a method for each call of the API, and what people do with several of them."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional, TypeVar, Union
from urllib.parse import quote

from .. import _decode, _patience, _program, types
from .._document import Document, text_of
from .._target import AnyPath, Target
from .._target import find as find_target
from ..errors import ConfigurationError, NotFound, Refused, TrellisError, Unreachable, WaitTimeout
from ._call import EventStream, call
from ._io import execute, sleep
from ._run import Run

T = TypeVar("T")

_NATIVE = "native:"
_BUNDLE_SUFFIX = ".fab"
_PAGE = 1000
_YAML = "application/yaml"
_JSON = "application/json"
# A model of some gigabytes takes a while to be read from disk.
_MODEL_S = 300.0
# Something may be stuck for a moment: a process that is started again, a port that is still taken.
_STALLED_S = 15.0


def connect(
    url: Optional[str] = None,
    *,
    token: Optional[str] = None,
    token_file: Optional[AnyPath] = None,
    root_certificates: Optional[AnyPath] = None,
    home: Optional[AnyPath] = None,
    allow_insecure_network: bool = False,
) -> Client:
    """A client of the server at `url`, or else of TRELLIS_SERVER, or else of the server of this machine.

    The token is `token`, that in `token_file`, in TRELLIS_SERVER_TOKEN_FILE or TRELLIS_SERVER_TOKEN, or, for the server of
    this machine, that of its administrator. `root_certificates` is a PEM file with the authorities to trust. `home` is the
    home of a server of this machine. A token leaves this machine without TLS only with `allow_insecure_network`.
    """
    client = Client(find_target(url, token, token_file, root_certificates, home, allow_insecure_network))
    # A wrong token is told here, and not by whatever is called first.
    client.me()
    return client


class Client:
    """A server of the control plane. Every call has a connection of its own, so a client needs no end."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """Where the server is; with a browser, its page."""
        return self._target.url

    def me(self) -> types.Me:
        """Whose token this is, and the version of the server."""
        return self._get(types.Me, "/me")

    # Federations

    def federations(self) -> list[types.FederationSummary]:
        """All federations, by name."""
        return self._all(types.FederationSummary, "/federations")

    def federation(self, name: Optional[str] = None) -> types.FederationDetail:
        """The document of a federation, and what was seen last. Without a name: the only one there is."""
        return self._get(types.FederationDetail, _federation(self._meant(name)))

    def past_federations(self) -> list[types.PastFederation]:
        """Federations that are gone and whose runs are kept, by name."""
        return _decode.read_list(types.PastFederation, self._send("GET", "/past-federations"))

    def plan(self, document: Document) -> types.PlanReport:
        """What `apply` would do. A document is a dict, a text of YAML or JSON, or a file; a plan changes nothing."""
        text, _ = text_of(document)
        return _decode.read(types.PlanReport, self._send("POST", "/plan", text.encode(), _YAML))

    def current_plan(self, name: Optional[str] = None) -> types.PlanReport:
        """What is to be done now for a federation, and why not more."""
        return self._get(types.PlanReport, _federation(self._meant(name), "plan"))

    def apply(
        self,
        document: Document,
        *,
        revision: Optional[int] = None,
        create: bool = False,
        wait: bool = False,
        timeout: float = 300.0,
    ) -> types.FederationDetail:
        """Keeps a federation as the document says, and returns it; with `wait`, when it is ready.

        With `revision` only that revision is replaced, and with `create` none; otherwise Conflict is raised.
        """
        text, name = text_of(document)
        if name is None:
            # YAML is read by the server alone, which tells everything that is wrong with it too.
            name = (self.plan(text)).federation
        headers = {"If-None-Match": "*"} if create else {} if revision is None else {"If-Match": f'"{revision}"'}
        body = self._send("PUT", _federation(name), text.encode(), _YAML, headers)
        return self.wait_ready(name, timeout) if wait else _decode.read(types.FederationDetail, body)

    def wait_ready(self, name: Optional[str] = None, timeout: float = 300.0) -> types.FederationDetail:
        """Waits until everything that the document wants works."""
        name = self._meant(name)
        deadline, absence, stalled = _patience.Deadline(timeout), _patience.Absence(), _patience.Absence(_STALLED_S)
        while True:
            try:
                detail = self.federation(name)
            except (Unreachable, Refused) as error:
                absence.excuse(error)
            else:
                absence.over()
                if _is_ready(detail):
                    return detail
                summary = detail.summary
                if deadline.passed:
                    raise WaitTimeout(f"{name} is not ready after {timeout:g} s: {summary.message}")
                if summary.state != "stalled":
                    stalled.over()
                elif stalled.lasts_too_long():
                    raise TrellisError(f"{name} cannot go on: {summary.message}. `trellis status {name}` says more")
            sleep(_patience.ASK_AGAIN_S)

    def delete(self, name: str, *, purge: bool = False, wait: bool = False, timeout: float = 300.0) -> None:
        """Takes a federation away; with `purge` its runs too. It goes on after the answer; `wait` waits until it is gone."""
        self._send("DELETE", _federation(name) + ("?purge=true" if purge else ""))
        deadline, absence = _patience.Deadline(timeout), _patience.Absence()
        while wait:
            try:
                self.federation(name)
            except NotFound:
                return
            except (Unreachable, Refused) as error:
                absence.excuse(error)
            else:
                absence.over()
            if deadline.passed:
                raise WaitTimeout(f"{name} is not gone after {timeout:g} s")
            sleep(_patience.ASK_AGAIN_S)

    def scale(
        self, pool: str, count: int, federation: Optional[str] = None, *, repartition: bool = False
    ) -> types.FederationDetail:
        """How many nodes a pool shall have; with `repartition` the data is divided into as many shards."""
        path = _federation(self._meant(federation), "pools", pool)
        body = {"count": count, "repartition": True} if repartition else {"count": count}
        return _decode.read(types.FederationDetail, self._send_json("PUT", path, body))

    def nodes(self, federation: Optional[str] = None) -> list[types.Node]:
        """The nodes of a federation, by name."""
        return self._all(types.Node, _federation(self._meant(federation), "nodes"))

    def drain(self, node: str, drained: bool = True, federation: Optional[str] = None) -> types.FederationDetail:
        """Keeps a node from new work, or lets it take work again."""
        path = _federation(self._meant(federation), "nodes", node)
        return _decode.read(types.FederationDetail, self._send_json("PUT", path, {"drained": drained}))

    def revoke_node(self, node: str, federation: Optional[str] = None) -> None:
        """Revokes a node that joined from elsewhere."""
        self._send("DELETE", _federation(self._meant(federation), "nodes", node))

    def connection(self, federation: Optional[str] = None) -> types.Connection:
        """How users of a federation reach its SuperLink."""
        return self._get(types.Connection, _federation(self._meant(federation), "connection"))

    # Runs

    def run(
        self,
        app: AnyPath = "native:mlp",
        federation: Optional[str] = None,
        *,
        config: Optional[Mapping[str, types.Scalar]] = None,
        native_server: Optional[bool] = None,
        program: Optional[AnyPath] = None,
        **settings: types.Scalar,
    ) -> Run:
        """Starts a run, and returns it.

        `app` is the directory of a Flower app, a bundle of `flwr build` (.fab), or an app of the program (native:mlp).
        `settings` are those of the training and of the app, with `_` for `-`: `rounds=10`, `local_epochs=2`. `config` has
        keys exactly as the app has them. As with `trellis run`, a setting that only native training knows, like `strategy`,
        selects native aggregation; `native_server` decides it.
        """
        values = {**{_key(name): value for name, value in settings.items()}, **(config or {})}
        name = self._meant(federation)
        path = _source(app)
        if isinstance(path, Path) and path.is_dir():
            return self._submit(path, name, values, native_server, program)
        if native_server is not None:
            raise ConfigurationError("native_server= is for the directory of an app; a bundle and native:... have a ServerApp")
        new = {"settings": values, **({"app": path} if isinstance(path, str) else {"bundle": _bundle(path)})}
        # The same key for each attempt: the run is started once.
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        body = self._send_json("POST", _federation(name, "runs"), new, headers)
        return Run(self, _decode.read(types.RunInfo, body))

    def _submit(
        self,
        app: Path,
        federation: str,
        settings: Mapping[str, types.Scalar],
        native_server: Optional[bool],
        program: Optional[AnyPath],
    ) -> Run:
        """The program bundles apps, with the rules of `flwr build`."""
        argv = _program.submit(_program.find(program), self._target, federation, app, settings, native_server)
        finished = execute(argv, _program.environment(), self._target.token)
        if finished.code != 0:
            raise _program.failed("trellis run", finished)
        return self.get_run(_program.run_id(finished), federation)

    def runs(self, federation: Optional[str] = None) -> list[Run]:
        """The runs of a federation, the newest first; also of one that is gone and was not purged."""
        infos = self._all(types.RunInfo, _federation(self._meant(federation), "runs"))
        return [Run(self, info) for info in infos]

    def get_run(self, run: str, federation: Optional[str] = None) -> Run:
        """A run by its id."""
        return Run(self, self._run_info(self._meant(federation), run))

    def apps(self) -> types.Apps:
        """What can be run without bringing an app, and the settings of native training."""
        return self._get(types.Apps, "/apps")

    def models(self, federation: Optional[str] = None) -> list[types.ModelFile]:
        """Models of native runs, the newest first."""
        return self._all(types.ModelFile, _federation(self._meant(federation), "models"))

    def download_model(self, path: str, federation: Optional[str] = None) -> bytes:
        """A model by its `path` in the list, as safetensors."""
        place = _federation(self._meant(federation), "models", *path.split("/"))
        return call(self._target, "GET", place, limit_s=_MODEL_S)

    # What happens

    def events(self, federation: Optional[str] = None) -> Iterator[types.Event]:
        """What changes from now on, of one federation or of all.

        The first event is a ResyncEvent. So is one after the connection was lost: look at everything anew. Raises
        Unreachable when the server has been away for a minute.
        """
        absence = _patience.Absence()
        feed = Feed(self._target, federation)
        try:
            while True:
                try:
                    event = feed.next(_patience.LOOK_S)
                except (Unreachable, Refused) as error:
                    absence.excuse(error)
                    sleep(_patience.ASK_AGAIN_S)
                    continue
                absence.over()
                if event is not None:
                    yield event
        finally:
            feed.close()

    def logs(self, part: str, federation: Optional[str] = None, *, follow: bool = False) -> Iterator[str]:
        """Lines of the log of `coordinator` or a node: the last ones there are; with `follow`, what comes after them."""
        path = _federation(self._meant(federation), "parts", part, "log")
        for line in self._log(path, follow, to_the_end=False):
            yield line

    def _log(self, path: str, follow: bool, to_the_end: bool) -> Iterator[str]:
        """Lines of a log; without `follow` of what there is now, in one part or, `to_the_end`, in all parts."""
        absence, after, rest = _patience.Absence(), "", ""
        while True:
            query = f"?wait={'true' if follow else 'false'}" + (f"&after={quote(after, safe='')}" if after else "")
            try:
                part = self._get(types.LogPart, path + query, _patience.SILENCE_S)
            except (Unreachable, Refused) as error:
                if not follow:
                    raise
                absence.excuse(error)
                sleep(_patience.ASK_AGAIN_S)
                continue
            absence.over()
            *lines, rest = (rest + part.text).split("\n")
            for line in lines:
                yield line
            if part.ended or (not follow and (not to_the_end or not part.text)):
                break
            after = part.next
        if rest:
            yield rest

    # Tokens of the server

    def tokens(self) -> list[types.Token]:
        """Tokens of the server, without their secrets."""
        return _decode.read_list(types.Token, self._send("GET", "/tokens"))

    def issue_token(self, name: str, role: types.Role, ttl_s: Optional[float] = None) -> types.IssuedToken:
        """Issues a token. The secret is in `token` of the answer, and told once."""
        new = {"name": name, "role": role, **({} if ttl_s is None else {"ttl_s": ttl_s})}
        return _decode.read(types.IssuedToken, self._send_json("POST", "/tokens", new))

    def revoke_token(self, token_id: str) -> None:
        """Ends a token at once."""
        self._send("DELETE", f"/tokens/{quote(token_id, safe='')}")

    def audit(self, after: Optional[int] = None, limit: int = 50) -> list[types.AuditEntry]:
        """The audit log: logins, refusals, tokens. The newest entries, or those after a number; oldest first."""
        later = "" if after is None else f"&after={after}"
        return _decode.read_list(types.AuditEntry, self._send("GET", f"/audit?limit={limit}{later}"))

    def approve_login(self, federation: str, code: str) -> None:
        """Approves a `flwr login` that waits, for the identity of this client's token (single sign-on)."""
        self._send_json("POST", _federation(federation, "logins"), {"code": code})

    # Calls

    def _run_info(self, federation: str, run: str) -> types.RunInfo:
        return self._get(types.RunInfo, _federation(federation, "runs", run))

    def _stop_run(self, federation: str, run: str) -> types.RunInfo:
        return _decode.read(types.RunInfo, self._send("POST", _federation(federation, "runs", run, "stop")))

    def _rounds(self, federation: str, run: str, after: Optional[int]) -> list[types.TrainingReport]:
        """All reports after a round."""
        reports: list[types.TrainingReport] = []
        while True:
            query = "" if after is None else f"?after={after}"
            part = self._get(types.TrainingRounds, _federation(federation, "runs", run, "rounds") + query)
            reports += part.reports
            if not part.more or not part.reports:
                return reports
            after = part.reports[-1].round

    def _feed(self, federation: str) -> Feed:
        return Feed(self._target, federation)

    def _meant(self, name: Optional[str]) -> str:
        """The federation that is named, or the only one there is."""
        if name is not None:
            return name
        names = [summary.name for summary in self.federations()]
        if len(names) == 1:
            return names[0]
        if not names:
            raise TrellisError("there is no federation: start one with trellis.up() or `trellis up`")
        raise ConfigurationError(f"there are {len(names)} federations: {', '.join(names)}. Name one with federation=")

    def _get(self, kind: type[T], path: str, limit_s: float = _patience.ANSWER_S) -> T:
        return _decode.read(kind, self._send("GET", path, limit_s=limit_s))

    def _all(self, kind: type[T], path: str) -> list[T]:
        """All pages of a list."""
        items: list[T] = []
        cursor = ""
        while True:
            page, following = _decode.read_page(kind, self._send("GET", f"{path}?limit={_PAGE}{cursor}"))
            items += page
            if not following:
                return items
            cursor = f"&cursor={quote(following, safe='')}"

    def _send_json(self, method: str, path: str, body: Any, headers: Optional[Mapping[str, str]] = None) -> bytes:
        return self._send(method, path, json.dumps(body, allow_nan=False).encode(), _JSON, headers)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        kind: str = _JSON,
        headers: Optional[Mapping[str, str]] = None,
        limit_s: float = _patience.ANSWER_S,
    ) -> bytes:
        try:
            return call(self._target, method, path, body, {"Content-Type": kind, **(headers or {})}, limit_s)
        except NotFound as error:
            advice = "" if "did you mean" in error.detail else self._did_you_mean(path)
            raise (NotFound(error.status, error.kind, f"{error.detail}{advice}", error.problems) if advice else error) from None

    def _did_you_mean(self, path: str) -> str:
        """The federations there are, where the one of a call is not among them."""
        parts = path.partition("?")[0].split("/")
        if len(parts) < 3 or parts[1] != "federations":
            return ""
        try:
            names = [each.name for each in self.federations()]
        except TrellisError:
            return ""
        if parts[2] in names:
            return ""
        near = difflib.get_close_matches(parts[2], names, 1)
        if near:
            return f"; did you mean {near[0]}?"
        return f"; there are {', '.join(names)}" if names else "; there is no federation"


class Feed:
    """Events of a federation, or of all. Connects when it must; after an error the next call connects anew."""

    def __init__(self, target: Target, federation: Optional[str]) -> None:
        self._target = target
        self._path = "/events" if federation is None else f"/events?federation={quote(federation, safe='')}"
        self._stream: Optional[EventStream] = None

    def next(self, limit_s: float) -> Optional[types.Event]:
        """The next event; None: there was none in this time."""
        if self._stream is None:
            self._stream = EventStream.open(self._target, self._path)
        try:
            return self._stream.next(limit_s)
        except TrellisError:
            self.close()
            raise

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _federation(name: str, *parts: str) -> str:
    """A path of the API; whatever somebody types stays within its place."""
    return "/federations/" + "/".join(quote(part, safe="") for part in (name, *parts))


def _is_ready(detail: types.FederationDetail) -> bool:
    """Ready by what was seen since its document changed."""
    seen_s = detail.status.at_ms / 1000 if detail.status else 0.0
    # Milliseconds are cut off.
    return detail.summary.state == "ready" and seen_s + 0.001 >= detail.summary.changed_at


def _key(name: str) -> str:
    """The key of a setting from a name of Python."""
    return "num-server-rounds" if name == "rounds" else name.replace("_", "-")


def _source(app: AnyPath) -> Union[Path, str]:
    """The directory or bundle of an app, or the name of one of the program."""
    if isinstance(app, str) and app.startswith(_NATIVE):
        return app
    path = Path(app).expanduser().absolute()
    if path.is_dir() or (path.is_file() and path.suffix == _BUNDLE_SUFFIX):
        return path
    raise ConfigurationError(
        f"{path} is no app: give the directory of a Flower app, a bundle of `flwr build` (.fab), or native:mlp"
    )


def _bundle(path: Path) -> dict[str, str]:
    content = path.read_bytes()
    return {"content": base64.b64encode(content).decode(), "sha256": hashlib.sha256(content).hexdigest()}
