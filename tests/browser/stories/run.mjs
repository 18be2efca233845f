// A run from the form to its end: a wrong setting is told at its field, rounds appear as they happen, and it can be stopped.
import assert from "node:assert/strict";
import { finished, play, stage, until, visit } from "../stage.mjs";

const ROUNDS = 6;

await play(async () => {
  const page = await visit({ token: stage.tokens.runner, at: `/federations/${stage.federation}` });
  await page.getByRole("link", { name: "Start a run" }).click();
  await page.getByRole("radio", { name: /native:mlp/ }).check();
  await page.getByLabel("num-server-rounds").fill("many");
  await page.getByRole("button", { name: "Start the run" }).click();
  const field = page.getByLabel("num-server-rounds");
  await until("the field to be wrong", async () => (await field.getAttribute("aria-invalid")) === "true");
  const told = await field.evaluate((input) => input.getAttribute("aria-describedby").split(" ").map((id) => document.getElementById(id).textContent).join(" "));
  assert.match(told, /many/, "what is wrong is told at the field");

  const first = await start(page, ROUNDS);
  const rows = page.getByRole("region", { name: "Table of rounds" }).locator("tbody tr");
  await until("the rounds to appear without a reload", async () => (await rows.count()) >= ROUNDS);
  await page.getByText("Completed", { exact: true }).waitFor();
  const curve = page.getByRole("img", { name: /^acc over 6 rounds/ });
  await until("the curve to be drawn up to the last round", () => curve.locator("canvas").evaluate(drawnAtTheRight));
  const nodes = page.getByRole("region", { name: "Table of nodes in this run" }).locator("tbody th label > span");
  const names = await nodes.allTextContents();
  assert.ok(names.length > 0 && names.every((name) => /^[a-z]+-\d+$/.test(name)), `nodes by their names: ${names}`);
  await fills(page);
  await page.setViewportSize({ width: 390, height: 900 });
  await fills(page);
  await page.setViewportSize({ width: 1440, height: 900 });
  const progress = page.getByRole("region", { name: "Progress" });
  for (const fact of [/Started by\s*runner/, /Duration\s*[\d.]+ (ms|s|min)/, /Finished/]) assert.match(await progress.textContent(), fact);
  const config = page.getByRole("region", { name: "Configuration" });
  assert.match(await config.textContent(), new RegExp(`num-server-rounds\\s*${ROUNDS}`));
  await until("the log to have lines", async () => /round/i.test(await page.getByRole("region", { name: "Log of the run" }).textContent()));
  assert.ok(first);

  await page.getByRole("link", { name: stage.federation }).click();
  await page.getByRole("link", { name: "Start a run" }).click();
  await start(page, 500, "4");
  await until("a round", async () => (await rows.count()) >= 1);
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop the run" }).click();
  await page.getByText("Stopped", { exact: true }).waitFor();
  await until("no second stop to be offered", async () => (await page.getByRole("button", { name: "Stop…" }).count()) === 0);
  await finished(page.url().split("/").at(-1));
});

/** The bars of the rounds reach from the left to the right end of their picture. */
async function fills(page) {
  const [left, right, width] = await page.getByRole("img", { name: /^Duration of the last/ }).evaluate((svg) => {
    const box = svg.getBoundingClientRect();
    const bars = [...svg.querySelectorAll(".ground")].map((bar) => bar.getBoundingClientRect());
    return [Math.min(...bars.map((bar) => bar.left)) - box.left, box.right - Math.max(...bars.map((bar) => bar.right)), box.width];
  });
  assert.ok(left < 2 && right < 2 && width > 250, `bars leave ${left} px and ${right} px of ${width} px`);
}

async function start(page, rounds, epochs) {
  await page.getByRole("radio", { name: /native:mlp/ }).check();
  await page.getByLabel("num-server-rounds").fill(String(rounds));
  if (epochs) await page.getByLabel("local-epochs").fill(epochs);
  await page.getByRole("button", { name: "Start the run" }).click();
  await page.waitForURL(/\/runs\/[^/]+$/);
  return page.url().split("/").at(-1);
}

/** Whether there is a line, not only the grid, in the right part of a picture. */
function drawnAtTheRight(canvas) {
  const [x, width] = [Math.floor(canvas.width * 0.8), Math.floor(canvas.width * 0.15)];
  // From a copy: a browser warns of reading often from what is drawn to.
  const copy = Object.assign(document.createElement("canvas"), { width, height: canvas.height }).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, -x, 0);
  const { data } = copy.getImageData(0, 0, width, canvas.height);
  const COLOURED = 40;
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.subarray(at, at + 4);
    if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > COLOURED) return true;
  }
  return false;
}
