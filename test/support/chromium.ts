import { existsSync } from "node:fs";
import type { Browser, Page } from "playwright-core";

/** Of this machine; undefined: it has none. */
export const CHROMIUM = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
].find((path) => existsSync(path));

export async function launchChromium(): Promise<Browser> {
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
}

/** Signs in where the page shows the form. */
export async function signInAs(page: Page, key: string): Promise<void> {
  await page.getByLabel("Management key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
}

export const untilHeaded = (page: Page): Promise<void> =>
  page.getByRole("heading", { level: 1 }).first().waitFor();

/** Until the page shows what it has loaded. */
export async function untilLoaded(page: Page): Promise<void> {
  await untilHeaded(page);
  await page.waitForFunction(() => !document.querySelector(".skeleton, [aria-busy=true]"));
}

/** Addresses of the menu, in its order. */
export async function menuOf(page: Page): Promise<{ name: string; path: string }[]> {
  const links = page.locator("nav[aria-label=Pages] a");
  // On narrow screens it is closed.
  await links.first().waitFor({ state: "attached" });
  return links.evaluateAll((all: HTMLAnchorElement[]) =>
    all.map((link) => ({ name: link.textContent, path: new URL(link.href).pathname })),
  );
}
