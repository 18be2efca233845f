// The calls of the REST API. Knows nothing of pages; what goes wrong becomes a `Refused` with all that the server said.

import type {
  Apps,
  Connection,
  FederationDetail,
  FederationSummary,
  IssuedToken,
  LogPart,
  Me,
  NewRun,
  NewToken,
  Node,
  NodeChange,
  Page,
  PastFederation,
  PlanReport,
  Problem,
  Run,
  Token,
  TrainingReport,
  TrainingRounds,
} from "./api";
import { session } from "./session.svelte";

const BASE = "/api/v1";
const PAGE_SIZE = 1000;
/** So that a server that says `more` for ever is not asked for ever. */
const MAX_PAGES = 200;

/** The server said no, or could not be asked. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }

  get status(): number {
    return this.problem.status;
  }
}

interface Options {
  method?: string;
  body?: unknown;
  text?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

function path(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((whole, part, index) => whole + encodeURIComponent(values[index - 1] ?? "") + part);
}

function query(values: Record<string, string | number | boolean | undefined>): string {
  const given = Object.entries(values).filter((entry) => entry[1] !== undefined);
  return given.length ? `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}` : "";
}

/** Sends a call with the token. A 401 ends the session: the login form says why. */
export async function send(route: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const token = session.token;
  if (token) headers.Authorization = `Bearer ${token}`;
  let body = options.text;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(BASE + route, { method: options.method ?? "GET", headers, body, signal: options.signal });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new Refused(unreachable());
  }
  if (response.ok) return response;
  const refused = new Refused(await problemOf(response));
  if (response.status === 401 && session.token === token) session.end(refused.message);
  throw refused;
}

function unreachable(): Problem {
  const detail = "The server cannot be reached. Check that it runs: trellis status";
  return { type: "about:blank", title: "Unreachable", status: 0, detail };
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const told = (await response.json()) as Partial<Problem>;
    if (typeof told.title === "string") return { type: "about:blank", detail: "", ...told, status: response.status } as Problem;
  } catch {
    // It is no problem document; what HTTP says must do.
  }
  const title = response.statusText || `HTTP ${response.status}`;
  return { type: "about:blank", title, status: response.status, detail: `The server answered ${title}.` };
}

async function json<T>(route: string, options?: Options): Promise<T> {
  return (await send(route, options)).json() as Promise<T>;
}

async function everything<T>(route: string, signal?: AbortSignal): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page++) {
    const part: Page<T> = await json(route + query({ limit: PAGE_SIZE, cursor }), { signal });
    items.push(...part.items);
    cursor = part.next;
    if (!cursor) break;
  }
  return items;
}

const federation = (name: string) => path`/federations/${name}`;
const runRoute = (name: string, run: string) => path`/federations/${name}/runs/${run}`;

export const me = (): Promise<Me> => json("/me");
export const apps = (): Promise<Apps> => json("/apps");

export const federations = (signal?: AbortSignal) => everything<FederationSummary>("/federations", signal);

/** Federations that are gone and whose runs are kept. */
export const pastFederations = (signal?: AbortSignal): Promise<PastFederation[]> => json("/past-federations", { signal });
export const detail = (name: string, signal?: AbortSignal): Promise<FederationDetail> =>
  json(federation(name), { signal });
export const nodes = (name: string, signal?: AbortSignal) => everything<Node>(`${federation(name)}/nodes`, signal);
export const connection = (name: string, signal?: AbortSignal): Promise<Connection> =>
  json(`${federation(name)}/connection`, { signal });
export const currentPlan = (name: string, signal?: AbortSignal): Promise<PlanReport> =>
  json(`${federation(name)}/plan`, { signal });

const YAML = { "Content-Type": "application/yaml" };

export const plan = (document: string): Promise<PlanReport> =>
  json("/plan", { method: "POST", text: document, headers: YAML });

/** Refused when somebody else changed the document in between. `null`: only if there is none of this name. */
export const apply = (name: string, document: string, revision: number | null): Promise<FederationDetail> => {
  const condition: Record<string, string> = revision === null ? { "If-None-Match": "*" } : { "If-Match": `"${revision}"` };
  return json(federation(name), { method: "PUT", text: document, headers: { ...YAML, ...condition } });
};

export const scale = (name: string, pool: string, count: number): Promise<FederationDetail> =>
  json(federation(name) + path`/pools/${pool}`, { method: "PUT", body: { count } });

export const drain = (name: string, node: string, drained: boolean): Promise<FederationDetail> =>
  json(federation(name) + path`/nodes/${node}`, { method: "PUT", body: { drained } satisfies NodeChange });

export const revokeNode = async (name: string, node: string): Promise<void> =>
  void (await send(federation(name) + path`/nodes/${node}`, { method: "DELETE" }));

export const remove = async (name: string): Promise<void> => void (await send(federation(name), { method: "DELETE" }));

export const runs = (name: string, signal?: AbortSignal) => everything<Run>(`${federation(name)}/runs`, signal);
export const run = (name: string, id: string, signal?: AbortSignal): Promise<Run> =>
  json(runRoute(name, id), { signal });
export const stop = (name: string, id: string): Promise<Run> => json(`${runRoute(name, id)}/stop`, { method: "POST" });

/** `key`: sent again with the same one, it starts no second run. */
export const start = (name: string, wanted: NewRun, key: string): Promise<Run> =>
  json(`${federation(name)}/runs`, { method: "POST", body: wanted, headers: { "Idempotency-Key": key } });

/** The model of a round of a native run, as a file. */
export interface ModelFile {
  run: string;
  round: number;
  /** Of the last round of its run. */
  final: boolean;
  path: string;
  bytes: number;
  saved_at: number;
}

/** None where the server does not offer models: an older one, or a SuperLink on another machine. */
export async function models(name: string, signal?: AbortSignal): Promise<ModelFile[]> {
  try {
    return await everything<ModelFile>(`${federation(name)}/models`, signal);
  } catch (error) {
    if (error instanceof Refused && error.status === 404) return [];
    throw error;
  }
}

export const model = async (name: string, file: ModelFile): Promise<Blob> =>
  (await send(`${federation(name)}/models/${file.path.split("/").map(encodeURIComponent).join("/")}`)).blob();

/** All reports after a round, in their order. */
export async function rounds(name: string, id: string, after: number | undefined, signal?: AbortSignal) {
  const reports: TrainingReport[] = [];
  for (let page = 0; page < MAX_PAGES; page++) {
    const part: TrainingRounds = await json(`${runRoute(name, id)}/rounds${query({ after })}`, { signal });
    reports.push(...part.reports);
    const last = part.reports.at(-1);
    if (!part.more || !last) break;
    after = last.round;
  }
  return reports;
}

/** Reads on in a log; a call may be held until there is more. */
export type ReadLog = (after: string | undefined, signal: AbortSignal) => Promise<LogPart>;

export const runLog =
  (name: string, id: string): ReadLog =>
  (after, signal) =>
    json(`${runRoute(name, id)}/log${query({ after, wait: after !== undefined })}`, { signal });

/** What ClientApps wrote on a node in a run. */
export const appLog =
  (name: string, id: string, node: string): ReadLog =>
  (after, signal) =>
    json(runRoute(name, id) + path`/nodes/${node}/log` + query({ after, wait: after !== undefined }), { signal });

export const partLog =
  (name: string, part: string): ReadLog =>
  (after, signal) =>
    json(federation(name) + path`/parts/${part}/log` + query({ after, wait: after !== undefined }), { signal });

export const tokens = (signal?: AbortSignal): Promise<Token[]> => json("/tokens", { signal });
export const issue = (wanted: NewToken): Promise<IssuedToken> => json("/tokens", { method: "POST", body: wanted });
export const revoke = async (id: string): Promise<void> => void (await send(path`/tokens/${id}`, { method: "DELETE" }));
