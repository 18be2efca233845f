// What a form for a run becomes: a NewRun, and back from the server's problems to fields.

import type { Bundle, Detail, Scalar, SettingDescription } from "./api";

/** Text of a field as the server takes it; a text in quotes stays text. */
export function scalar(text: string): Scalar {
  const given = text.trim();
  if (given === "true" || given === "false") return given === "true";
  if (/^[+-]?\d{1,15}$/.test(given)) return Number.parseInt(given, 10);
  if (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(given)) return Number.parseFloat(given);
  const quoted = /^"(.*)"$/.exec(given);
  return quoted ? (quoted[1] ?? "") : given;
}

/** Only what was filled in: for the rest the document's settings apply, then the defaults. */
export function settingsOf(fields: Record<string, string>, known: SettingDescription[]): Record<string, Scalar> {
  const given = known.filter((setting) => (fields[setting.name] ?? "").trim() !== "");
  return Object.fromEntries(given.map((setting) => [setting.name, scalar(fields[setting.name]!)]));
}

/** Settings of an app without a form, one `name = value` in a line. */
export function settingsInLines(text: string): { settings: Record<string, Scalar>; wrong: string[] } {
  const settings: Record<string, Scalar> = {};
  const wrong: string[] = [];
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (!line) continue;
    const at = line.indexOf("=");
    if (at < 1) wrong.push(line);
    else settings[line.slice(0, at).trim()] = scalar(line.slice(at + 1));
  }
  return { settings, wrong };
}

/** Which field a problem is about: `settings.lr`, `native:mlp: lr` and `lr` are the same. */
export function fieldOf(detail: Detail): string {
  return (detail.path ?? "").replace(/^(spec\.training\.|settings\.|native:[\w-]+: )/, "");
}

export async function bundleOf(file: File): Promise<Bundle> {
  if (!globalThis.crypto?.subtle) {
    throw new Error("The browser offers SHA-256 to safe pages only: open this one with https or at 127.0.0.1, or use trellis run");
  }
  const content = new Uint8Array(await file.arrayBuffer());
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const sha256 = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return { content: base64(content), sha256 };
}

function base64(content: Uint8Array): string {
  const PIECE = 0x8000;
  let text = "";
  for (let at = 0; at < content.length; at += PIECE) text += String.fromCharCode(...content.subarray(at, at + PIECE));
  return btoa(text);
}
