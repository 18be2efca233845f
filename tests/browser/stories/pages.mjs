// Every page, light and dark, wide and narrow: sound, reachable by its address, the same after a reload.
import { play, sound, stage, startRun, finished, visit } from "../stage.mjs";

const of = (tail) => `/federations/${stage.federation}${tail}`;

await play(async () => {
  const run = await startRun(4);
  await finished(run);
  const pages = [
    ["/", "Federations"],
    ["/new", "New federation"],
    ["/tokens", "Tokens"],
    [of(""), stage.federation],
    [of("/nodes"), stage.federation],
    [of("/runs"), stage.federation],
    [of("/plan"), stage.federation],
    [of("/connect"), stage.federation],
    [of("/submit"), "Start a run"],
    [of(`/runs/${run}`), /./],
    [of("/nodes/wards-0"), "wards-0"],
    [of("/nodes/wards-99"), "wards-99"],
    ["/no/such/page", "There is nothing here"],
  ];
  for (const [width, scheme] of [[1440, "light"], [1440, "dark"], [390, "light"], [390, "dark"]]) {
    const page = await visit({ token: stage.tokens.admin, width, scheme });
    for (const [address, title] of pages) {
      const what = `${address} at ${width} px, ${scheme}`;
      await page.goto(stage.url + address);
      await settled(page, title);
      await sound(page, what);
    }
    // What the address names is there after a reload, in the tab that it names.
    await page.goto(stage.url + of("/connect"));
    await page.reload();
    await page.getByRole("heading", { name: "Run a Flower app here" }).waitFor();
    await page.goto(stage.url + of(""));
    await page.getByRole("button", { name: /^Coordinator/ }).click();
    await page.getByRole("region", { name: "Log of coordinator" }).waitFor();
    await sound(page, `log at ${width} px, ${scheme}`);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Delete…" }).click();
    await page.getByLabel(/^Type/).waitFor();
    await sound(page, `question at ${width} px, ${scheme}`);
  }
});

async function settled(page, title) {
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
  await page.getByText("Loading…").first().waitFor({ state: "detached" });
}
