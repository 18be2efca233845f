// The time now, for all that is told relative to it. Ticks once for the whole page.

const TICK_MS = 5000;

class Clock {
  now_s = $state(Date.now() / 1000);

  constructor() {
    setInterval(() => (this.now_s = Date.now() / 1000), TICK_MS);
  }
}

export const clock = new Clock();
