import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { change, usd } from "../../src/dashboard/web/format.ts";
import { type Range, rangeFrom } from "../../src/dashboard/web/range.ts";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { fillOrganization, ORDINARY } from "../support/filled-organization.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const TIMEOUT_MS = 60_000;
const DAY_MS = 86_400_000;

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[] = [];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  const filling = { ...ORDINARY, transactions: 2_000, keys: 12, users: 20 };
  gateway = await startTestGateway({
    fill: (sql, organizationId) => fillOrganization(sql, organizationId, filling),
  });
  browser = await launchChromium();
  page = await browser.newPage({ viewport: { width: 1440, height: 1_000 } });
  page.setDefaultTimeout(TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard/usage`);
  await signInAs(page, gateway.managementKey);
  await untilLoaded(page);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

const browserTest = test.skipIf(CHROMIUM === undefined);
const query = () => Object.fromEntries(new URL(page.url()).searchParams);
const heading = (name: string) =>
  page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
const chart = (name: string) => page.getByRole("figure", { name, exact: true });
const openUsage = async (search: string) => {
  await page.goto(`${gateway.baseUrl}/dashboard/usage?${search}`);
  await untilLoaded(page);
};

/** Returns what the ledger has between two times, in USD. */
async function spentBetween(fromMs: number, beforeMs: number): Promise<number> {
  const [row] = await gateway.sql<{ nano: bigint }[]>`
    SELECT coalesce(-sum(amount_nano), 0)::bigint AS nano FROM transactions
    WHERE organization_id = ${gateway.organizationId} AND type = 'usage'
      AND created_at >= ${new Date(fromMs)} AND created_at < ${new Date(beforeMs)}`;
  return Number(row!.nano) / 1e9;
}

/** Clicks the foot of a bar, counted from the last one. */
async function clickBar(name: string, fromEnd: number, count: number): Promise<void> {
  const area = chart(name).locator(".u-over");
  const { width, height } = (await area.boundingBox())!;
  const position = { x: ((count - fromEnd - 0.5) / count) * width, y: height - 6 };
  await area.hover({ position });
  await chart(name).locator(".tooltip").waitFor();
  await area.click({ position });
  await heading("Requests");
  await untilLoaded(page);
}

browserTest(
  "a range is chosen, compared to the period before, and stays through a reload",
  async () => {
    const shown = (range: Range) => spentBetween(range.fromMs, range.beforeMs);
    const before = ({ before: { fromMs, beforeMs } }: Range) => spentBetween(fromMs, beforeMs);
    const figure = page.locator(".figure", { hasText: "Spend" });
    for (const [name, id] of [
      ["24 h", "24h"],
      ["7 d", "7d"],
    ] as const) {
      await page.getByRole("radio", { name, exact: true }).check();
      expect(query()).toEqual({ range: id });
      await untilLoaded(page);
      const range = rangeFrom(id, Date.now());
      const [now, earlier] = [await shown(range), await before(range)];
      expect(earlier).toBeGreaterThan(0);
      await figure.getByText(`${change(earlier, now)} from ${usd(earlier)}`).waitFor();
      expect(await figure.locator(".value").textContent()).toBe(usd(now));
    }
    await page.getByLabel("Compare to the 7 days before").uncheck();
    await page.reload();
    await untilLoaded(page);
    expect(query()).toEqual({ range: "7d", compare: "off" });
    expect(await page.getByRole("radio", { name: "7 d", exact: true }).isChecked()).toBe(true);
    expect(await figure.locator(".note").count()).toBe(0);
    await page.getByRole("radio", { name: "Custom" }).check();
    await page.getByLabel("From", { exact: true }).waitFor();
    const { from, to } = query();
    expect(Date.parse(to!) - Date.parse(from!)).toBe(6 * DAY_MS);
  },
  TIMEOUT_MS,
);

browserTest(
  "a click on a part of a bar leads to its requests",
  async () => {
    const range = rangeFrom("7d", Date.now());
    const day = new Date(range.beforeMs - 2 * DAY_MS).toISOString().slice(0, 10);
    const [largest] = await gateway.sql<{ model: string }[]>`
    SELECT model FROM transactions
    WHERE organization_id = ${gateway.organizationId} AND type = 'usage' AND created_at >= ${new Date(range.fromMs)}
    GROUP BY model ORDER BY sum(amount_nano) LIMIT 1`;
    await openUsage("range=7d&group_by=model");
    await clickBar("Spend over time", 1, 7);
    expect(query()).toEqual({ from: day, to: day, model: largest!.model });
    const [expected] = await gateway.sql<{ count: number }[]>`
    SELECT count(*)::int FROM transactions WHERE organization_id = ${gateway.organizationId} AND type = 'usage'
      AND model = ${largest!.model} AND created_at >= ${day}::date AND created_at < ${day}::date + 1`;
    const rows = page.getByRole("table", { name: "Requests" }).locator("tbody tr");
    expect(await rows.count()).toBeGreaterThanOrEqual(Math.min(50, expected!.count));
    expect(await rows.filter({ hasText: largest!.model }).count()).toBe(await rows.count());
  },
  TIMEOUT_MS,
);

browserTest(
  "the bars of errors lead to failed requests",
  async () => {
    await openUsage("range=30d&group_by=total&metric=errors");
    await clickBar("Errors over time", 1, 30);
    expect(query()).toMatchObject({ min_status: "400" });
    expect(await page.getByLabel("Status").inputValue()).toBe("errors");
    const statuses = await page.locator("tbody td.corner .badge").allTextContents();
    expect(statuses.length).toBeGreaterThan(0);
    expect(statuses.filter((status) => Number(status) < 400)).toEqual([]);
  },
  TIMEOUT_MS,
);

browserTest(
  "a keyboard reads the numbers of a chart, and opens their requests",
  async () => {
    await openUsage("range=7d&group_by=key&compare=off");
    const spend = chart("Spend over time");
    await spend.getByText("Numbers").focus();
    await page.keyboard.press("Enter");
    const row = spend.locator("tbody tr").nth(2);
    await row.waitFor();
    const shown = (await row.locator("td").allTextContents()).map((text) =>
      Number(text.replace(/[$,]/g, "")),
    );
    const total = shown.pop()!;
    expect(total).toBeGreaterThan(0);
    expect(Math.abs(shown.reduce((sum, value) => sum + value, 0) - total)).toBeLessThan(0.05);
    expect(await seriousFindings(page)).toEqual([]);
    await row.getByRole("link").focus();
    await page.keyboard.press("Enter");
    await heading("Requests");
    const day = new Date(rangeFrom("7d", Date.now()).fromMs + 2 * DAY_MS)
      .toISOString()
      .slice(0, 10);
    expect(query()).toEqual({ from: day, to: day });
    // A request leads back to the list with its filters.
    await untilLoaded(page);
    await page.locator('main a[href*="?id="]').first().click();
    await page.getByRole("link", { name: "← Requests" }).click();
    await heading("Requests");
    expect(query()).toEqual({ from: day, to: day });
  },
  TIMEOUT_MS,
);

browserTest(
  "the overview marks its estimate, and its charts follow the range",
  async () => {
    await page.goto(`${gateway.baseUrl}/dashboard?range=24h`);
    await untilLoaded(page);
    await page.locator(".figure", { hasText: "Balance" }).getByText("Estimate: lasts").waitFor();
    await page.getByText("How it is computed").click();
    await page.getByText("whichever spent faster").waitFor();
    await chart("Spend by model").getByText("Numbers").click();
    const hours = chart("Spend by model").locator("tbody tr");
    await hours.last().waitFor();
    expect(await hours.count()).toBe(24);
    expect(await seriousFindings(page)).toEqual([]);
    expect(faults).toEqual([]);
  },
  TIMEOUT_MS,
);
