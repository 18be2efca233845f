"""What the server answers, as data. Generated from docs/api/openapi.json by generate.py; do not edit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union


@dataclass(frozen=True)
class Addresses:
    """Host and port of each interface of the coordinator."""

    app: Optional[str] = None
    control: Optional[str] = None
    fleet: Optional[str] = None
    http: Optional[str] = None


@dataclass(frozen=True)
class AppDescription:
    name: str
    settings: list[SettingDescription]
    summary: str


@dataclass(frozen=True)
class Apps:
    """What can be run without bringing an app."""

    apps: list[AppDescription]
    strategies: list[str]
    # Settings of every native training.
    training: list[SettingDescription]


@dataclass(frozen=True)
class AuditEntry:
    """Of a SuperLink, or of a server."""

    actor: str
    at: float
    detail: str
    event: str
    seq: int
    subject: str


@dataclass(frozen=True)
class Bundle:
    """An app as `flwr build` makes it."""

    # Base64.
    content: str
    # SHA-256 of the content, hexadecimal.
    sha256: str


@dataclass(frozen=True)
class CheckpointReport:
    path: str
    size_bytes: Optional[int] = None


@dataclass(frozen=True)
class ClientReport:
    """The reply of one node."""

    node: str
    # Time from the instruction to the reply.
    seconds: float
    weight: float
    # The strategy used the reply, for strategies that choose among replies.
    chosen: Optional[bool] = None
    metrics: dict[str, MetricReport] = field(default_factory=dict)
    update_norm: Optional[float] = None


@dataclass(frozen=True)
class Condition:
    message: str
    met: bool
    # A stable word for programs.
    reason: str


@dataclass(frozen=True)
class Connection:
    """How users of a federation reach it."""

    # Without TLS.
    insecure: bool
    # Host and port of the Control API, for `flwr`.
    control: Optional[str] = None
    fleet: Optional[str] = None
    # Host and port of the HTTP API, for `flwr` from 1.37 on, and for ours.
    http: Optional[str] = None
    # PEM of the authorities to trust; none: those of the system.
    root_certificates: Optional[str] = None
    # The same as a file on the server's machine.
    root_certificates_path: Optional[str] = None
    # File on the server's machine with the token that the SuperLink asks for; none: it asks for none.
    token_path: Optional[str] = None


@dataclass(frozen=True)
class CoordinatorStatus:
    addresses: Addresses
    # `absent`, `unknown`, `starting`, `ready`, `failed` or `stopping`.
    phase: str
    site: str
    # It has the desired generation.
    updated: bool
    runs: Optional[int] = None
    since_ms: Optional[int] = None
    version: Optional[str] = None


@dataclass(frozen=True)
class Detail:
    advice: str
    what: str
    column: Optional[int] = None
    line: Optional[int] = None
    # Which field, like `spec.pools[1].count`, or which setting.
    path: str = ""


@dataclass(frozen=True)
class ResyncEvent:
    """The first of every stream, and whenever some were left out: look at everything anew."""

    kind: Literal["resync"]


@dataclass(frozen=True)
class FederationEvent:
    """Its document, status or nodes changed."""

    federation: FederationSummary
    kind: Literal["federation"]


@dataclass(frozen=True)
class GoneEvent:
    """Nothing of it is left."""

    federation: str
    kind: Literal["gone"]


@dataclass(frozen=True)
class RunEvent:
    """A run is new, or changed its state."""

    kind: Literal["run"]
    run: RunInfo


@dataclass(frozen=True)
class RoundEvent:
    """A round is over."""

    federation: str
    kind: Literal["round"]
    report: TrainingReport
    run: str


@dataclass(frozen=True)
class FailedNode:
    # `error`, `rejected` (invalid reply), `late`, `unreachable` or `not-needed` (enough other replies arrived).
    kind: str
    node: str
    reason: str


@dataclass(frozen=True)
class FederationDetail:
    # The document in its canonical form, YAML.
    document: str
    summary: FederationSummary
    status: Optional[Status] = None


@dataclass(frozen=True)
class FederationSummary:
    """A federation in one line."""

    changed_at: float
    # Why it is in this state: the message of the condition that decides.
    message: str
    name: str
    nodes: NodeCounts
    # Grows with every change of the document.
    revision: int
    # `trellis`, or `flower:1.39.0`.
    runtime: str
    sites: int
    state: State
    # Runs that are not over; none: nobody could ask.
    active_runs: Optional[int] = None


@dataclass(frozen=True)
class FederationSummaryPage:
    items: list[FederationSummary]
    # Where the next page begins; none: this was all.
    next: str = ""


@dataclass(frozen=True)
class FindingReport:
    """A finding about the training."""

    advice: str
    code: str
    # `info` or `warning`.
    severity: str
    what: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class IssuedToken:
    """A token, told once."""

    about: Token
    token: str = field(repr=False)


@dataclass(frozen=True)
class LogPart:
    """Part of a log."""

    # Nothing will come any more.
    ended: bool
    # Ask for what comes after with `after` set to this.
    next: str
    text: str


@dataclass(frozen=True)
class LoginApproval:
    """Which `flwr login` is approved."""

    # The code at the end of the address that `flwr login` shows.
    code: str


@dataclass(frozen=True)
class Me:
    """The holder of the token that was shown."""

    name: str
    role: Role
    # Of the server.
    version: str


@dataclass(frozen=True)
class ModelFile:
    """The model of a round of a native run, as a file."""

    bytes: int
    # Of the last round of its run.
    final: bool
    # Below `/federations/{federation}/models`, to download it.
    path: str
    round: int
    run: str
    saved_at: float
    strategy: str


@dataclass(frozen=True)
class ModelFilePage:
    items: list[ModelFile]
    # Where the next page begins; none: this was all.
    next: str = ""


@dataclass(frozen=True)
class NewRun:
    """A run to start: a bundle that was built before, or an app of Trellis itself."""

    # `native:mlp`, and others that `GET /api/v1/apps` lists. Either this or `bundle`.
    app: Optional[str] = None
    bundle: Optional[Bundle] = None
    # Of the app and of its training. Those that the document has under `spec.training` apply where these say nothing.
    settings: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class NewToken:
    name: str
    role: Role
    # None: until it is revoked.
    ttl_s: Optional[float] = None


@dataclass(frozen=True)
class Node:
    """A node, as the plan and the SuperLink know it."""

    draining: bool
    # `pool-3`; of a node that no document names, what the SuperLink calls it.
    name: str
    # `absent`, `unknown`, `starting`, `ready`, `failed` or `stopping`.
    phase: str
    pool: str
    site: str
    # It is as the document says now.
    updated: bool
    # The document wants it.
    wanted: bool
    busy: Optional[bool] = None
    # Drained by the document or a user.
    drained: bool = False
    # What the SuperLink and reports of rounds call it.
    id: Optional[str] = None
    # It joined from elsewhere: no pool has it, and its site is what it says of its place.
    joined: bool = False
    shard: Optional[int] = None
    since_ms: Optional[int] = None
    version: Optional[str] = None
    why: Optional[str] = None


@dataclass(frozen=True)
class NodeChange:
    """Whether a node is kept from new work."""

    drained: bool


@dataclass(frozen=True)
class NodeCounts:
    busy: int
    present: int
    ready: int
    wanted: int
    # Nodes that joined from elsewhere and are online; the other numbers are without them.
    joined: int = 0


@dataclass(frozen=True)
class NodePage:
    items: list[Node]
    # Where the next page begins; none: this was all.
    next: str = ""


@dataclass(frozen=True)
class NodeStatus:
    draining: bool
    name: str
    phase: str
    pool: str
    site: str
    updated: bool
    wanted: bool
    busy: Optional[bool] = None
    # Drained by the document or a user.
    drained: bool = False
    # Its id in the SuperLink.
    id: Optional[str] = None
    # It joined the SuperLink by itself and belongs to no pool.
    joined: bool = False
    shard: Optional[int] = None
    since_ms: Optional[int] = None
    version: Optional[str] = None
    why: Optional[str] = None


@dataclass(frozen=True)
class PastFederation:
    """A federation that is gone, and whose runs are kept."""

    # When the last of them was submitted.
    last_run_at: float
    name: str
    runs: int


@dataclass(frozen=True)
class PhaseReport:
    """Training or evaluation of a round."""

    # Nodes whose replies were aggregated.
    answered: int
    # Nodes that got an instruction.
    asked: int
    seconds: float
    clients: list[ClientReport] = field(default_factory=list)
    # Nodes without an aggregated reply, and why.
    failed: list[FailedNode] = field(default_factory=list)
    # Weighted means over the replies.
    metrics: dict[str, MetricReport] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanReport:
    # What would be done next. What must wait for these is in a later plan.
    actions: list[PlannedAction]
    # What changes in the document, as a unified diff of the canonical YAML; empty: nothing.
    diff: str
    # There is a federation of this name already.
    exists: bool
    federation: str
    # Promises that the chosen runtime cannot keep.
    promises_lost: list[str]
    # What would not be done, and why; the gravest first.
    report: list[Why]
    status: Status
    # All of it as people read it, without the templates.
    text: str
    # What was left out of the document, or may not mean what was meant.
    warnings: list[str]
    # What drivers would send to their sites, as the sites take it.
    templates: list[SiteTemplate] = field(default_factory=list)


@dataclass(frozen=True)
class PlannedAction:
    site: str
    # `create`, `replace`, `restart`, `drain` or `delete`.
    verb: str
    # `coordinator`, or the name of a node.
    what: str
    shard: Optional[int] = None


@dataclass(frozen=True)
class Pool:
    """How many nodes a pool shall have."""

    count: int
    # Divides the data into as many shards as there are nodes, as a change of `training.partitions`.
    repartition: bool = False


@dataclass(frozen=True)
class PoolStatus:
    busy: int
    name: str
    present: int
    ready: int
    site: str
    updated: int
    wanted: int


@dataclass(frozen=True)
class Problem:
    # What happened this time, and what to do.
    detail: str
    status: int
    # The same for all problems of this type.
    title: str
    # For programs: `about:blank`, or `urn:trellis:` and a word that never changes.
    type: str
    # Each thing that is wrong, where there are several or where they have a place.
    problems: list[Detail] = field(default_factory=list)


@dataclass(frozen=True)
class RunInfo:
    # `publisher/name`.
    app: str
    federation: str
    id: str
    # Trained by Trellis itself; otherwise by the ServerApp of the app, in Python.
    native: bool
    state: RunState
    submitted_at: float
    version: str
    # Account of the SuperLink that submitted it.
    account: str = ""
    # Values of this run; for all other keys those of the app apply.
    config: dict[str, Scalar] = field(default_factory=dict)
    # Why it ended so.
    details: str = ""
    finished_at: Optional[float] = None
    # Of one that is finished: `completed`, `failed` or `stopped`.
    outcome: Optional[str] = None
    started_at: Optional[float] = None
    # Name of the token with which it was started here; none: it was submitted to the SuperLink itself.
    started_by: Optional[str] = None
    training: Optional[Training] = None


@dataclass(frozen=True)
class RunPage:
    items: list[RunInfo]
    # Where the next page begins; none: this was all.
    next: str = ""


@dataclass(frozen=True)
class SettingDescription:
    default: str
    # What may be given, in words.
    expects: str
    help: str
    name: str


@dataclass(frozen=True)
class SiteStatus:
    name: str
    # Present nodes, desired or not.
    nodes: int
    reachable: bool
    why: Optional[str] = None


@dataclass(frozen=True)
class SiteTemplate:
    site: str
    text: str
    # What it describes.
    title: str


@dataclass(frozen=True)
class Status:
    at_ms: int
    # Nodes that are unavailable because of actions, and the limit.
    away: int
    coordinator: CoordinatorStatus
    federation: str
    # The federation was deleted, and no part is left.
    gone: bool
    max_unavailable: int
    # The report of the plan.
    messages: list[Why]
    nodes: list[NodeStatus]
    pools: list[PoolStatus]
    # All desired parts are ready.
    ready: Condition
    # Actions are in progress or waiting.
    reconciling: Condition
    # Number of shards of the data.
    shards: int
    sites: list[SiteStatus]
    # Progress needs a user.
    stalled: Condition
    # Shards without a node.
    orphaned_shards: int = 0


@dataclass(frozen=True)
class Token:
    created_at: float
    id: str
    # Whose it is, or what for.
    name: str
    role: Role
    expires_at: Optional[float] = None


@dataclass(frozen=True)
class Training:
    """How far a run is, from its last report."""

    # Of the last round, as `train_loss` and `evaluate_accuracy`.
    metrics: dict[str, float]
    round: int
    # 0: nobody knows.
    rounds_planned: int
    strategy: str
    # Where the newest checkpoint is, on the SuperLink's machine.
    checkpoint: Optional[str] = None
    # How long the last round took; absent: nobody knows.
    round_seconds: Optional[float] = None


@dataclass(frozen=True)
class TrainingReport:
    """A report. One per round and kind; a later report replaces an earlier one."""

    # `round`: after each round; `end`: after the last one, about the whole training.
    kind: str
    round: int
    rounds_planned: int
    started_at: float
    strategy: str
    checkpoint: Optional[CheckpointReport] = None
    # Privacy budget spent so far (differential privacy).
    epsilon: Optional[float] = None
    evaluate: Optional[PhaseReport] = None
    findings: list[FindingReport] = field(default_factory=list)
    # What was left out because the report would have been too long.
    left_out: str = ""
    # Why the model did not change in this round, or why the training ended.
    note: str = ""
    train: Optional[PhaseReport] = None
    # L2 norm of the model update of this round.
    update_norm: Optional[float] = None


@dataclass(frozen=True)
class TrainingRounds:
    """The reports of a run, in the order of rounds."""

    # Ask again, after the last round that is here.
    more: bool
    reports: list[TrainingReport]


@dataclass(frozen=True)
class Why:
    # The object, as users name it: `federation`, `coordinator`, `clinic-3`, `pool clinic`, `site lab`.
    about: str
    text: str
    weight: Weight


Event = Union[ResyncEvent, FederationEvent, GoneEvent, RunEvent, RoundEvent]
FederationDocument = dict[str, Any]
MetricReport = Union[float, list[float], str]
Role = Literal["viewer", "runner", "admin"]
RunState = Literal["pending", "starting", "running", "finished"]
Scalar = Union[bool, int, float, str]
State = Literal["new", "ready", "reconciling", "stalled", "leaving"]
Weight = Literal["stuck", "waits", "note"]
