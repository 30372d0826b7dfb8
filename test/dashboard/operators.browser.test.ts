import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

const TIMEOUT_MS = 60_000;

let gateway: TestGateway;
let operatorKey: string;
let browser: Browser;

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  gateway = await startTestGateway();
  operatorKey = await addOperator(gateway);
  await gateway.sql`UPDATE organizations SET name = 'Example Ltd.' WHERE id = ${gateway.organizationId}`;
  const body = { model: "sandbox/chat", messages: [{ role: "user", content: "Hello" }] };
  const options = { key: gateway.secretKey };
  const response = await gateway.request("POST", "/v1/chat/completions", body, options);
  expect(response.status).toBe(200);
  browser = await launchChromium();
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

test.if(CHROMIUM !== undefined)(
  "an operator sees all organizations, opens one read-only, and leaves it",
  async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(TIMEOUT_MS / 2);
    const faults = watchFaults(page, gateway.baseUrl);
    await page.goto(`${gateway.baseUrl}/dashboard`);
    await signInAs(page, operatorKey);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await untilLoaded(page);
    const requests = page.locator(".figure", { hasText: "Requests" }).locator(".value");
    expect(await requests.textContent()).toBe("1");
    for (const label of ["Providers", "Models", "Instances", "Circuit openings"]) {
      await page.getByRole("heading", { level: 2, name: label, exact: true }).waitFor();
    }
    const instances = page.getByRole("table", { name: "Instances" });
    await instances.getByText("Serving").waitFor();
    expect(await seriousFindings(page)).toEqual([]);

    const organizations = page.getByRole("table", { name: "Organizations" });
    await organizations.getByRole("button", { name: "View Example Ltd." }).click();
    await page.getByText("You are viewing Example Ltd. as an operator.").waitFor();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByRole("link", { name: "Keys", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
    await untilLoaded(page);
    await page.getByText("Default secret key").first().waitFor();
    expect(await page.getByRole("button", { name: "Create key" }).count()).toBe(0);
    expect(await page.getByRole("link", { name: "Organizations" }).count()).toBe(0);
    expect(await seriousFindings(page)).toEqual([]);

    // A reload keeps the view.
    await page.reload();
    await page.getByText("You are viewing Example Ltd. as an operator.").waitFor();
    await page.getByRole("button", { name: "Leave" }).click();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByRole("link", { name: "Organizations" }).waitFor();
    expect(await page.getByText("You are viewing").count()).toBe(0);
    expect(faults).toEqual([]);
  },
  TIMEOUT_MS,
);
