// How single nodes fared over the rounds. Pure: reports in, curves out.

import type { ClientReport, TrainingReport } from "./api";
import { numberOf, PHASES, plain, type PhaseName } from "./training";

/** What is known of each reply: a metric, or one of the measures. */
export interface Measure {
  /** `train loss`, as in the address. */
  title: string;
  phase: PhaseName;
  of: (reply: ClientReport) => number | null;
}

const MEASURES: [string, PhaseName[], (reply: ClientReport) => number | null][] = [
  ["seconds to reply", PHASES, (reply) => reply.seconds],
  ["weight", PHASES, (reply) => reply.weight],
  ["update norm", ["train"], (reply) => reply.update_norm ?? null],
];

/** Metrics first, those of the evaluation before those of the training. */
export function measures(rounds: TrainingReport[]): Measure[] {
  const phases = PHASES.toReversed().map((phase) => ({ phase, replies: rounds.flatMap((report) => report[phase]?.clients ?? []) }));
  const metrics = phases.flatMap(({ phase, replies }) =>
    [...new Set(replies.flatMap((reply) => Object.keys(reply.metrics ?? {})))].map((name) => ({
      title: `${phase} ${plain(name, phase)}`,
      phase,
      of: (reply: ClientReport) => numberOf(reply.metrics?.[name]),
    })),
  );
  const others = phases.flatMap(({ phase, replies }) =>
    MEASURES.filter(([, among, of]) => among.includes(phase) && replies.some((reply) => of(reply) !== null)).map(([name, , of]) => ({ title: `${phase} ${name}`, phase, of })),
  );
  // Apps choose the names of their metrics, and may choose `weight`.
  const all = [...metrics, ...others];
  return all.filter(({ title }, index) => all.findIndex((one) => one.title === title) === index);
}

/** The values of each node, one for each round; null where it was not asked or did not reply. */
export function valuesByNode(rounds: TrainingReport[], { phase, of }: Measure): Map<string, (number | null)[]> {
  const found = new Map<string, (number | null)[]>();
  rounds.forEach((report, index) => {
    for (const reply of report[phase]?.clients ?? []) {
      const values = found.get(reply.node) ?? new Array<number | null>(rounds.length).fill(null);
      values[index] = of(reply);
      found.set(reply.node, values);
    }
  });
  return found;
}
