// What changes, as it happens: one stream of server-sent events for the whole page, read with fetch because an EventSource
// cannot send a token. Whoever listens gets each event; after a gap the server's first event is `resync`.

import type { Event } from "./api";
import { send } from "./client";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** The server sends comments in between; a stream that is silent for so long is dead. */
const SILENCE_MS = 60_000;

type Listener = (event: Event) => void;

class Live {
  /** `idle`: nobody is signed in. */
  state = $state<"idle" | "connecting" | "open" | "lost">("idle");
  private listeners = new Set<Listener>();
  private stopping: AbortController | null = null;

  /** For `$effect`: returns how to stop listening. */
  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  start(): () => void {
    const stopping = new AbortController();
    this.stopping?.abort();
    this.stopping = stopping;
    this.state = "connecting";
    void this.keepReading(stopping.signal);
    return () => {
      stopping.abort();
      this.state = "idle";
    };
  }

  private async keepReading(stopped: AbortSignal): Promise<void> {
    let pause = FIRST_PAUSE_MS;
    while (!stopped.aborted) {
      try {
        await this.readOnce(stopped, () => {
          pause = FIRST_PAUSE_MS;
        });
      } catch {
        // Why does not matter: it is tried again, and other calls tell what is wrong.
      }
      if (stopped.aborted) return;
      this.state = "lost";
      await passed(pause * (0.5 + Math.random() / 2), stopped);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    }
  }

  private async readOnce(stopped: AbortSignal, opened: () => void): Promise<void> {
    const ending = new AbortController();
    const end = () => ending.abort();
    stopped.addEventListener("abort", end);
    let silence = setTimeout(end, SILENCE_MS);
    try {
      const response = await send("/events", { headers: { Accept: "text/event-stream" }, signal: ending.signal });
      if (!response.body) return;
      this.state = "open";
      opened();
      const lines = new Lines();
      for await (const chunk of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        for (const data of lines.take(chunk)) this.tell(JSON.parse(data) as Event);
      }
    } finally {
      clearTimeout(silence);
      stopped.removeEventListener("abort", end);
      ending.abort();
    }
  }

  private tell(event: Event): void {
    for (const listener of [...this.listeners]) listener(event);
  }
}

/** The data of each event in a text/event-stream that arrives in pieces. */
class Lines {
  private rest = "";
  private data: string[] = [];

  take(chunk: string): string[] {
    const complete: string[] = [];
    const lines = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("data:")) this.data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line === "" && this.data.length) complete.push(this.data.splice(0).join("\n"));
    }
    return complete;
  }
}

async function* chunks(stream: ReadableStream<string>): AsyncGenerator<string> {
  const reader = stream.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    reader.releaseLock();
  }
}

function passed(pause_ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, pause_ms);
    stopped.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

export const live = new Live();
