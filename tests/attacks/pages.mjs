// What a page of elsewhere can do to a SuperLink on its visitor's machine, in a real browser: prints the outcome of every
// attempt as JSON. Which outcome is right, the test beside this knows.

import { createRequire } from "node:module";
import path from "node:path";

const given = JSON.parse(process.env.TRELLIS_PAGES);
const { chromium } = createRequire(path.join(given.packages, "package.json"))("playwright-core");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--host-resolver-rules=MAP rebound.example 127.0.0.1, MAP evil.example 127.0.0.1",
  // Newer browsers ask before a public page calls a private address; older ones, and other browsers, do not.
  "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
];
const ACCOUNT = JSON.stringify({ name: "intruder", role: "admin" });

/** In the page: the status of an answer, or how it failed. */
const attempt = async ({ url, options, untyped }) => {
  if (untyped) options.body = new Blob([options.body]);
  try {
    const answer = await fetch(url, { method: "POST", ...options });
    return answer.type === "opaque" ? "sent" : answer.status;
  } catch (error) {
    return String(error);
  }
};

const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
const page = await browser.newPage();
const outcome = {};

await page.goto(given.evil);
const url = `http://127.0.0.1:${given.port}/v1/trellis/create-account`;
const json = { "content-type": "application/json" };
outcome.text = await page.evaluate(attempt, { url, options: { mode: "no-cors", body: ACCOUNT } });
outcome.untyped = await page.evaluate(attempt, { url, untyped: true, options: { mode: "no-cors", body: ACCOUNT } });
outcome.json = await page.evaluate(attempt, { url, options: { headers: json, body: ACCOUNT } });

await page.goto(`http://rebound.example:${given.port}/health`);
const own = "/v1/trellis/create-account";
outcome.rebound = await page.evaluate(attempt, { url: own, options: { headers: json, body: ACCOUNT } });
const grpc = { "content-type": "application/grpc" };
outcome.rebound_grpc = await page.evaluate(attempt, { url: "/flwr.proto.Control/StopRun", options: { headers: grpc, body: "" } });

await page.goto(`http://localhost:${given.port}/health`);
const probe = { url: "/v1/trellis/list-nodes", options: { headers: json, body: "{}" } };
outcome.own_page = await page.evaluate(attempt, probe);

await page.goto(`http://localhost:${given.login_port}/login?code=X`);
await page.fill("input[name=token]", given.token);
await page.click("button");
outcome.login = await page.innerText("body");

await browser.close();
console.log(JSON.stringify(outcome));
