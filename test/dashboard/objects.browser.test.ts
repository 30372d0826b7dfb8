import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { fillOrganization, ORDINARY } from "../support/filled-organization.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

/*
 * The main act of each page of stored objects, with a real browser. Needs a Chromium on this machine.
 */
const HOSTILE = "<img src=x onerror=alert(1)>";
const TIMEOUT_MS = 60_000;

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[] = [];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  const filling = { ...ORDINARY, transactions: 500, keys: 6, users: 5, mark: HOSTILE };
  gateway = await startTestGateway({
    fill: (sql, organizationId) => fillOrganization(sql, organizationId, filling),
  });
  browser = await launchChromium();
  page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  page.setDefaultTimeout(TIMEOUT_MS / 2);
  faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard`);
  await signInAs(page, gateway.managementKey);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

const browserTest = test.skipIf(CHROMIUM === undefined);

async function open(path: string): Promise<void> {
  await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
  await untilLoaded(page);
}

/** Chooses an action in the menu of the first row with the text. */
async function act(text: string, action: string): Promise<void> {
  const row = page.getByRole("row").filter({ hasText: text }).first();
  await row.getByRole("button", { name: /^Actions for/ }).click();
  await page.getByRole("menuitem", { name: action }).click();
}

browserTest(
  "the overview leads to the lines of a batch that all failed, with their errors",
  async () => {
    await open("");
    const issue = page
      .getByRole("listitem")
      .filter({ hasText: "80 of 80 lines of a batch failed" });
    await issue.getByRole("link", { name: "View the errors" }).click();
    await page.getByRole("heading", { name: "80 of 80 lines failed" }).waitFor();
    await page.getByText("60 lines").waitFor();
    const line = page.getByRole("row").filter({ hasText: `order-1${HOSTILE}` });
    await line.getByText("model_not_allowed").waitFor();
    expect(await page.locator("img").count()).toBe(0);
  },
);

browserTest("a fine-tuning job shows the curve of its loss", async () => {
  await open("fine-tuning?status=succeeded");
  await page.getByRole("row").nth(1).getByRole("link").click();
  await page.getByRole("figure", { name: "Loss by step" }).locator("canvas").waitFor();
  await page.getByText("Training", { exact: true }).first().waitFor();
});

browserTest("a file is deleted after confirmation", async () => {
  await open("storage");
  await act("scan.png", "Delete");
  await page.getByRole("button", { name: "Delete file" }).click();
  await page.getByRole("row").filter({ hasText: "scan.png" }).waitFor({ state: "detached" });
  const rows = await gateway.sql`SELECT 1 FROM files WHERE filename LIKE 'scan.png%'`;
  expect(rows.length).toBe(0);
});

browserTest("a vector store shows the file that failed, and is deleted", async () => {
  await open("storage/vector-stores");
  await page.getByRole("link", { name: `Handbook${HOSTILE}` }).click();
  await page.getByText(`The file has no text.${HOSTILE}`).waitFor();
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.getByRole("button", { name: "Delete vector store" }).click();
  await page.getByRole("link", { name: `Prices${HOSTILE}` }).waitFor();
  expect(await page.getByRole("link", { name: `Handbook${HOSTILE}` }).count()).toBe(0);
});

browserTest("a stored response is opened as text, and a conversation is deleted", async () => {
  await open("responses");
  await page
    .getByRole("row")
    .nth(1)
    .getByRole("button", { name: /^Actions for/ })
    .click();
  await page.getByRole("menuitem", { name: "Open" }).click();
  await page.getByText(`What is the price?${HOSTILE}`).waitFor();
  await page.getByText(`The price is 12 USD.${HOSTILE}`).waitFor();
  expect(await page.locator("img").count()).toBe(0);
  await open("responses/conversations");
  await act("Customer 2", "Delete");
  await page.getByRole("button", { name: "Delete conversation" }).click();
  await page.getByRole("row").filter({ hasText: "Customer 2" }).waitFor({ state: "detached" });
});

browserTest("a budget is created, changed and deleted", async () => {
  await open("budgets");
  await page.getByRole("button", { name: "Create budget" }).click();
  await page.getByLabel("Name", { exact: true }).fill("alan@example.com");
  await page.getByLabel("Daily budget (USD)").fill("3");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const row = page.getByRole("row").filter({ hasText: "alan@example.com" });
  await row.getByText("$0.00 of $3.00").waitFor();
  await act("alan@example.com", "Change");
  await page.getByLabel("Daily budget (USD)").fill("4.5");
  await page.getByRole("button", { name: "Save" }).click();
  await row.getByText("$0.00 of $4.50").waitFor();
  await act("alan@example.com", "Delete");
  await page.getByRole("button", { name: "Delete budget" }).click();
  await row.waitFor({ state: "detached" });
});

browserTest("the response cache shows its savings and is cleared", async () => {
  await open("storage/cache");
  await page.getByText("$41.25").waitFor();
  await page.getByRole("button", { name: "Clear cache" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Clear cache" }).click();
  await page.getByText("The response cache is empty").waitFor();
});

browserTest("in all of this no policy was violated", () => {
  expect(faults).toEqual([]);
});
