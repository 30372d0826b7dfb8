import { render } from "preact";
import { restoreSession } from "./api.ts";
import { App } from "./app.tsx";
import { startLive } from "./live.ts";
import { applyTheme } from "./theme.ts";
import "./style.css";
import "./components/components.css";
import "./pages/pages.css";

applyTheme();
startLive();
void restoreSession();
render(<App />, document.body);
