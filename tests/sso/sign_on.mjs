// A user signs in at the identity provider, is refused as another user, comes back to the page they wanted, signs out, and loses a
// session that an administrator revokes.
import assert from "node:assert/strict";
import { call, play, sound, stage, until, visit } from "../browser/stage.mjs";

async function signIn(page, email) {
  await page.getByRole("button", { name: "Sign in with Clinic" }).click();
  await page.getByPlaceholder("email address").fill(email);
  await page.getByPlaceholder("password").fill(stage.password);
  await page.getByRole("button", { name: "Login" }).click();
}

const audited = async (event) => (await call("GET", "/audit?limit=1000")).filter((entry) => entry.event === event);
const sessions = async () => (await call("GET", "/tokens")).filter((token) => token.name === stage.admitted);

await play(async () => {
  for (const [width, scheme] of [[1440, "light"], [390, "dark"]]) {
    const page = await visit({ width, scheme });
    await page.getByRole("button", { name: "Sign in with Clinic" }).waitFor();
    await sound(page, `login at ${width} px, ${scheme}`);
  }

  const stranger = await visit();
  await signIn(stranger, stage.refused);
  await stranger.getByRole("alert").filter({ hasText: "missing group" }).waitFor();
  await sound(stranger, "refused by a missing group");
  assert.equal((await audited("sign-in-refused")).at(-1).actor, stage.refused);

  const page = await visit({ at: "/new" });
  await signIn(page, stage.admitted);
  await page.getByRole("button", { name: "Sign out" }).waitFor();
  assert.equal(new URL(page.url()).pathname, "/new", "the page that they wanted");
  assert.ok(!page.url().includes("#"), "nothing of the login is left in the address");
  await page.goto(stage.url);
  await page.getByRole("heading", { name: "Federations", exact: true }).waitFor();
  assert.equal((await audited("signed-in")).at(-1).actor, stage.admitted);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("button", { name: "Sign in with Clinic" }).waitFor();
  await until("the session to end at the server", async () => (await sessions()).length === 0);

  const other = await visit();
  await signIn(other, stage.admitted);
  await other.getByRole("heading", { name: "Federations", exact: true }).waitFor();
  const [session] = await sessions();
  await call("DELETE", `/tokens/${session.id}`);
  await other.getByRole("alert").filter({ hasText: "revoked" }).waitFor();
});
