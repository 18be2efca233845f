// The pictures of the documentation. Played only when they are to be made anew.
import path from "node:path";
import { finished, play, stage, startRun, until, visit } from "../stage.mjs";

const of = (tail) => `/federations/${stage.federation}${tail}`;

await play(async () => {
  const runs = [];
  for (const settings of [{}, { strategy: "FedAdam" }, { lr: 0.02 }]) {
    const run = await startRun(20, settings);
    await finished(run);
    runs.push(run);
  }
  const compare = of(`/compare?runs=${runs.join(",")}`);
  const pictures = { federations: "/", federation: of(""), run: of(`/runs/${runs[0]}`), compare, plan: of("/plan"), submit: of("/submit") };
  for (const width of [1440, 390]) {
    for (const scheme of ["light", "dark"]) {
      for (const [name, at] of Object.entries(pictures)) {
        const page = await visit({ token: stage.tokens.admin, width, scheme, at });
        await page.getByRole("heading", { level: 1 }).waitFor();
        await page.getByText("Loading…").first().waitFor({ state: "detached" });
        if (name === "plan") await planned(page);
        await until("the stream", () => page.getByTitle("Changes are shown as they happen").isVisible());
        await page.evaluate(() => (scrollTo(0, 0), document.activeElement.blur(), document.fonts.ready));
        await page.evaluate(asInstalled, stage.home);
        await page.screenshot({ path: path.join(stage.pictures, `${name}-${width}-${scheme}.png`), fullPage: true, caret: "hide" });
        await page.context().close();
      }
    }
  }
});

/** Paths of the test's own directory are shown as those of an installation, so that pictures do not change with it. */
function asInstalled(home) {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(home, "/var/lib/trellis");
}

/** With a change that was not applied. */
async function planned(page) {
  const area = page.getByRole("textbox", { name: "Document" });
  await area.fill((await area.inputValue()).replace(/count: (\d+)/, (_, count) => `count: ${Number(count) + 2}`));
  await page.getByRole("button", { name: "See the plan" }).click();
  await page.getByRole("region", { name: "Difference" }).waitFor();
}
