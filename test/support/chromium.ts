import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
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

/** Signs in with a key where the page shows the form, which is folded. */
export async function signInAs(page: Page, key: string): Promise<void> {
  const field = page.getByLabel("Management key", { exact: true });
  await field.waitFor({ state: "attached" });
  if (!(await field.isVisible())) {
    await page.getByText("Sign in with a key", { exact: true }).click();
  }
  await field.fill(key);
  await page.getByRole("button", { name: "Sign in with key", exact: true }).click();
}

/** Signs in with an account where the page shows the form. */
export async function signInWithAccount(
  page: Page,
  email: string,
  password: string,
): Promise<void> {
  await page.getByLabel("Email", { exact: true }).fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
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

/** Gathers what a page must never do: violate the policy, fail in a script, ask another address. */
export function watchFaults(page: Page, origin: string): readonly string[] {
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("dialog", (dialog) => faults.push(`a dialog: ${dialog.message()}`));
  page.on("console", (message) => {
    if (message.text().includes("Content Security Policy")) faults.push(message.text());
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && url.protocol !== "data:") faults.push(request.url());
  });
  return faults;
}

const AXE = fileURLToPath(import.meta.resolve("axe-core/axe.min.js"));

/** Findings of axe-core that keep someone from using the page. */
export async function seriousFindings(page: Page): Promise<string[]> {
  // The policy keeps scripts of a test out of the page, so it is evaluated.
  await page.evaluate(await Bun.file(AXE).text());
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as {
      axe: {
        run(
          options: object,
        ): Promise<{ violations: { id: string; impact: string; nodes: object[] }[] }>;
      };
    };
    const { violations } = await axe.run({ resultTypes: ["violations"], elementRef: false });
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${JSON.stringify(nodes).slice(0, 300)}`);
  });
}
