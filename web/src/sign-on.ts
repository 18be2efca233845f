// Single sign-on: sends the user to the identity provider, and takes up the login when they are back. Only the tab that began a login
// can end it: its verifier never leaves the tab before (PKCE, RFC 7636).

import type { IssuedToken } from "./api";

const BASE = "/api/v1/sign-on";
const KEY = "trellis.sign-on";
const FRAGMENT_CODE = "sign-on-code";
const FRAGMENT_ERROR = "sign-on-error";
const VERIFIER_BYTES = 32;

export interface Provider {
  name: string;
  issuer: string;
}

interface Begun {
  verifier: string;
  /** Where the user was. */
  place: string;
}

/** `null`: this server has none. */
export async function provider(): Promise<Provider | null> {
  try {
    const response = await fetch(BASE);
    return response.ok ? ((await response.json()) as Provider) : null;
  } catch {
    return null;
  }
}

const text = (bytes: Uint8Array) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

/** Browsers hash for pages with TLS and for pages of this machine only. */
export const isPossible = (): boolean => globalThis.isSecureContext;

export async function begin(): Promise<void> {
  const verifier = text(crypto.getRandomValues(new Uint8Array(VERIFIER_BYTES)));
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const begun: Begun = { verifier, place: location.pathname + location.search };
  sessionStorage.setItem(KEY, JSON.stringify(begun));
  location.assign(`${BASE}/start?${new URLSearchParams({ challenge: text(new Uint8Array(hash)) })}`);
}

/** Whether the user comes back from the provider with this fragment. */
export const isReturn = (fragment: URLSearchParams): boolean => fragment.has(FRAGMENT_CODE) || fragment.has(FRAGMENT_ERROR);

/** The token of a user who is back; refused: an Error with the reason. */
export async function end(fragment: URLSearchParams): Promise<string> {
  const begun = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Begun | null;
  sessionStorage.removeItem(KEY);
  const place = begun?.place ?? "/";
  history.replaceState(history.state, "", place);
  const error = fragment.get(FRAGMENT_ERROR);
  if (error) throw new Error(`${error[0]?.toUpperCase() ?? ""}${error.slice(1)}.`);
  if (!begun) throw new Error("The login was begun in another tab. Sign in here.");
  const proof = { browser: { code: fragment.get(FRAGMENT_CODE), verifier: begun.verifier } };
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`${BASE}/token`, { method: "POST", headers, body: JSON.stringify(proof) });
  const told = (await response.json()) as IssuedToken & { detail?: string };
  if (!response.ok) throw new Error(told.detail ?? `The server answered HTTP ${response.status}.`);
  return told.token;
}

/** Ends the session at the server, if single sign-on began it. */
export function signOut(token: string): void {
  void fetch(`${BASE}/token`, { method: "DELETE", headers: { Authorization: `Bearer ${token}` }, keepalive: true }).catch(() => undefined);
}
