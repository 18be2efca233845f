// Numbers, times and words as people read them.

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const SHORT = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const TICK = new Intl.NumberFormat(undefined, { maximumFractionDigits: 4 });
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export const exactTime = (at_s: number): string => EXACT.format(at_s * 1000);

/** `12 s ago`, `in 3 min`. */
export function relativeTime(at_s: number, now_s: number): string {
  const seconds = now_s - at_s;
  if (Math.abs(seconds) < 5) return "just now";
  const told = duration(Math.abs(seconds), 1);
  return seconds > 0 ? `${told} ago` : `in ${told}`;
}

/** `850 ms`, `4.2 s`, `3 min 5 s`; with `parts` 1 only the largest unit. */
export function duration(seconds: number, parts = 2): string {
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10 && parts > 1) return `${seconds.toFixed(1)} s`;
  const units: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const told: string[] = [];
  let rest = Math.round(seconds);
  for (const [size, unit] of units) {
    const count = Math.floor(rest / size);
    if (count > 0 && told.length < parts) told.push(`${count} ${unit}`);
    else if (told.length) break;
    rest -= count * size;
  }
  return told.join(" ");
}

/** Four digits that count, as metrics are compared. */
export function metric(value: number | undefined): string {
  if (value === undefined) return "–";
  if (Number.isNaN(value)) return "not a number";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(2);
  if (Number.isInteger(value)) return String(value);
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 4);
}

/** A number on an axis: no digit more than it needs. */
export const tick = (value: number): string =>
  value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential() : TICK.format(value);

export const percent = (share: number): string => `${Math.round(share * 100)} %`;

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${SHORT.format(value)} ${BYTE_UNITS[unit]}`;
}

export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** Orders names so that `node-10` follows `node-9`. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

// Control sequences of terminals: CSI (colours, cursor), OSC (titles, links), and those of two characters.
const CONTROL_SEQUENCES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;

/** A line of a log as a terminal would show it: without control sequences, and only the last state of a progress bar. */
export function plainLine(line: string): string {
  const text = line.replace(CONTROL_SEQUENCES, "").replace(/\r+$/, "");
  return text.slice(text.lastIndexOf("\r") + 1).replace(/[\x00-\x08\x0b-\x1f\x7f]/g, "");
}

const EXCEPTION = /^([\w.]+\.)?\w*(Error|Exception|Exit|Interrupt)\b/;

/** The line of a log that names what went wrong: the end of the last traceback; without one, the last message of that level. */
export const lastError = (lines: string[]): string | undefined =>
  lines.findLast((line) => EXCEPTION.test(line)) ?? lines.findLast((line) => /\b(ERROR|CRITICAL|FATAL|panicked)\b/.test(line));
