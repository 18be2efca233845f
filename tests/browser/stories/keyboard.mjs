// Everything with the keyboard alone: whatever has the focus can be seen, and nothing holds it.
import assert from "node:assert/strict";
import { play, stage, visit } from "../stage.mjs";

const MOST_STEPS = 80;

await play(async () => {
  const page = await visit();
  await tabTo(page, "Token");
  await page.keyboard.type(stage.tokens.admin);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Federations" }).waitFor();

  await page.reload();
  await page.getByRole("heading", { name: "Federations" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await focused(page), "Skip to content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "content");

  await tabTo(page, stage.federation);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: stage.federation }).waitFor();
  await page.getByRole("button", { name: /^Coordinator/ }).waitFor();
  const coordinator = await tabTo(page, /^Coordinator/);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  assert.equal(await focused(page), coordinator, "the focus is back where the dialog was opened");

  await tabTo(page, "Nodes", "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^Nodes/ }).waitFor();
  await page.goBack();
  await page.reload();
  await page.getByRole("button", { name: /^Coordinator/ }).waitFor();
  await allReached(page);
});

function focused(page) {
  return page.evaluate(() => {
    const element = document.activeElement;
    const label = element.labels?.[0]?.textContent;
    return (element.getAttribute("aria-label") ?? label ?? element.textContent).trim();
  });
}

/** Presses Tab until something of this name has the focus; its name. */
async function tabTo(page, name, key = "Tab") {
  for (let step = 0; step < MOST_STEPS; step++) {
    await page.keyboard.press(key);
    await visible(page);
    const told = await focused(page);
    if (typeof name === "string" ? told === name : name.test(told)) return told;
  }
  assert.fail(`${name} is not reached with ${key}`);
}

async function visible(page) {
  const style = await page.evaluate(() => {
    const element = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    return { body: element === document.body, outlineStyle, outlineWidth };
  });
  assert.ok(style.body || (style.outlineStyle !== "none" && style.outlineWidth !== "0px"), `${await focused(page)} shows its focus`);
}

/** From the first to the last and out again: nothing holds the focus. */
async function allReached(page) {
  const wanted = await page.locator("a:visible, button:visible:enabled, input:visible, select:visible").count();
  const seen = new Set();
  for (let step = 0; step < wanted * 2 + 10; step++) {
    await page.keyboard.press("Tab");
    const mark = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      element.dataset.reached ??= String(Math.random());
      return element.dataset.reached;
    });
    if (mark === null || seen.has(mark)) break;
    seen.add(mark);
  }
  assert.ok(seen.size >= wanted, `${seen.size} of ${wanted} controls are reached`);
}
