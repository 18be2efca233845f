// A token is issued, shown once, used, and revoked.
import { play, sound, stage, until, visit } from "../stage.mjs";

await play(async () => {
  const page = await visit({ token: stage.tokens.admin, at: "/tokens" });
  await page.getByLabel("Name").fill("night shift");
  await page.getByRole("radio", { name: /^runner/ }).check();
  await page.getByLabel("Valid").selectOption({ label: "1 day" });
  await page.getByRole("button", { name: "Issue the token" }).click();
  const token = (await page.getByRole("region", { name: "the token" }).textContent()).trim();
  await sound(page, "the token, shown once");
  await page.getByRole("button", { name: "I have it" }).click();
  await until("it to be shown no more", async () => (await page.getByText(token).count()) === 0);

  const holder = await visit({ token });
  await holder.getByText("night shift").waitFor();
  await page.getByRole("button", { name: "Revoke the token of night shift" }).click();
  await page.getByRole("button", { name: "Revoke it" }).click();
  await until("the list to be without it", async () => (await page.getByRole("button", { name: "Revoke the token of night shift" }).count()) === 0);
  await holder.getByLabel("Token").waitFor();
});
