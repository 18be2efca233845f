// Who is signed in: the token, kept for this tab alone, and what its holder may do. The server decides anyway.

import type { Me, Role } from "./api";
import * as signOn from "./sign-on";

const KEY = "trellis.token";
const RANKS: Role[] = ["viewer", "runner", "admin"];

class Session {
  token = $state<string | null>(null);
  me = $state.raw<Me | null>(null);
  /** The user is back from the identity provider, and the token is on its way. */
  returning = $state(false);
  /** Why the login form is shown, where there is a reason. */
  notice = $state("");

  /** A token in the fragment of the address counts first; it is then removed, so that it is not shared by accident. */
  restore(): void {
    const fragment = new URLSearchParams(location.hash.slice(1));
    const given = fragment.get("token");
    if (signOn.isReturn(fragment)) {
      void this.signedOn(fragment);
    } else if (given) {
      history.replaceState(history.state, "", location.pathname + location.search);
      this.remember(given);
    } else {
      this.token = sessionStorage.getItem(KEY);
    }
  }

  private async signedOn(fragment: URLSearchParams): Promise<void> {
    this.returning = true;
    try {
      this.remember(await signOn.end(fragment));
    } catch (error) {
      this.notice = error instanceof Error ? error.message : String(error);
    } finally {
      this.returning = false;
    }
  }

  remember(token: string): void {
    sessionStorage.setItem(KEY, token);
    this.notice = "";
    this.token = token;
  }

  /** The user leaves. A session of single sign-on ends at the server, too; the token of an administrator stays. */
  signOut(): void {
    if (this.token && this.me?.name.includes("@")) signOn.signOut(this.token);
    this.end();
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
