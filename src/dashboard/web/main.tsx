import { render } from "preact";
import { restoreSession } from "./api.ts";
import { App } from "./app.tsx";
import { startLive } from "./live.ts";
import { applyTheme } from "./theme.ts";
import "./style.css";
import "./components/controls.css";
import "./components/icon.css";
import "./components/menu.css";
import "./components/display.css";
import "./components/table.css";
import "./components/dialog.css";
import "./components/chart.css";
import "./pages/pages.css";

applyTheme();
startLive();
void restoreSession();
render(<App />, document.body);
