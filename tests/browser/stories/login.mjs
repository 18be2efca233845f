// Tokens that are refused, accepted, taken from the address, and revoked while one looks.
import assert from "node:assert/strict";
import { call, play, sound, stage, visit } from "../stage.mjs";

await play(async () => {
  const page = await visit();
  await page.getByLabel("Token").fill("not-a-token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  assert.notEqual((await page.getByRole("alert").textContent()).trim(), "", "the login form says why");
  await sound(page, "refused");

  await page.getByLabel("Token").fill(stage.tokens.viewer);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Federations" }).waitFor();
  await page.reload();
  await page.getByRole("heading", { name: "Federations" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  await page.reload();
  await page.getByLabel("Token").waitFor();

  const { token, about } = await call("POST", "/tokens", { body: { name: "visitor", role: "viewer" } });
  const guest = await visit({ token });
  await guest.getByRole("heading", { name: "Federations" }).waitFor();
  assert.ok(!guest.url().includes(token), "the token is not left in the address");
  await call("DELETE", `/tokens/${about.id}`);
  await guest.getByLabel("Token").waitFor();
  await guest.getByRole("alert").waitFor();
});
