// A document is written, its mistake shown at its line, its plan seen, then applied; who writes on an older one is told.
import assert from "node:assert/strict";
import { call, play, stage, until, visit } from "../stage.mjs";

await play(async () => {
  const route = `/federations/${stage.federation}`;
  const before = await call("GET", route);
  const page = await visit({ token: stage.tokens.admin, at: `${route}/plan` });
  const area = page.getByRole("textbox", { name: "Document" });
  const text = await area.inputValue();
  assert.equal(text, before.document);

  const line = text.split("\n").findIndex((one) => /^\s*(- )?count:/.test(one)) + 1;
  await area.fill(text.replace("count:", "cuont:"));
  await page.getByRole("button", { name: "See the plan" }).click();
  await page.getByRole("button", { name: new RegExp(`^Line ${line}\\b`) }).click();
  const caret = await area.evaluate((element) => element.value.slice(0, element.selectionStart).split("\n").length);
  assert.equal(caret, line, "the caret is in the line with the mistake");
  assert.ok(await page.getByRole("button", { name: "Apply" }).isDisabled(), "what has no plan is not applied");

  const changed = withRounds(text);
  await area.fill(changed);
  await page.getByRole("button", { name: "See the plan" }).click();
  await page.getByRole("region", { name: "Difference" }).getByText(/rounds/).first().waitFor();
  await page.getByRole("button", { name: "Apply" }).click();
  await until("the next revision", async () => (await call("GET", route)).summary.revision > before.summary.revision);
  await page.getByText(`revision ${before.summary.revision + 1}`, { exact: true }).waitFor();

  await area.fill(`${await area.inputValue()}# mine\n`);
  await call("PUT", route, { text: before.document });
  await page.getByText(/Somebody changed the document/).waitFor();
  await page.getByRole("button", { name: "Drop my changes and load it" }).click();
  await until("the newest document", async () => (await area.inputValue()) === before.document);
});

/** Another number of rounds in the training section. */
function withRounds(text) {
  const changed = text.replace(/(num-server-rounds: )(\d+)/, (_, head, rounds) => head + (Number(rounds) + 1));
  assert.notEqual(changed, text);
  return changed;
}
