// Where stories are played: a real browser, one context for each visitor, and what every page must keep to. The address of
// the server, its tokens and where packages are come from the environment; knows nothing of how a server is started.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const given = JSON.parse(process.env.TRELLIS_STAGE ?? "{}");
const packages = createRequire(path.join(given.packages, "package.json"));
const { chromium } = packages("playwright-core");
const AXE = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");

const LIMIT_MS = 30_000;
const NARROW_PX = 640;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
// The browser says so by itself for every call that is refused or does not arrive; stories provoke both.
const isOfACall = (said) => /^Failed to load resource/.test(said.text()) && new URL(said.location().url).pathname.startsWith("/api/");

/** `{ url, tokens: { admin, runner, viewer }, federation, home, pictures, broken, elsewhere: origins beside url }` */
export const stage = given;

let browser;
const visitors = [];

/** A visitor with a browser window of its own. `token`: signed in, at `at`. */
export async function visit({ at = "/", token, width = 1440, scheme = "light", url = given.url } = {}) {
  browser ??= await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  const context = await browser.newContext({
    viewport: { width, height: 900 },
    colorScheme: scheme,
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
  });
  context.setDefaultTimeout(LIMIT_MS);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (said) => {
    if (["error", "warning"].includes(said.type()) && !isOfACall(said)) errors.push(said.text());
  });
  page.on("request", (request) => {
    if (![url, "data:", `blob:${url}`, ...(given.elsewhere ?? [])].some((own) => request.url().startsWith(own))) errors.push(`asked for ${request.url()}`);
  });
  visitors.push({ page, errors });
  await page.goto(url + at + (token ? `#token=${token}` : ""));
  return page;
}

/** No serious finding of axe, nothing wider than the window, and no table cut off in a narrow one. */
export async function sound(page, what) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const grave = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  const told = grave.map((one) => `${one.id}: ${one.help}\n${one.nodes.map((node) => `  ${node.html}\n  ${node.failureSummary}`).join("\n")}`);
  assert.equal(told.join("\n"), "", `${what}: accessibility`);
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide <= window, `${what}: ${wide} px wide in a window of ${window} px`);
  const cut = await page.locator(".scroll").evaluateAll((boxes) => boxes.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel));
  assert.ok(window > NARROW_PX || cut.length === 0, `${what}: cut off at ${window} px: ${cut.join(", ")}`);
}

/** Calls the API beside the page, as the administrator unless another token is named. */
export async function call(method, route, { body, text, token = given.tokens.admin, headers = {} } = {}) {
  const type = text === undefined ? "application/json" : "application/yaml";
  const response = await fetch(`${given.url}/api/v1${route}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": type, ...headers },
    body: text ?? (body === undefined ? undefined : JSON.stringify(body)),
  });
  assert.ok(response.ok, `${method} ${route}: ${response.status} ${await response.clone().text()}`);
  const told = await response.text();
  return told ? JSON.parse(told) : undefined;
}

/** Looks again until it is so; what it is. */
export async function until(what, look, limit_ms = 60_000) {
  const end = Date.now() + limit_ms;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    assert.ok(Date.now() < end, `not within ${limit_ms / 1000} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Starts a run with the API, of some rounds; its id. */
export async function startRun(rounds, settings = {}) {
  const body = { app: "native:mlp", settings: { "num-server-rounds": rounds, ...settings } };
  const started = await until("a run to be taken", () => call("POST", `/federations/${given.federation}/runs`, { body }).catch(() => null));
  return started.id;
}

export const runOf = (id) => call("GET", `/federations/${given.federation}/runs/${id}`);
export const finished = (id) => until(`run ${id} to end`, async () => (await runOf(id)).state === "finished", 120_000);

/** Plays a story: what it finds wrong, or the browser's console does, ends it with a picture and a failure. */
export async function play(story) {
  try {
    await story();
    const errors = visitors.flatMap((visitor) => visitor.errors);
    assert.deepEqual(errors, [], "the browser's console");
  } catch (error) {
    console.error(error);
    for (const [index, { page, errors }] of visitors.entries()) {
      const file = path.join(given.broken ?? ".", `${path.basename(process.argv[1], ".mjs")}-${index}.png`);
      await page.screenshot({ path: file, fullPage: true }).catch(() => undefined);
      console.error(`visitor ${index} at ${page.url()}, picture in ${file}; console: ${JSON.stringify(errors)}`);
    }
    process.exitCode = 1;
  } finally {
    await browser?.close();
  }
}
