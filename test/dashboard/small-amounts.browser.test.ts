import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import { CHROMIUM, launchChromium, signInAs, untilLoaded } from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const TIMEOUT_MS = 30_000;

let gateway: TestGateway;
let browser: Browser;

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  gateway = await startTestGateway();
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
  "the spend of one request shows in the overview, and the labels of its chart differ",
  async () => {
    const page = await browser.newPage();
    page.setDefaultTimeout(TIMEOUT_MS);
    // Charts draw their labels on a canvas.
    await page.addInitScript(`
      window.drawn = [];
      const { fillText } = CanvasRenderingContext2D.prototype;
      CanvasRenderingContext2D.prototype.fillText = function (...parts) {
        window.drawn.push(parts[0]);
        return fillText.apply(this, parts);
      };`);
    await page.goto(`${gateway.baseUrl}/dashboard`);
    await signInAs(page, gateway.managementKey);
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await untilLoaded(page);
    const spent = page.locator(".figure", { hasText: "Spend today" }).locator(".value");
    expect(await spent.textContent()).toMatch(/^\$0\.00\d*[1-9]$/);
    await page.waitForFunction("window.drawn.some((text) => text.startsWith('$'))");
    const labels = (await page.evaluate<string[]>("window.drawn")).filter((text) =>
      text.startsWith("$"),
    );
    expect(new Set(labels).size).toBeGreaterThanOrEqual(3);
  },
  TIMEOUT_MS,
);
