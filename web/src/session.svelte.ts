// Who is signed in: the token, kept for this tab alone, and what its holder may do. The server decides anyway.

import type { Me, Role } from "./api";

const KEY = "trellis.token";
const RANKS: Role[] = ["viewer", "runner", "admin"];

class Session {
  token = $state<string | null>(null);
  me = $state.raw<Me | null>(null);
  /** Why the login form is shown, where there is a reason. */
  notice = $state("");

  /** A token in the fragment of the address counts first; it is then removed, so that it is not shared by accident. */
  restore(): void {
    const fragment = new URLSearchParams(location.hash.slice(1));
    const given = fragment.get("token");
    if (given) {
      history.replaceState(history.state, "", location.pathname + location.search);
      this.remember(given);
    } else {
      this.token = sessionStorage.getItem(KEY);
    }
  }

  remember(token: string): void {
    sessionStorage.setItem(KEY, token);
    this.notice = "";
    this.token = token;
  }

  end(notice = ""): void {
    sessionStorage.removeItem(KEY);
    this.token = null;
    this.me = null;
    this.notice = notice;
  }

  may(role: Role): boolean {
    return this.me !== null && RANKS.indexOf(this.me.role) >= RANKS.indexOf(role);
  }
}

export const session = new Session();
