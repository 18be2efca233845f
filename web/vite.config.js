// How the page is built: one script, one style sheet, and nothing that a strict content security policy refuses.
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  // Deep links are served with the same index.html, so its assets are named from the root.
  base: "/",
  plugins: [svelte()],
  build: {
    target: "es2023",
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
  },
  server: {
    // `npm run dev` beside a server: TRELLIS_URL=http://127.0.0.1:PORT npm run dev
    proxy: process.env.TRELLIS_URL ? { "/api": process.env.TRELLIS_URL, "/health": process.env.TRELLIS_URL } : {},
  },
});
