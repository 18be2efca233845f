// A role sees no control that the server would refuse; where it tries all the same, it is refused.
import assert from "node:assert/strict";
import { call, play, stage, startRun, visit } from "../stage.mjs";

const WRITES = /^(Start|Stop|Delete|Drain|Scale|Apply|New federation|Issue|Revoke|One node)/;
const TABS = ["", "/nodes", "/runs", "/plan", "/connect"];

await play(async () => {
  const run = await startRun(200, { "local-epochs": 4 });
  const seen = async (token) => {
    const page = await visit({ token });
    const found = new Set();
    const places = ["/", "/new", "/tokens", `/federations/${stage.federation}/submit`, `/federations/${stage.federation}/runs/${run}`, `/federations/${stage.federation}/nodes/wards-0`];
    for (const at of [...places, ...TABS.map((tab) => `/federations/${stage.federation}${tab}`)]) {
      await page.goto(stage.url + at);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await page.getByText("Loading…").first().waitFor({ state: "detached" });
      const controls = page.locator("button:visible, a.button:visible");
      for (const control of await controls.all()) {
        const name = (await control.getAttribute("aria-label")) ?? (await control.textContent());
        if (WRITES.test(name.trim())) found.add(name.trim().match(WRITES)[1]);
      }
    }
    return [...found].sort();
  };
  assert.deepEqual(await seen(stage.tokens.viewer), []);
  assert.deepEqual(await seen(stage.tokens.runner), ["Start", "Stop"]);
  assert.deepEqual(await seen(stage.tokens.admin), ["Apply", "Delete", "Drain", "Issue", "New federation", "One node", "Revoke", "Scale", "Start", "Stop"]);
  await assert.rejects(call("POST", `/federations/${stage.federation}/runs/${run}/stop`, { token: stage.tokens.viewer }), /403/);
  await call("POST", `/federations/${stage.federation}/runs/${run}/stop`);
});
