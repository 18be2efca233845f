// A pool grows and shrinks from the page, and another visitor sees it happen.
import { call, play, stage, until, visit } from "../stage.mjs";

const SETTLE_MS = 120_000;

await play(async () => {
  const { status } = await call("GET", `/federations/${stage.federation}`);
  const { name: pool, wanted } = status.pools[0];
  const at = `/federations/${stage.federation}`;
  const admin = await visit({ token: stage.tokens.admin, at });
  const other = await visit({ token: stage.tokens.viewer, at });
  const tile = other.getByRole("link", { name: new RegExp(`^${pool}-${wanted} ready`) });

  await admin.getByRole("button", { name: `One node more in ${pool}` }).click();
  await admin.getByRole("button", { name: `Scale ${pool} to ${wanted + 1}` }).click();
  await until("the new node to be ready", () => tile.isVisible(), SETTLE_MS);

  await admin.getByLabel(`Nodes wanted in ${pool}`).fill(String(wanted));
  await admin.getByRole("button", { name: `Scale ${pool} to ${wanted}` }).click();
  await until("the node to be gone", async () => (await tile.count()) === 0, SETTLE_MS);
  await until("the federation to be ready", () => other.getByText("Ready", { exact: true }).first().isVisible(), SETTLE_MS);
});
