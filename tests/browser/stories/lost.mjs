// The way to the server is cut and mended: the page says so, comes back by itself, and shows what it missed.
import net from "node:net";
import { call, play, stage, until, visit } from "../stage.mjs";

await play(async () => {
  const way = await cuttable(new URL(stage.url));
  const page = await visit({ url: way.url, token: stage.tokens.admin });
  const state = page.getByRole("banner").getByRole("status");
  await state.getByText("Live", { exact: true }).waitFor();
  way.cut();
  await page.getByText(/connection to the server is lost/).waitFor();
  const made = await call("POST", "/tokens", { body: { name: "while away", role: "viewer" } });
  await way.mend();
  await state.getByText("Live", { exact: true }).waitFor();
  await until("the warning to go", async () => (await page.getByText(/connection to the server is lost/).count()) === 0);
  await page.getByRole("link", { name: "Tokens" }).click();
  await page.getByText("while away").waitFor();
  await call("DELETE", `/tokens/${made.about.id}`);
  way.cut();
});

/** A way to the server through a port of its own. */
async function cuttable(target) {
  const sockets = new Set();
  const make = () =>
    net.createServer((near) => {
      const far = net.connect(Number(target.port), target.hostname);
      for (const [from, to] of [[near, far], [far, near]]) {
        sockets.add(from);
        from.pipe(to);
        from.on("error", () => to.destroy());
        from.on("close", () => (sockets.delete(from), to.destroy()));
      }
    });
  const listening = (server, port) => new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  let server = make();
  await listening(server, 0);
  const { port } = server.address();
  return {
    url: `http://127.0.0.1:${port}`,
    cut: () => {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
    mend: () => listening((server = make()), port),
  };
}
