import "../support/preload.ts";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Browser, Page } from "playwright-core";
import { launchChromium, menuOf, signInAs, untilHeaded, untilLoaded } from "../support/chromium.ts";
import { fillOrganization, ORDINARY } from "../support/filled-organization.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

/*
 * Pictures of every page and of the dialogs that its head opens, at two widths, light and dark, with a month of
 * ordinary use and with nothing:
 *
 *   bun test/dashboard/screenshots.ts <folder> [--width=2560] [page …, by their addresses, such as keys]
 */

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { width: { type: "string", multiple: true, default: ["1440", "390"] } },
});
const [folder, ...wanted] = positionals;
if (folder === undefined)
  throw new Error("usage: bun test/dashboard/screenshots.ts <folder> [page …]");
mkdirSync(folder, { recursive: true });

const WIDTHS = values.width.map(Number);
const THEMES = ["light", "dark"] as const;
/** The menu does not list it, and parts of it are shown as they load. */
const COMPONENTS = "/dashboard/components";
/** A chart is drawn, and a dialog has faded in, by then. */
const DRAWN_MS = 250;
/** Of a long list the end looks like the beginning. */
const MAX_HEIGHT = 2_200;

async function walk(browser: Browser, gateway: TestGateway, key: string, state: string) {
  for (const colorScheme of THEMES) {
    for (const width of WIDTHS) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
      const page = await context.newPage();
      const shoot = async (name: string) => {
        await page.waitForTimeout(DRAWN_MS);
        const file = `${state}-${name}-${width}-${colorScheme}.png`;
        const full = await page.evaluate(() => document.documentElement.scrollHeight);
        const clip = { x: 0, y: 0, width, height: Math.min(full, MAX_HEIGHT) };
        await page.screenshot({ path: join(folder!, file), fullPage: true, clip });
      };
      await page.goto(`${gateway.baseUrl}/dashboard`);
      await untilLoaded(page);
      if (wanted.length === 0) await shoot("sign-in");
      await signInAs(page, key);
      const menu = (await menuOf(page)).map(({ path }) => path);
      for (const path of [...menu, COMPONENTS]) {
        const name = path.split("/")[2] ?? "first";
        if (wanted.length > 0 && !wanted.includes(name)) continue;
        await page.goto(gateway.baseUrl + path);
        await (path === COMPONENTS ? untilHeaded(page) : untilLoaded(page));
        await shootPage(page, name, shoot);
        const sections = page.locator("nav.tabs a:not([aria-current])");
        for (const section of await sections.evaluateAll(hrefsOf)) {
          await page.goto(section);
          await untilLoaded(page);
          await shoot(`${name}-${section.split("/").at(-1)}`);
        }
      }
      await context.close();
    }
  }
}

const hrefsOf = (links: (HTMLElement | SVGElement)[]) =>
  links.map((link) => (link as HTMLAnchorElement).href);

async function shootPage(
  page: Page,
  name: string,
  shoot: (name: string) => Promise<void>,
): Promise<void> {
  await shoot(name);
  const buttons = page.locator(".page-head .actions button");
  for (let at = 0; at < (await buttons.count()); at++) {
    await buttons.nth(at).click();
    await page.waitForTimeout(DRAWN_MS);
    if ((await page.locator("dialog[open]").count()) === 0) continue;
    await shoot(`${name}-dialog-${at + 1}`);
    await page.keyboard.press("Escape");
  }
  const one = page.locator(`main a[href*="/${name}?id="]`).first();
  if ((await one.count()) === 0) return;
  await page.goto(new URL((await one.getAttribute("href"))!, page.url()).href);
  await untilLoaded(page);
  await shoot(`${name}-one`);
}

/** What the settings list. */
async function fillSettings(gateway: TestGateway): Promise<void> {
  for (const [path, body] of [
    ["presets", { name: "support", model: "sandbox/chat", system: "Answer in two sentences." }],
    ["presets", { name: "extraction", model: "sandbox/chat" }],
    ["guardrails", { name: "No personal data", rules: [{ type: "pii" }] }],
    ["billing/payment_methods", { payment_method: "pm_card_visa" }],
  ] as const) {
    const options = { key: gateway.managementKey };
    const response = await gateway.request("POST", `/v1/${path}`, body, options);
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
  }
}

const browser = await launchChromium();
for (const state of ["filled", "empty"]) {
  const fill = (sql: TestGateway["sql"], id: string) => fillOrganization(sql, id, ORDINARY);
  const gateway = await startTestGateway(state === "filled" ? { fill } : {});
  if (state === "filled") await fillSettings(gateway);
  await walk(browser, gateway, gateway.managementKey, state);
  await walk(browser, gateway, await addOperator(gateway), `${state}-operator`);
  await gateway.stop();
}
await browser.close();
console.log(`${WIDTHS.length * THEMES.length} pictures of each page are in ${folder}`);
process.exit();
