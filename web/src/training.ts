// What the reports of a run tell, arranged for looking at. Pure: reports in, curves and rows out.

import type { FindingReport, MetricReport, PhaseReport, Run, TrainingReport } from "./api";

export type PhaseName = "train" | "evaluate";
export const PHASES: PhaseName[] = ["train", "evaluate"];

/** Adds reports to those that are known; the same round again replaces. */
export function merged(known: TrainingReport[], fresh: TrainingReport[]): TrainingReport[] {
  if (!fresh.length) return known;
  const key = (report: TrainingReport) => `${report.kind}/${report.round}`;
  const all = new Map([...known, ...fresh].map((report) => [key(report), report]));
  return [...all.values()].sort((a, b) => a.round - b.round || Number(a.kind === "end") - Number(b.kind === "end"));
}

export const roundsOf = (reports: TrainingReport[]): TrainingReport[] => reports.filter((report) => report.kind !== "end");

/** How long a run took so far. */
export const runSeconds = (run: Run, now_s: number): number | undefined =>
  run.started_at === undefined ? undefined : Math.max(0, (run.finished_at ?? now_s) - run.started_at);

/** The privacy that was spent so far; the report about the whole training does not say it. */
export const epsilonOf = (reports: TrainingReport[]): number | undefined => reports.findLast((report) => report.epsilon !== undefined)?.epsilon;

/** One number of a metric; of several their mean. */
export function numberOf(value: MetricReport | undefined): number | null {
  if (value === undefined) return null;
  if (typeof value === "number") return value;
  if (Array.isArray(value)) return value.length ? value.reduce((sum, one) => sum + one, 0) / value.length : null;
  if (value === "nan") return Number.NaN;
  return value === "inf" ? Infinity : -Infinity;
}

export interface Curve {
  /** `loss`, as the app calls it. */
  metric: string;
  rounds: number[];
  train: (number | null)[];
  evaluate: (number | null)[];
}

/** A curve for each metric that any round has; loss and accuracy first. */
export function curves(rounds: TrainingReport[]): Curve[] {
  const names = new Set<string>();
  for (const report of rounds) {
    for (const phase of PHASES) for (const name of Object.keys(report[phase]?.metrics ?? {})) names.add(plain(name, phase));
  }
  const rank = (name: string) => (/loss/.test(name) ? 0 : /acc/.test(name) ? 1 : 2);
  return [...names]
    .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))
    .map((metric) => ({
      metric,
      rounds: rounds.map((report) => report.round),
      train: rounds.map((report) => valueOf(report.train, "train", metric)),
      evaluate: rounds.map((report) => valueOf(report.evaluate, "evaluate", metric)),
    }));
}

/** Apps name their metrics `train_loss` or `eval_loss`; both phases' are to be seen in one picture. */
export function plain(name: string, phase: PhaseName): string {
  const prefixes = phase === "train" ? ["train_", "train-"] : ["evaluate_", "evaluate-", "eval_", "eval-"];
  const prefix = prefixes.find((one) => name.startsWith(one) && name.length > one.length);
  return prefix ? name.slice(prefix.length) : name;
}

/** As the Python package names it: `train_loss`, also where the app says the phase itself. */
export const metricKey = (phase: PhaseName, name: string): string => (name.startsWith(phase) ? name : `${phase}_${name}`);

export const roundSeconds = (report: TrainingReport): number => PHASES.reduce((sum, phase) => sum + (report[phase]?.seconds ?? 0), 0);

function valueOf(phase: PhaseReport | undefined, name: PhaseName, metric: string): number | null {
  const metrics = phase?.metrics ?? {};
  const found = Object.keys(metrics).find((one) => plain(one, name) === metric);
  return found === undefined ? null : numberOf(metrics[found]);
}

export interface Contribution {
  node: string;
  /** Replies that counted, and how often it was asked and failed. */
  answered: number;
  failures: Map<string, number>;
  lastFailure: string;
  /** Its part of all weight, over all rounds of training. */
  share: number;
  meanSeconds: number;
  lastNorm: number | undefined;
  chosen: number;
  chosenOf: number;
}

interface Sum {
  weight: number;
  seconds: number;
  replies: number;
}

export function contributions(rounds: TrainingReport[]): Contribution[] {
  const found = new Map<string, { told: Contribution; sum: Sum }>();
  let whole = 0;
  for (const report of rounds) {
    for (const phase of PHASES) {
      for (const client of report[phase]?.clients ?? []) {
        const { told, sum } = entry(found, client.node);
        told.answered += 1;
        sum.seconds += client.seconds;
        sum.replies += 1;
        if (phase !== "train") continue;
        sum.weight += client.weight;
        whole += client.weight;
        told.lastNorm = client.update_norm ?? told.lastNorm;
        if (client.chosen === undefined) continue;
        told.chosenOf += 1;
        if (client.chosen) told.chosen += 1;
      }
      for (const failed of report[phase]?.failed ?? []) {
        const { told } = entry(found, failed.node);
        told.failures.set(failed.kind, (told.failures.get(failed.kind) ?? 0) + 1);
        told.lastFailure = `Round ${report.round}, ${failed.kind}: ${failed.reason}`;
      }
    }
  }
  return [...found.values()].map(({ told, sum }) => ({
    ...told,
    share: whole > 0 ? sum.weight / whole : 0,
    meanSeconds: sum.replies ? sum.seconds / sum.replies : 0,
  }));
}

function entry(found: Map<string, { told: Contribution; sum: Sum }>, node: string) {
  let known = found.get(node);
  if (!known) {
    const told = { node, answered: 0, failures: new Map(), lastFailure: "", share: 0, meanSeconds: 0, lastNorm: undefined, chosen: 0, chosenOf: 0 };
    known = { told, sum: { weight: 0, seconds: 0, replies: 0 } };
    found.set(node, known);
  }
  return known;
}

/** Failures that are somebody's fault: who was merely not needed has not failed. */
export function failureCount(one: Contribution): number {
  return [...one.failures].reduce((sum, [kind, count]) => sum + (kind === "not-needed" ? 0 : count), 0);
}

export const failedIn = (phase: PhaseReport | undefined): number =>
  (phase?.failed ?? []).filter((failed) => failed.kind !== "not-needed").length;

export interface Finding {
  report: FindingReport;
  first: number;
  last: number;
  times: number;
}

/** Each kind of finding once, in its newest words, with the rounds that it is about; warnings first. */
export function findings(reports: TrainingReport[]): Finding[] {
  const found = new Map<string, Finding>();
  for (const { round, findings: told } of reports) {
    for (const report of told ?? []) {
      const known = found.get(report.code);
      found.set(report.code, { report, first: known?.first ?? round, last: round, times: (known?.times ?? 0) + 1 });
    }
  }
  const grave = (one: Finding) => Number(one.report.severity === "warning");
  return [...found.values()].sort((a, b) => grave(b) - grave(a) || b.last - a.last);
}
