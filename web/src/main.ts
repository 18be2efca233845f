// Where the page begins.

import "./style/tokens.css";
import "./style/base.css";
import "./style/forms.css";
import "./style/blocks.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { session } from "./session.svelte";
import "./theme.svelte";

session.restore();
const target = document.getElementById("app");
if (!target) throw new Error("index.html has no element #app");
mount(App, { target });
