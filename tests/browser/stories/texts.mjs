// What the server gives as text is shown as text: logs without control sequences, why a run failed, addresses and certificates,
// models to download, and only those settings that a run takes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { call, finished, play, sound, stage, startRun, until, visit } from "../stage.mjs";

const at = `/federations/${stage.federation}`;
const LOG = "\u001b[92mINFO \u001b[0m:      Starting\n\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\\n 10%\r100%\r\nTraceback\nRuntimeError: no data\n\u001b[91mERROR \u001b[0m:     Exit Code: 201\n";

await play(async () => {
  await logs();
  await connection();
  await models();
  await fields();
});

/** A run that fails, with the log of an app in Python. */
async function logs() {
  const run = await startRun(1, { resume: "1234567890" });
  await finished(run);
  const page = await visit({ token: stage.tokens.viewer });
  await answer(page, `${at}/runs/${run}/log`, { text: LOG, next: "1", ended: true });
  await page.goto(`${stage.url}${at}/runs/${run}`);
  const log = page.getByRole("region", { name: "Log of the run" });
  await until("the log", async () => /no data/.test(await log.textContent()));
  const lines = await log.locator("div").allTextContents();
  assert.deepEqual(lines, ["INFO :      Starting", "link", "100%", "Traceback", "RuntimeError: no data", "ERROR :     Exit Code: 201"]);
  const { details } = await call("GET", `${at}/runs/${run}`);
  assert.ok(details, "the SuperLink says why");
  const why = page.getByRole("region", { name: "Why it failed" });
  assert.ok((await why.textContent()).includes(details));
  await why.getByText("RuntimeError: no data").waitFor();
  await sound(page, "a run that failed");
}

async function connection() {
  const told = await call("GET", `${at}/connection`);
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/connect` });
  const addresses = await page.getByRole("region", { name: "Addresses" }).textContent();
  for (const address of [told.control, told.http, told.fleet]) assert.ok(addresses.includes(address), `${address} in ${addresses}`);
  assert.ok((await page.getByRole("region", { name: "connection for config.toml" }).textContent()).includes(`address = "${told.control}"`));
  assert.equal(await page.getByRole("region", { name: "certificates" }).textContent(), told.root_certificates);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Copy certificates" }).click();
  await until("the copy", async () => (await page.evaluate(() => navigator.clipboard.readText())) === told.root_certificates);
}

/** As a server with and without models answers. */
async function models() {
  const [{ id: run }] = (await call("GET", `${at}/runs`)).items;
  const model = (run, round) => ({ run, round, final: round === 2, path: `${run}/round-00000${round}/model.safetensors`, bytes: 2048, strategy: "FedAvg", saved_at: 1e9 + round });
  const page = await visit({ token: stage.tokens.runner });
  const list = page.getByRole("region", { name: /^Models/ });
  await answer(page, `${at}/models`, { items: [] });
  await page.goto(`${stage.url}${at}/runs`);
  await page.getByRole("heading", { name: /^Runs/ }).waitFor();
  assert.equal(await list.count(), 0, "nothing is shown where there are none");

  const files = [model(run, 1), model(run, 2), model("77", 1)];
  await answer(page, `${at}/models`, { items: files });
  await page.route(`${stage.url}/api/v1${at}/models/${files[1].path}`, (route) => route.fulfill({ body: "weights" }));
  for (const [place, count] of [[`${at}/runs`, 3], [`${at}/runs/${run}`, 2]]) {
    await page.goto(stage.url + place);
    await list.getByText("Round 2, final").waitFor();
    assert.equal(await list.getByRole("button").count(), count);
    await sound(page, `models at ${place}`);
  }
  const download = page.waitForEvent("download");
  await list.getByRole("button", { name: `Download the model of round 2, run ${run}` }).click();
  assert.equal(readFileSync(await (await download).path(), "utf8"), "weights");
  assert.equal((await download).suggestedFilename(), `${stage.federation}-${run}-round-2.safetensors`);

  const viewer = await visit({ token: stage.tokens.viewer });
  await answer(viewer, `${at}/models`, { items: files });
  await viewer.goto(`${stage.url}${at}/runs`);
  await viewer.getByText("Round 2, final").waitFor();
  assert.equal(await viewer.getByRole("button", { name: /^Download the model/ }).count(), 0, "the server lets only runners download");
}

/** A field is offered once, and only where the run takes it. */
async function fields() {
  const page = await visit({ token: stage.tokens.runner, at: `${at}/submit` });
  await page.getByRole("radio", { name: /native:mlp/ }).check();
  await page.getByText(/^All settings of the training/).click();
  const labels = await page.locator(".field > label").allTextContents();
  assert.equal(new Set(labels).size, labels.length, labels.join(" "));
  for (const refused of ["dataset", "label", "classes", "scale", "partition-id"]) assert.ok(!labels.includes(refused), refused);
  for (const taken of ["hidden", "local-epochs", "partition", "seed"]) assert.ok(labels.includes(taken), taken);

  const detail = await call("GET", at);
  await answer(page, at, { ...detail, summary: { ...detail.summary, runtime: "flower:1.39.0" } });
  await page.reload();
  await page.getByLabel("Settings of the app").waitFor();
  assert.equal(await page.getByRole("radio").count(), 1, "a SuperLink of Flower's own takes only bundles");
}

/** Has a call of the page answered with this, whatever the server would say. */
async function answer(page, route, json) {
  await page.route(new RegExp(`^${stage.url}/api/v1${route}(\\?|$)`), (call) => call.fulfill({ json }));
}
