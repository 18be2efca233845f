// A federation is made and deleted from the page alone.
import { play, stage, until, visit } from "../stage.mjs";

const NAME = "made-by-page";
const SETTLE_MS = 120_000;
const DOCUMENT = `apiVersion: trellis.dev/v1
kind: Federation
metadata:
  name: ${NAME}
spec:
  pools:
  - name: nodes
    count: 1
`;

await play(async () => {
  const page = await visit({ token: stage.tokens.admin });
  const watcher = await visit({ token: stage.tokens.viewer });
  await page.getByRole("link", { name: "New federation" }).click();
  await page.getByRole("textbox", { name: "Document" }).fill(DOCUMENT);
  await page.getByRole("button", { name: "See the plan" }).click();
  await page.getByText("Changes of the document").waitFor();
  await page.getByRole("button", { name: "Apply" }).click();
  await page.getByRole("heading", { level: 1, name: NAME }).waitFor();
  await watcher.getByRole("link", { name: NAME }).waitFor();
  await until("its node to be ready", () => page.getByRole("link", { name: /^nodes-0 ready/ }).isVisible(), SETTLE_MS);

  await page.getByRole("button", { name: "Delete…" }).click();
  const go = page.getByRole("button", { name: "Delete the federation" });
  await until("the button to wait for the name", () => go.isDisabled());
  await page.getByLabel(/^Type/).fill(NAME);
  await go.click();
  await until("the page to say that it is gone", () => page.getByText("This federation is gone").isVisible(), SETTLE_MS);
  await until("the list to be without it", async () => (await watcher.getByRole("link", { name: NAME }).count()) === 0, SETTLE_MS);
});
