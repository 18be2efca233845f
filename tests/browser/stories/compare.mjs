// Runs are searched, filtered and ordered, three of them are compared, and what is seen can be downloaded and sent to others.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { call, finished, play, runOf, sound, stage, startRun, until, visit } from "../stage.mjs";

const at = `/federations/${stage.federation}`;
const VIEWS = [[1440, "light"], [1440, "dark"], [390, "light"], [390, "dark"]];
const ROUNDS = 4;
/** Runs of other stories have another one. */
const SEED = Date.now() % 1_000_000;
const OURS = `data-seed=${SEED}`;

await play(async () => {
  const runs = [];
  for (const settings of [{ strategy: "FedAvg", lr: 0.1 }, { strategy: "FedAvg", lr: 0.01 }, { strategy: "FedAdam", lr: 0.1 }]) {
    const run = await startRun(ROUNDS, { "data-seed": SEED, ...settings });
    await finished(run);
    runs.push(run);
  }
  await list(runs);
  const address = await choose(runs);
  await comparison(address, runs);
  await wrongAddresses(runs);
  await running(runs[0]);
  await nodes(runs[0]);
  await hostile(runs[0]);
  await looks(address, runs);
});

/** The list shows these runs, in this order. */
async function shows(page, what, wanted) {
  const links = page.getByRole("region", { name: "Table of runs" }).locator("tbody th a");
  const ids = () => links.evaluateAll((all) => all.map((link) => link.pathname.split("/").at(-1)));
  await until(`${what}: ${wanted}`, async () => (await ids()).join() === wanted.join(), 10_000);
}

/** Words, comparisons, the state and the order; the address keeps them. */
async function list([slow, slower, adam]) {
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/runs` });
  const { items } = await call("GET", `${at}/runs?limit=1000`);
  await shows(page, "all runs, the newest first", items.map((run) => run.id).slice(0, 100));
  const search = page.getByRole("searchbox", { name: "Search runs" });
  await search.fill(`${OURS} fedadam lr=0.1 rounds=4`);
  await shows(page, "a strategy, a setting and a fact", [adam]);
  await search.fill(`${OURS} strategy=FedAvg lr<0.1`);
  await shows(page, "a comparison", [slower]);
  await search.fill(`lr>0.01 strategy=FedAvg ${OURS}`);
  await shows(page, "two comparisons", [slow]);

  await search.fill(`${OURS} acc>=0`);
  const order = await orderedBy(page, "loss", [slow, slower, adam]);
  await page.waitForURL(/order=-evaluate/);
  await page.reload();
  await shows(page, "the same after a reload", order);
  const download = await downloaded(page, page.getByRole("button", { name: "Download CSV" }));
  assert.deepEqual(download.map((row) => row.run).sort(), [slow, slower, adam].sort());
  assert.deepEqual(new Set(download.map((row) => row["config.lr"])), new Set(["0.1", "0.01"]));

  await search.fill("lr>high");
  await page.getByText("lr>high needs a number after >").waitFor();
  await sound(page, "a filter that is wrong");
  await search.fill("nosuchrun");
  await page.getByText("No run matches.").waitFor();
  await page.getByRole("button", { name: "Show all runs" }).click();
  await page.getByRole("combobox", { name: /^State/ }).selectOption("Completed");
  await search.fill(`${OURS} lr<0.1`);
  await shows(page, "a state", [slower]);
}

/** Presses the head of a metric's column; the runs in the order that the API gives. */
async function orderedBy(page, metric, runs) {
  const head = page.getByRole("columnheader", { name: new RegExp(metric) }).first();
  await head.getByRole("button").click();
  await until("the order to be said", async () => (await head.getAttribute("aria-sort")) === "descending", 10_000);
  const known = await Promise.all(runs.map(runOf));
  const value = ({ training }) => Object.entries(training.metrics).find(([name]) => name.startsWith("evaluate") && name.includes(metric))[1];
  const order = known.sort((a, b) => value(b) - value(a)).map((run) => run.id);
  await shows(page, `the highest ${metric} first`, order);
  return order;
}

/** Ticks runs with the keyboard; the address of their comparison. */
async function choose(runs) {
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/runs?q=${OURS}` });
  const compare = page.getByRole("button", { name: "Compare", exact: true });
  for (const [index, run] of runs.entries()) {
    await page.getByRole("checkbox", { name: `Compare run …${run.slice(-6)}` }).focus();
    await page.keyboard.press("Space");
    await page.getByText(index ? `${index + 1} runs chosen` : "1 run chosen").waitFor();
    assert.equal(await compare.isEnabled(), index > 0, `${index + 1} runs chosen`);
  }
  await compare.focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/compare\?runs=/);
  const { pathname, search } = new URL(page.url());
  assert.equal(search, `?runs=${runs.join(",")}`);
  await page.getByRole("heading", { level: 1, name: "Compare 3 runs" }).waitFor();
  await page.goBack();
  await until("the runs to be chosen as before", async () => (await page.getByRole("checkbox", { checked: true }).count()) === 3, 10_000);
  return pathname + search;
}

/** Curves over each other, the settings that differ, results and cost as the API has them; the download too. */
async function comparison(address, runs) {
  const page = await visit({ token: stage.tokens.viewer, at: address });
  const picture = page.getByRole("img", { name: /^evaluate acc over 4 rounds: A: .*, B: .*, C: / });
  await picture.waitFor();
  await until("three colours in one picture", async () => (await picture.locator("canvas").evaluate(colours)) >= 3);
  const table = page.getByRole("region", { name: "Table of settings, results and cost" });
  const row = (name) => table.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
  const cells = async (name) => (await row(name).getByRole("cell").allTextContents()).map((text) => text.trim());
  assert.deepEqual(await cells("lr"), ["0.1", "0.01", "0.1"]);
  assert.deepEqual(await cells("strategy"), ["FedAvg", "FedAvg", "FedAdam"]);
  assert.equal(await row("num-server-rounds").count(), 0, "settings that are equal are left out");
  await page.getByLabel("Show equal settings too").check();
  await until("equal settings", async () => (await cells("num-server-rounds")).join() === "4,4,4", 10_000);

  const reports = await Promise.all(runs.map(async (run) => (await call("GET", `${at}/runs/${run}/rounds`)).reports.filter((report) => report.kind === "round")));
  const replies = reports.map((of) => of.reduce((sum, { train, evaluate }) => sum + (train?.answered ?? 0) + (evaluate?.answered ?? 0), 0));
  assert.deepEqual(await cells("replies"), replies.map(String));
  const spent = reports.map((of) => of.flatMap(({ train, evaluate }) => [...(train?.clients ?? []), ...(evaluate?.clients ?? [])]).reduce((sum, one) => sum + one.seconds, 0));
  const told = (await cells("node time")).map(seconds);
  told.forEach((value, index) => assert.ok(Math.abs(value - spent[index]) < 0.51, `node time ${value} s of ${spent[index]} s`));
  assert.equal((await cells("evaluate loss")).filter((text) => text.endsWith(", the best")).length, 1);

  const rows = await downloaded(page, page.getByRole("button", { name: "Download CSV" }));
  assert.equal(rows.length, runs.length * ROUNDS);
  for (const [index, run] of runs.entries()) {
    const own = rows.filter((one) => one.run === run);
    assert.deepEqual(own.map((one) => Number(one.train_loss)), reports[index].map(({ train }) => lossOf(train)));
  }

  await page.getByLabel("Along").selectOption("time since the start");
  await page.getByRole("img", { name: /^evaluate acc/ }).waitFor();
  await page.getByRole("checkbox", { name: "evaluate loss" }).uncheck();
  await until("the address to have it", () => /along=time/.test(page.url()) && !/evaluate\+loss/.test(page.url()), 5_000);
  await page.reload();
  await picture.waitFor();
  assert.equal(await page.getByRole("checkbox", { name: "evaluate loss" }).isChecked(), false);
  await page.getByRole("link", { name: "Remove run A" }).click();
  await page.getByRole("heading", { level: 1, name: "Compare 2 runs" }).waitFor();
}

function lossOf({ metrics }) {
  return Object.entries(metrics).find(([name]) => /loss/.test(name))[1];
}

/** Addresses that were cut, that name a run that is not there, or too many. */
async function wrongAddresses([run]) {
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/compare` });
  await page.getByRole("heading", { name: "Choose two runs or more" }).waitFor();
  await page.goto(`${stage.url}${at}/compare?runs=${run},77`);
  await page.getByRole("alert").getByText(/^Run 77/).waitFor();
  await sound(page, "a run that is not there");
  await page.goto(`${stage.url}${at}/compare?runs=1,2,3,4,5,6,7,8,9`);
  await page.getByText("The address names 9 runs. The first 8 are shown.").waitFor();
}

/** A run that is at work gets its new rounds while it is compared. */
async function running(other) {
  const run = await startRun(500, { "local-epochs": 4 });
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/compare?runs=${other},${run}` });
  const table = page.getByRole("region", { name: "Table of settings, results and cost" });
  const rounds = async () => Number(await table.getByRole("row").filter({ has: page.getByRole("rowheader", { name: "rounds", exact: true }) }).getByRole("cell").last().textContent());
  const first = await until("a round", rounds);
  await until("a later round", async () => (await rounds()) > first);
  await call("POST", `${at}/runs/${run}/stop`);
  await finished(run);
  await page.getByRole("region", { name: "Runs" }).getByText("Stopped", { exact: true }).waitFor();
}

/** Curves of single nodes; which of them stand out; the download has each reply. */
async function nodes(run) {
  const page = await visit({ token: stage.tokens.viewer, at: `${at}/runs/${run}` });
  const section = page.getByRole("region", { name: "Metrics by node" });
  await section.getByRole("img", { name: /^evaluate acc over 4 rounds: imaging-0 .*wards-2 / }).waitFor();
  await page.getByRole("checkbox", { name: "imaging-0" }).uncheck();
  await section.getByText("1 other node, drawn thin").waitFor();
  await section.getByLabel("Measure").selectOption("train seconds to reply");
  await until("the address to have it", () => /measure=train\+seconds/.test(page.url()) && /nodes=\d+,\d+/.test(page.url()), 5_000);
  await page.reload();
  await section.getByRole("img", { name: /^train seconds to reply over 4 rounds: imaging-1 / }).waitFor();

  const { reports } = await call("GET", `${at}/runs/${run}/rounds`);
  const clients = reports.filter((report) => report.kind === "round").flatMap(({ train, evaluate }) => [...train.clients, ...evaluate.clients]);
  const rows = await downloaded(page, section.getByRole("button", { name: "Download CSV" }));
  assert.deepEqual(rows.map((row) => [row.node_id, Number(row.seconds)]).sort(), clients.map((one) => [one.node, one.seconds]).sort());
  assert.ok(rows.every((row) => /^(wards|imaging)-\d$/.test(row.node)));
  const rounds = await downloaded(page, page.getByRole("region", { name: "Metrics", exact: true }).getByRole("button", { name: "Download CSV" }));
  assert.deepEqual(rounds.map((row) => row.round), ["1", "2", "3", "4"]);
}

/** Names that a spreadsheet takes for formulas, separators, numbers that JSON does not have, metrics with the name of something else. */
async function hostile(run) {
  const client = { node: "=1+1", weight: 1, seconds: 1, metrics: { 'a,"b"': "-inf", weight: 7, loss: 2, train_loss: 3 } };
  const report = { round: 1, kind: "round", strategy: "", rounds_planned: 1, started_at: 5, train: { seconds: 2, asked: 1, answered: 1, clients: [client], metrics: { loss: "nan", list: [1, -2] } } };
  const page = await visit({ token: stage.tokens.viewer });
  await page.route(`${stage.url}/api/v1${at}/runs/${run}/rounds**`, (route) => route.fulfill({ json: { reports: [report], more: false } }));
  await page.goto(`${stage.url}${at}/runs/${run}`);
  const text = async (name) => readFileSync(await (await file(page, page.getByRole("region", { name, exact: true }).getByRole("button", { name: "Download CSV" }))).path(), "utf8");
  assert.equal(await text("Metrics"), "round,started_at,seconds,nodes,update_norm,epsilon,train_loss,train_list_0,train_list_1\r\n1,5,2,1,,,NaN,1,-2\r\n");
  assert.equal(await text("Metrics by node"), `round,phase,node,node_id,failure,weight,seconds,update_norm,chosen,"train_a,""b""",train_weight,train_loss\r\n1,train,'=1+1,'=1+1,,1,1,,,-inf,7,3\r\n`);
}

async function looks(address, runs) {
  for (const [width, scheme] of VIEWS) {
    const page = await visit({ token: stage.tokens.viewer, width, scheme, at: address });
    await page.getByRole("img", { name: /^evaluate acc/ }).waitFor();
    await sound(page, `comparison at ${width} px, ${scheme}`);
    await page.goto(`${stage.url}${at}/runs?runs=${runs.join(",")}&q=${OURS}&order=-duration`);
    await page.getByText("3 runs chosen").waitFor();
    await sound(page, `chosen runs at ${width} px, ${scheme}`);
    await page.goto(`${stage.url}${at}/runs/${runs[0]}`);
    await page.getByRole("heading", { name: "Metrics by node" }).waitFor();
    await sound(page, `nodes of a run at ${width} px, ${scheme}`);
  }
}

async function file(page, button) {
  const [offered] = await Promise.all([page.waitForEvent("download"), button.click()]);
  assert.match(offered.suggestedFilename(), /\.csv$/);
  return offered;
}

async function downloaded(page, button) {
  const [head, ...rows] = readFileSync(await (await file(page, button)).path(), "utf8").split("\r\n").slice(0, -1).map((line) => line.split(","));
  return rows.map((row) => Object.fromEntries(row.map((cell, index) => [head[index], cell])));
}

/** `1 min 5 s`, `850 ms` in seconds. */
function seconds(text) {
  return [...text.matchAll(/([\d.]+) (ms|s|min)/g)].reduce((sum, [, value, unit]) => sum + value * { ms: 0.001, s: 1, min: 60 }[unit], 0);
}

/** How many colours, not greys, cover more than a few points of a picture. */
function colours(canvas) {
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height }).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  const found = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.subarray(at, at + 4);
    if (alpha < 255 || Math.max(red, green, blue) - Math.min(red, green, blue) < 40) continue;
    const colour = `${red},${green},${blue}`;
    found.set(colour, (found.get(colour) ?? 0) + 1);
  }
  return [...found.values()].filter((count) => count > 100).length;
}
