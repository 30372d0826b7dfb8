import type { Theme } from "vitepress";
import theme from "vitepress/theme-without-fonts";
import "./style.css";
import { chooseTabsTogether } from "./tabs.ts";

export default { extends: theme, setup: chooseTabsTogether } satisfies Theme;
