// A run and the reports of its rounds, read from the server and kept up to date by events.

import { untrack } from "svelte";
import type { Event, Problem, Run, TrainingReport } from "./api";
import * as client from "./client";
import { live } from "./live.svelte";
import { Source } from "./source.svelte";
import { merged } from "./training";

/** Short rounds come faster than anybody looks: reports that arrive are shown together. */
const SHOW_INTERVAL_MS = 250;

export class FollowedRun {
  reports = $state.raw<TrainingReport[]>([]);
  readonly source: Source<Run>;
  private readonly rounds: Source<true>;
  private waiting: TrainingReport[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    federation: string,
    readonly id: string,
  ) {
    this.source = new Source((signal) => client.run(federation, id, signal));
    this.rounds = new Source<true>(async (signal) => {
      // The report about the whole training has the number of the last round, so that round is read again.
      const last = this.reports.at(-1)?.round;
      this.reports = merged(this.reports, await client.rounds(federation, id, last ? last - 1 : undefined, signal));
      return true;
    });
  }

  get run(): Run | undefined {
    return this.source.value;
  }

  /** Whether the server was asked for all that this shows. */
  get isRead(): boolean {
    return [this.source, this.rounds].every((one) => !one.loading);
  }

  get problem(): Problem | undefined {
    return this.source.problem ?? this.rounds.problem;
  }

  refresh = (): void => {
    for (const source of [this.source, this.rounds]) void source.refresh();
  };

  /** For `$effect`: begins to follow, and returns how to end. */
  open(): () => void {
    const ends = untrack(() => [this.source.open(), this.rounds.open(), live.listen((event) => this.hear(event))]);
    return () => {
      clearTimeout(this.timer);
      this.timer = undefined;
      for (const end of ends) end();
    };
  }

  private hear(event: Event): void {
    if (event.kind === "resync") for (const source of [this.source, this.rounds]) source.soon();
    else if (event.kind === "run" && event.run.id === this.id) this.changed(event.run);
    else if (event.kind === "round" && event.run === this.id) this.arrived(event.report);
  }

  private changed(fresh: Run): void {
    this.source.value = fresh;
    if (fresh.state === "finished") this.rounds.soon();
  }

  private arrived(report: TrainingReport): void {
    this.waiting.push(report);
    this.timer ??= setTimeout(() => this.showWaiting(), SHOW_INTERVAL_MS);
  }

  private showWaiting(): void {
    const before = this.reports.at(-1)?.round ?? 0;
    const first = this.waiting[0]?.round ?? 0;
    this.reports = merged(this.reports, this.waiting.splice(0));
    this.timer = undefined;
    // A round is missing in between: the server has it.
    if (first > before + 1) this.rounds.soon();
  }
}
