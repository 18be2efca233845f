// A node has a page: its version, shard, load, log and the output of its apps; an administrator drains it, and ends that again.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { call, finished, play, sound, stage, startRun, until, visit } from "../stage.mjs";

const SETTLE_MS = 120_000;
const NODE = "imaging-1";

await play(async () => {
  await finished(await startRun(2));
  const at = `/federations/${stage.federation}`;
  const nodeNow = async () => (await call("GET", `${at}/nodes`)).items.find((node) => node.name === NODE);
  const known = await nodeNow();
  const page = await visit({ token: stage.tokens.admin, at });
  await page.getByRole("link", { name: new RegExp(`^${NODE} ready`) }).click();
  await page.getByRole("heading", { level: 1, name: NODE }).waitFor();

  const facts = await page.getByRole("region", { name: "Node", exact: true }).textContent();
  assert.match(facts, new RegExp(`Version\\s*${known.version}`));
  assert.match(facts, new RegExp(`Shard\\s*${known.shard}\\s*of 5`));
  assert.match(facts, new RegExp(known.id));
  const load = page.getByRole("region", { name: "Load" });
  await until("its replies", async () => /Now\s*idle.*Replies\s*4\b.*Mean time to reply\s*\d/.test(await load.textContent()));
  await until("its log", async () => /\S/.test(await page.getByRole("region", { name: `Log of ${NODE}` }).textContent()));

  // What its ClientApps write appears without a reload, also on the page of the run.
  const env = { ...process.env, TRELLIS_HOME: stage.home };
  execFileSync(stage.trellis, ["run", stage.failing, "--federation", stage.federation, "--detach"], { env, stdio: "pipe" });
  const output = page.getByRole("region", { name: `Output of ClientApps on ${NODE}` });
  const failed = async () => /ModuleNotFoundError: No module named 'nowhere'/.test(await output.textContent());
  await until("the traceback of the app", failed);
  await sound(page, "the output of apps");
  await load.getByRole("link").click();
  await page.getByLabel("Written by").selectOption(NODE);
  await until("the same on the page of the run", failed);
  await page.goBack();

  await page.getByRole("button", { name: "Drain…" }).click();
  await sound(page, "the question before a drain");
  await page.getByRole("button", { name: "Drain the node" }).click();
  await until("it to be drained", () => page.getByText("ready, drained", { exact: true }).isVisible(), SETTLE_MS);
  const drained = await call("GET", at);
  assert.match(drained.document, /drained:\n\s*- 1\n/, "the document says so");
  assert.equal(drained.summary.state, "ready", drained.summary.message);
  assert.equal((await nodeNow()).drained, true);

  // A run does without it, and does not wait for it.
  const run = await startRun(1);
  await finished(run);
  const { reports } = await call("GET", `${at}/runs/${run}/rounds`);
  assert.equal(reports.find((report) => report.kind === "round").train.answered, 4);

  await page.getByRole("button", { name: "End the drain" }).click();
  await until("it to work again", async () => !(await nodeNow()).draining && (await nodeNow()).phase === "ready", SETTLE_MS);
  await page.getByText("ready", { exact: true }).waitFor();
  assert.ok(!(await call("GET", at)).document.includes("drained"));
  await assert.rejects(call("PUT", `${at}/nodes/${NODE}`, { body: { drained: true }, token: stage.tokens.runner }), /403/);
});
