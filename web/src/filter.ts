// Which runs a filter matches. Pure.
//
// A filter is words, all of which must be found, and comparisons such as `strategy=FedAdam`, `lr<0.1`, `acc>=0.9`.

import type { Run, Scalar } from "./api";
import { PHASES, plain, runSeconds } from "./training";
import { runOf, strategyOf } from "./words";

const COMPARISON = /^([\w.-]+)(!=|>=|<=|=|>|<)(.*)$/;

type Test = (run: Run) => boolean;

export interface Filter {
  matches: Test;
  /** What is wrong with the text, and what to write. */
  wrong: string;
}

export function filterOf(text: string): Filter {
  const wrong: string[] = [];
  const tests = text.split(/\s+/).filter(Boolean).map((term): Test => {
    const [, name, operator, value] = COMPARISON.exec(term) ?? [];
    if (!name || !operator || value === undefined) return (run) => words(run).includes(term.toLowerCase());
    if (value === "") wrong.push(`${term} has no value: write ${name}${operator}1`);
    else if (/[<>]/.test(operator) && Number.isNaN(Number(value))) wrong.push(`${term} needs a number after ${operator}`);
    return (run) => value === "" || compared(valueOf(run, name), operator, value);
  });
  return { matches: (run) => tests.every((test) => test(run)), wrong: wrong.join("; ") };
}

/** A run without the value is unequal to everything, and neither above nor below. */
function compared(found: Scalar | undefined, operator: string, value: string): boolean {
  const equal = found !== undefined && (typeof found === "number" ? found === Number(value) : String(found).toLowerCase() === value.toLowerCase());
  if (operator === "=") return equal;
  if (operator === "!=") return !equal;
  if (typeof found !== "number") return false;
  const number = Number(value);
  return (operator.includes("=") && found === number) || (operator[0] === ">" ? found > number : found < number);
}

const same = (name: string) => name.toLowerCase().replaceAll("_", "-");

/** What is known of a run under a name: a fact, a setting, or a metric of its last round, in full or without its phase. */
export function valueOf(run: Run, name: string): Scalar | undefined {
  const wanted = same(name);
  const facts = Object.entries({ ...run.config, ...factsOf(run) });
  const metrics = Object.entries(run.training?.metrics ?? {});
  const short = PHASES.toReversed().flatMap((phase) => metrics.filter(([key]) => key.startsWith(`${phase}_`)).map(([key, value]) => [plain(key.slice(phase.length + 1), phase), value] as const));
  return [...facts, ...metrics, ...short].find(([key]) => same(key) === wanted)?.[1];
}

function factsOf(run: Run): Record<string, Scalar> {
  const facts: Record<string, Scalar | undefined> = {
    id: run.id,
    app: run.app,
    version: run.version,
    state: runOf(run).word,
    by: run.started_by ?? run.account,
    strategy: strategyOf(run),
    round: run.training?.round,
    rounds: run.training?.rounds_planned,
    seconds: run.finished_at === undefined ? undefined : runSeconds(run, 0),
  };
  return Object.fromEntries(Object.entries(facts).filter((entry): entry is [string, Scalar] => entry[1] !== undefined));
}

function words(run: Run): string {
  const facts = Object.values(factsOf(run)).filter((value) => typeof value === "string");
  return [...facts, ...Object.entries(run.config ?? {}).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
}
