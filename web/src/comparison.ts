// Runs beside each other: curves over each other, settings that differ, results, cost. Pure: runs and reports in, rows out.

import type { Axis } from "./charts/Curves.svelte";
import type { Run, Scalar, TrainingReport } from "./api";
import { bytes, duration, metric as told } from "./format";
import { curves, epsilonOf, failedIn, PHASES, roundSeconds, roundsOf, runSeconds, type Curve, type PhaseName } from "./training";
import { strategyOf } from "./words";

const STRATEGY = "strategy";
const ROUNDS = "num-server-rounds";

/** Words that metrics begin or go on with, as in `loss` and `top1_acc`. */
const LOWER_IS_BETTER = /(^|[^a-z])(loss|err|r?mse|mae|perplexity)/i;
const HIGHER_IS_BETTER = /(^|[^a-z])(acc|r?auc|f1|precision|recall|score|r2)/i;

/** A run that is compared. */
export interface Subject {
  run: Run;
  reports: TrainingReport[];
  letter: string;
  color: string;
}

/** What a chart shows: `evaluate acc`. */
export interface Topic {
  title: string;
  phase: PhaseName;
  metric: string;
}

/** All metrics that any of the runs has; those of the evaluation first. */
export function topics(all: Curve[][]): Topic[] {
  const has = (phase: PhaseName) => (curve: Curve) => curve[phase].some((value) => value !== null);
  const found = PHASES.toReversed().flatMap((phase) =>
    all.flatMap((of) => of.filter(has(phase)).map(({ metric }) => ({ title: `${phase} ${metric}`, phase, metric }))),
  );
  return [...new Map(found.map((topic) => [topic.title, topic])).values()];
}

/** Where on the axis each round ends. */
export function positions({ run, reports }: Subject, along: Axis): number[] {
  const rounds = roundsOf(reports);
  const start = run.started_at ?? rounds[0]?.started_at ?? 0;
  return rounds.map((report) => (along === "round" ? report.round : Math.max(0, report.started_at + roundSeconds(report) - start)));
}

export interface Row {
  name: string;
  /** One for each run; nothing: the run does not say. */
  cells: (string | undefined)[];
  /** For bars, where sizes differ. */
  sizes?: (number | undefined)[] | undefined;
  /** Which of the runs is best, where that is clear. */
  best?: boolean[] | undefined;
}

const keysOf = (runs: Run[]): string[] =>
  [...new Set(runs.flatMap((run) => Object.keys(run.config ?? {})))].filter((key) => key !== STRATEGY).sort();

/** The settings that tell the runs apart, but for strategy and rounds, which stand elsewhere; those with the most values first. */
export function differing(runs: Run[]): string[] {
  const counts = new Map(keysOf(runs).map((key) => [key, new Set(runs.map((run) => run.config?.[key])).size]));
  return [...counts.keys()].filter((key) => key !== ROUNDS && counts.get(key)! > 1).sort((a, b) => counts.get(b)! - counts.get(a)!);
}

/** `lr=0.1 local-epochs=3`, without those that the run does not set. */
export const settingsText = (run: Run, keys: string[]): string =>
  keys.flatMap((key) => (run.config?.[key] === undefined ? [] : `${key}=${run.config[key]}`)).join(" ");

/** What was run, and settings by name; with `all` also those that are equal. */
export function settings(runs: Run[], all: boolean): Row[] {
  const facts: [string, (run: Run) => Scalar | undefined][] = [
    ["app", (run) => run.app],
    ["app version", (run) => run.version],
    [STRATEGY, strategyOf],
  ];
  const rows = [...facts, ...keysOf(runs).map((key) => [key, (run: Run) => run.config?.[key]] as const)].map(([name, of]) => ({
    name,
    cells: runs.map((run) => of(run)?.toString() || undefined),
  }));
  return rows.filter(({ cells }) => cells.some((cell) => cell !== undefined) && (all || new Set(cells).size > 1));
}

/** The last value of each metric. */
export function results(all: Curve[][], shown: Topic[]): Row[] {
  return shown.map(({ title, phase, metric }) => {
    const values = all.map((of) => of.find((curve) => curve.metric === metric)?.[phase].findLast((value) => value !== null) ?? undefined);
    return { name: title, cells: values.map((value) => (value === undefined ? undefined : told(value))), best: bestOf(metric, values) };
  });
}

/** Known by the name of the metric only; nothing is best among equals. */
function bestOf(metric: string, values: (number | undefined)[]): boolean[] | undefined {
  const finite = values.filter((value) => value !== undefined && Number.isFinite(value)) as number[];
  const lower = LOWER_IS_BETTER.test(metric);
  if (new Set(finite).size < 2 || !(lower || HIGHER_IS_BETTER.test(metric))) return undefined;
  const best = lower ? Math.min(...finite) : Math.max(...finite);
  return values.map((value) => value === best);
}

function costOf({ run, reports }: Subject, now_s: number) {
  const rounds = roundsOf(reports);
  const phases = rounds.flatMap((report) => PHASES.flatMap((phase) => report[phase] ?? []));
  const replies = phases.flatMap((phase) => phase.clients ?? []);
  // Long reports leave out single nodes; then nothing is said of them.
  const isWhole = replies.length > 0 && phases.every((phase) => (phase.clients?.length ?? 0) >= phase.answered);
  return {
    seconds: runSeconds(run, now_s),
    rounds: rounds.length,
    roundSeconds: rounds.length ? rounds.reduce((sum, report) => sum + roundSeconds(report), 0) / rounds.length : undefined,
    nodeSeconds: isWhole ? replies.reduce((sum, reply) => sum + reply.seconds, 0) : undefined,
    nodes: isWhole ? new Set(replies.map((reply) => reply.node)).size : undefined,
    replies: phases.reduce((sum, phase) => sum + phase.answered, 0),
    failures: phases.reduce((sum, phase) => sum + failedIn(phase), 0),
    checkpointBytes: reports.findLast((report) => report.checkpoint)?.checkpoint?.size_bytes,
    epsilon: epsilonOf(reports),
  };
}

export function costs(subjects: Subject[], now_s: number): Row[] {
  const all = subjects.map((subject) => costOf(subject, now_s));
  const row = (name: string, of: (cost: (typeof all)[number]) => number | undefined, tell: (value: number) => string): Row => {
    const sizes = all.map(of);
    return { name, sizes: new Set(sizes).size > 1 ? sizes : undefined, cells: sizes.map((size) => (size === undefined ? undefined : tell(size))) };
  };
  const rows = [
    row("duration", (cost) => cost.seconds, duration),
    row("mean time per round", (cost) => cost.roundSeconds, duration),
    row("node time", (cost) => cost.nodeSeconds, duration),
    row("nodes", (cost) => cost.nodes, String),
    row("rounds", (cost) => cost.rounds, String),
    row("replies", (cost) => cost.replies, String),
    row("failed replies", (cost) => cost.failures, String),
    row("checkpoint size", (cost) => cost.checkpointBytes, bytes),
    row("privacy spent (ε)", (cost) => cost.epsilon, (value) => value.toFixed(2)),
  ];
  return rows.filter(({ cells }) => cells.some((cell) => cell !== undefined));
}

export const curvesOf = (subject: Subject): Curve[] => curves(roundsOf(subject.reports));
