// Something that is read from the server, kept, and read again when it may have changed. Pages show the last good value
// together with what went wrong since.

import { Refused } from "./client";
import type { Problem } from "./api";

/** Events come in bursts; what they concern is read at most this often. */
const SHORTEST_PAUSE_MS = 400;

export class Source<T> {
  value = $state.raw<T | undefined>();
  problem = $state.raw<Problem | undefined>();
  private stopping = new AbortController();
  private reading = false;
  private again = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly read: (signal: AbortSignal) => Promise<T>) {}

  get loading(): boolean {
    return this.value === undefined && this.problem === undefined;
  }

  /** Reads now, or once more after the reading that is under way. */
  async refresh(): Promise<void> {
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    try {
      this.value = await this.read(this.stopping.signal);
      this.problem = undefined;
    } catch (error) {
      if (!this.stopping.signal.aborted) this.problem = problemOf(error);
    } finally {
      this.reading = false;
      if (this.again) this.soon();
      this.again = false;
    }
  }

  /** Reads a little later, together with what else asks for it until then. */
  soon(): void {
    if (this.stopping.signal.aborted) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.refresh();
    }, SHORTEST_PAUSE_MS);
  }

  /** For `$effect`: begins to read, and returns how to end. */
  open(): () => void {
    this.stopping = new AbortController();
    void this.refresh();
    return () => {
      clearTimeout(this.timer);
      this.timer = undefined;
      this.stopping.abort();
    };
  }
}

export function problemOf(error: unknown): Problem {
  if (error instanceof Refused) return error.problem;
  const detail = error instanceof Error ? error.message : String(error);
  return { type: "about:blank", title: "This page has an error", status: 0, detail };
}
