// Tables as CSV (RFC 4180), for spreadsheets and data frames. Pure but for `save`, which hands a file to the browser.

import type { MetricReport, Run, TrainingReport } from "./api";
import { metricKey, numberOf, PHASES, roundsOf } from "./training";

export type Cell = string | number | boolean | undefined;
export type Row = Record<string, Cell>;

/** The columns are the names in all rows, in the order of their first appearance. */
export function csv(rows: Row[]): string {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const lines = [columns.map(text), ...rows.map((row) => columns.map((column) => text(row[column])))];
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

function text(cell: Cell): string {
  if (cell === undefined) return "";
  if (typeof cell === "number") return Number.isFinite(cell) ? String(cell) : Number.isNaN(cell) ? "NaN" : cell > 0 ? "inf" : "-inf";
  // Names come from apps and nodes: a spreadsheet must not take one for a formula.
  const safe = /^[=+\-@\t\r]/.test(String(cell)) ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A row for each round, with the names of `history` in the Python package. */
export function roundRows(reports: TrainingReport[]): Row[] {
  return roundsOf(reports).map((report) => {
    const phases = PHASES.filter((name) => report[name]);
    const row: Row = { round: report.round, started_at: report.started_at };
    if (phases.length) row.seconds = phases.reduce((sum, name) => sum + report[name]!.seconds, 0);
    row.nodes = report[phases[0]!]?.answered;
    row.update_norm = report.update_norm;
    row.epsilon = report.epsilon;
    for (const name of phases) for (const [key, value] of Object.entries(report[name]!.metrics ?? {})) put(row, metricKey(name, key), value);
    return row;
  });
}

/** A row for each reply of a node, and one for each node that failed. */
export function nodeRows(reports: TrainingReport[], nameOf: (node: string) => string): Row[] {
  return roundsOf(reports).flatMap((report) =>
    PHASES.flatMap((phase) => {
      const of = (node: string): Row => ({ round: report.round, phase, node: nameOf(node), node_id: node });
      const replies = (report[phase]?.clients ?? []).map((client) => {
        const row: Row = { ...of(client.node), failure: "", weight: client.weight, seconds: client.seconds, update_norm: client.update_norm, chosen: client.chosen };
        for (const [key, value] of Object.entries(client.metrics ?? {})) put(row, metricKey(phase, key), value);
        return row;
      });
      return [...replies, ...(report[phase]?.failed ?? []).map((failed) => ({ ...of(failed.node), failure: failed.kind }))];
    }),
  );
}

/** A row for each run: what it is, its settings, its last metrics. */
export function runRow(run: Run): Row {
  const prefixed = (prefix: string, values: Row) => Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}.${name}`, value]));
  return {
    run: run.id,
    app: run.app,
    version: run.version,
    state: run.state,
    outcome: run.outcome,
    strategy: run.training?.strategy,
    started_by: run.started_by ?? run.account,
    submitted_at: run.submitted_at,
    started_at: run.started_at,
    finished_at: run.finished_at,
    rounds: run.training?.round,
    ...prefixed("config", run.config ?? {}),
    ...prefixed("metrics", run.training?.metrics ?? {}),
  };
}

/** A list has a column for each of its numbers. */
function put(row: Row, name: string, value: MetricReport): void {
  if (Array.isArray(value)) value.forEach((one, index) => (row[`${name}_${index}`] = one));
  else row[name] = numberOf(value) ?? undefined;
}

/** Offers a file for download. */
export function save(name: string, content: Blob | string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(typeof content === "string" ? new Blob([content], { type: "text/csv" }) : content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}
