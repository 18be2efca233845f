// The REST API as data, written by hand from crates/control/api; a test compares it with docs/api/openapi.json.
// Knows nothing of how a call travels.
// Ids of runs and nodes are text. Times are seconds since 1970, unless a name ends with `_ms`.

export type Role = "viewer" | "runner" | "admin";

export interface Me {
  name: string;
  role: Role;
  version: string;
}

export interface Page<T> {
  items: T[];
  next?: string;
}

export type State = "new" | "ready" | "reconciling" | "stalled" | "leaving";

export interface NodeCounts {
  wanted: number;
  present: number;
  ready: number;
  busy: number;
  joined?: number;
}

export interface FederationSummary {
  name: string;
  state: State;
  message: string;
  revision: number;
  runtime: string;
  sites: number;
  nodes: NodeCounts;
  active_runs?: number;
  changed_at: number;
}

export interface PastFederation {
  name: string;
  runs: number;
  last_run_at: number;
}

export interface FederationDetail {
  summary: FederationSummary;
  document: string;
  status?: Status;
}

export interface Condition {
  met: boolean;
  reason: string;
  message: string;
}

export type Phase = "absent" | "unknown" | "starting" | "ready" | "failed" | "stopping";

export interface Addresses {
  fleet?: string | null;
  control?: string | null;
  app?: string | null;
  http?: string | null;
}

export interface CoordinatorStatus {
  site: string;
  phase: Phase;
  updated: boolean;
  version?: string | null;
  addresses: Addresses;
  runs?: number | null;
  since_ms?: number | null;
}

export interface PoolStatus {
  name: string;
  site: string;
  wanted: number;
  present: number;
  ready: number;
  updated: number;
  busy: number;
}

export interface SiteStatus {
  name: string;
  reachable: boolean;
  why?: string | null;
  nodes: number;
}

export interface NodeStatus {
  name: string;
  id?: string | null;
  pool: string;
  site: string;
  wanted: boolean;
  shard?: number | null;
  phase: Phase;
  why?: string | null;
  updated: boolean;
  busy?: boolean | null;
  draining: boolean;
  drained?: boolean;
  joined?: boolean;
  version?: string | null;
  since_ms?: number | null;
}

export interface Status {
  federation: string;
  ready: Condition;
  reconciling: Condition;
  stalled: Condition;
  gone: boolean;
  coordinator: CoordinatorStatus;
  pools: PoolStatus[];
  sites: SiteStatus[];
  nodes: NodeStatus[];
  shards: number;
  orphaned_shards?: number;
  away: number;
  max_unavailable: number;
  at_ms: number;
  messages: Why[];
}

export type Weight = "stuck" | "waits" | "note";

export interface Why {
  weight: Weight;
  about: string;
  text: string;
}

export interface Pool {
  count: number;
  repartition?: boolean;
}

export interface NodeChange {
  drained: boolean;
}

export interface Node {
  name: string;
  pool: string;
  site: string;
  id?: string;
  shard?: number;
  wanted: boolean;
  phase: Phase;
  why?: string;
  updated: boolean;
  busy?: boolean;
  draining: boolean;
  drained?: boolean;
  joined?: boolean;
  version?: string;
  since_ms?: number;
}

export interface Connection {
  control?: string | null;
  http?: string | null;
  fleet?: string | null;
  insecure: boolean;
  root_certificates?: string;
  root_certificates_path?: string;
  token_path?: string;
}

export interface PlanReport {
  federation: string;
  exists: boolean;
  diff: string;
  actions: PlannedAction[];
  report: Why[];
  promises_lost: string[];
  warnings: string[];
  /** What would be sent to each site, as the sites take it. */
  templates?: SiteTemplate[];
  status: Status;
  text: string;
}

export interface SiteTemplate {
  site: string;
  title: string;
  text: string;
}

export interface PlannedAction {
  verb: string;
  what: string;
  site: string;
  shard?: number;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  problems?: Detail[];
}

export interface Detail {
  path?: string;
  line?: number;
  column?: number;
  what: string;
  advice: string;
}

export type RunState = "pending" | "starting" | "running" | "finished";

export interface Run {
  id: string;
  federation: string;
  app: string;
  version: string;
  state: RunState;
  outcome?: string;
  details?: string;
  native: boolean;
  account?: string;
  started_by?: string;
  config?: Record<string, Scalar>;
  submitted_at: number;
  started_at?: number;
  finished_at?: number;
  training?: Training;
}

export interface Training {
  strategy: string;
  round: number;
  rounds_planned: number;
  metrics: Record<string, number>;
  checkpoint?: string;
  /** How long the last round took. */
  round_seconds?: number;
}

export interface TrainingRounds {
  reports: TrainingReport[];
  more: boolean;
}

export interface TrainingReport {
  round: number;
  /** `round`: after each round; `end`: after the last one, about the whole training. */
  kind: string;
  strategy: string;
  rounds_planned: number;
  started_at: number;
  train?: PhaseReport;
  evaluate?: PhaseReport;
  update_norm?: number;
  findings?: FindingReport[];
  checkpoint?: CheckpointReport;
  epsilon?: number;
  note?: string;
  left_out?: string;
}

export interface PhaseReport {
  seconds: number;
  asked: number;
  answered: number;
  failed?: FailedNode[];
  metrics?: Record<string, MetricReport>;
  clients?: ClientReport[];
}

/** Text stands for numbers that JSON does not have: `nan`, `inf`, `-inf`. */
export type MetricReport = number | number[] | string;

export interface FailedNode {
  node: string;
  kind: string;
  reason: string;
}

export interface ClientReport {
  node: string;
  weight: number;
  seconds: number;
  update_norm?: number;
  chosen?: boolean;
  metrics?: Record<string, MetricReport>;
}

export interface FindingReport {
  code: string;
  severity: string;
  what: string;
  numbers?: Record<string, number>;
  advice: string;
}

export interface CheckpointReport {
  path: string;
  size_bytes?: number;
}

export type Scalar = boolean | number | string;

export interface NewRun {
  app?: string;
  bundle?: Bundle;
  settings?: Record<string, Scalar>;
}

export interface Bundle {
  content: string;
  sha256: string;
}

export interface LogPart {
  text: string;
  next: string;
  ended: boolean;
}

export interface Apps {
  apps: AppDescription[];
  training: SettingDescription[];
  strategies: string[];
}

export interface AppDescription {
  name: string;
  summary: string;
  settings: SettingDescription[];
}

export interface SettingDescription {
  name: string;
  help: string;
  expects: string;
  default: string;
}

export interface Token {
  id: string;
  name: string;
  role: Role;
  created_at: number;
  expires_at?: number;
}

export interface NewToken {
  name: string;
  role: Role;
  ttl_s?: number;
}

export interface IssuedToken {
  token: string;
  about: Token;
}

export type Event =
  | { kind: "resync" }
  | { kind: "federation"; federation: FederationSummary }
  | { kind: "gone"; federation: string }
  | { kind: "run"; run: Run }
  | { kind: "round"; federation: string; run: string; report: TrainingReport };
