// Which word and which tone each state has. The one place where states become colours.

import type { FederationSummary, Node, Phase, Run, State, Weight } from "./api";
import type { Tone } from "./parts/Badge.svelte";

type Told = { tone: Tone; word: string };

const STATES: Record<State, Told> = {
  new: { tone: "calm", word: "New" },
  ready: { tone: "good", word: "Ready" },
  reconciling: { tone: "work", word: "Reconciling" },
  stalled: { tone: "bad", word: "Stalled" },
  leaving: { tone: "wait", word: "Leaving" },
};

const PHASES: Record<Phase, Told> = {
  absent: { tone: "calm", word: "Absent" },
  unknown: { tone: "calm", word: "Unknown" },
  starting: { tone: "work", word: "Starting" },
  ready: { tone: "good", word: "Ready" },
  failed: { tone: "bad", word: "Failed" },
  stopping: { tone: "wait", word: "Stopping" },
};

const WEIGHTS: Record<Weight, Told> = {
  stuck: { tone: "bad", word: "Stuck" },
  waits: { tone: "wait", word: "Waits" },
  note: { tone: "calm", word: "Note" },
};

const UNHEARD: Told = { tone: "calm", word: "Unknown" };

export const stateOf = (federation: FederationSummary): Told => STATES[federation.state] ?? UNHEARD;
export const phaseOf = (phase: Phase): Told => PHASES[phase] ?? UNHEARD;
export const weightOf = (weight: Weight): Told => WEIGHTS[weight] ?? UNHEARD;

export function nodeWord(node: Node): string {
  const parts = [phaseOf(node.phase).word.toLowerCase()];
  if (node.draining) parts.push(node.drained && node.busy === false ? "drained" : "draining");
  if (node.busy) parts.push("busy");
  if (!node.wanted) parts.push("not wanted");
  if (!node.updated && node.phase !== "absent") parts.push("outdated");
  return parts.join(", ");
}

export function placeOf(node: Node): string {
  if (node.joined) return node.site ? `joined from ${node.site}` : "joined from elsewhere";
  return `${node.pool || "no pool"} at ${node.site || "unknown"}`;
}

export function runOf(run: Run): Told {
  if (run.state === "pending") return { tone: "wait", word: "Pending" };
  if (run.state === "starting") return { tone: "work", word: "Starting" };
  if (run.state === "running") return { tone: "work", word: "Running" };
  if (run.outcome === "completed") return { tone: "good", word: "Completed" };
  if (run.outcome === "failed") return { tone: "bad", word: "Failed" };
  if (run.outcome === "stopped") return { tone: "calm", word: "Stopped" };
  return { tone: "calm", word: "Finished" };
}

/** The app without its publisher, as a title. */
export const appName = (run: Run): string => run.app.split("/").at(-1) || run.app;

/** Also where it is that of the app or of the SuperLink. */
export const strategyOf = (run: Run): string | undefined => run.training?.strategy || run.config?.strategy?.toString();

/** Ids have 20 digits; the last six tell runs apart for people. */
export const shortId = (id: string): string => (id.length > 8 ? `…${id.slice(-6)}` : id);

/** `evaluate_eval_acc`, from an app that says the phase itself, as `evaluate acc`. */
export const metricWords = (name: string): string =>
  name.replace(/^(train_train|evaluate_eval(uate)?)_/, (both) => both.split("_")[0] + " ").replaceAll("_", " ");
