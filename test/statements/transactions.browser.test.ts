import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { TRANSACTION_KINDS } from "../../src/lib/transaction-kinds.ts";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { fillWithAllKinds, HOSTILE_DESCRIPTION, type Subject } from "./ledger-of-all-kinds.ts";

const TIMEOUT_MS = 60_000;

let stripe: StripeServer;
let gateway: TestGateway;
let subject: Subject;
let browser: Browser;
let page: Page;
let faults: readonly string[];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  stripe = new StripeServer();
  [gateway, browser] = await Promise.all([
    startTestGateway({ environment: stripe.environment }),
    launchChromium(),
  ]);
  subject = await fillWithAllKinds(gateway, stripe);
  page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  page.setDefaultTimeout(20_000);
  faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard/transactions`);
  await signInAs(page, subject.managementKey);
  await untilLoaded(page);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  await stripe?.stop();
});

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);

async function downloaded(button: string): Promise<{ name: string; bytes: Uint8Array }> {
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: button, exact: true }).click(),
  ]);
  const path = await download.path();
  return { name: download.suggestedFilename(), bytes: await Bun.file(path).bytes() };
}

const rows = () => page.getByRole("table").first().locator("tbody tr");

browserTest(
  "every transaction is on the page, with its kind, its source and its balance",
  async () => {
    const [row] = await gateway.sql<{ count: bigint }[]>`
    SELECT count(*) FROM transactions WHERE organization_id = ${subject.id}`;
    await rows().first().waitFor();
    expect(BigInt(await rows().count())).toBe(row!.count);
    for (const { title } of Object.values(TRANSACTION_KINDS)) {
      expect(await rows().filter({ hasText: title }).count()).toBeGreaterThan(0);
    }
    const hostile = rows().filter({ hasText: HOSTILE_DESCRIPTION });
    expect(await hostile.textContent()).toContain("+$1.50");
    expect(await seriousFindings(page)).toEqual([]);
    expect(faults).toEqual([]);
  },
);

browserTest("a search and a type narrow the list, and the file has the same lines", async () => {
  await page.getByLabel("Search", { exact: true }).fill("correction");
  await rows().filter({ hasText: "Correction" }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 1);
  await page.getByRole("button", { name: "Clear filters" }).click();
  await page.getByLabel("Type", { exact: true }).selectOption("usage");
  await page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 5);
  const { name, bytes } = await downloaded("Download CSV");
  expect(name).toBe("transactions.csv");
  expect(new TextDecoder().decode(bytes).trim().split("\r\n")).toHaveLength(6);
  await rows().first().getByRole("link", { name: "Request", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Request" }).waitFor();
});

browserTest("billing shows statements with downloads, and payments with their ends", async () => {
  await page.goto(`${gateway.baseUrl}/dashboard/settings/billing`);
  await untilLoaded(page);
  const statements = page.getByRole("table", { name: "Statements" }).locator("tbody tr");
  await statements.nth(2).waitFor();
  const month = new Date().toISOString().slice(0, 7);
  const pdf = await downloaded(`Download ${month} as PDF`);
  expect(pdf.name).toBe(`statement-${month}.pdf`);
  expect(new TextDecoder().decode(pdf.bytes.slice(0, 5))).toBe("%PDF-");
  const csv = await downloaded(`Download ${month} as CSV`);
  expect(new TextDecoder().decode(csv.bytes)).toContain("closing_balance");
  const payments = page.getByRole("table", { name: "Payments" });
  await payments.getByText("insufficient funds").waitFor();
  await payments.getByText("Dispute of $5.00: won, back in the balance").waitFor();
  await payments.getByText("Refund to the card of $5.00: done").waitFor();
  expect(await seriousFindings(page)).toEqual([]);
  expect(faults).toEqual([]);
});
