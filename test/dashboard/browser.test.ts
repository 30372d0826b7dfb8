import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { addKeyOf } from "../support/api-keys.ts";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";

/*
 * One walk through the pages with a real browser. Needs a Chromium on this machine.
 */
if (CHROMIUM === undefined) {
  console.warn("NO CHROMIUM ON THIS MACHINE: the dashboard is not tried in a browser.");
}
const HOSTILE = "<img src=x onerror=alert(1)>";
const TIMEOUT_MS = 30_000;

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[] = [];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  gateway = await startTestGateway();
  browser = await launchChromium();
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

const browserTest = test.skipIf(CHROMIUM === undefined);

const open = (name: string) => page.getByRole("link", { name, exact: true }).first().click();
const heading = (name: string) =>
  page.getByRole("heading", { level: 1, name, exact: true }).waitFor();

browserTest(
  "a secret key cannot sign in, a management key can, and stays through a reload",
  async () => {
    await page.goto(gateway.baseUrl);
    expect(page.url()).toBe(`${gateway.baseUrl}/dashboard`);
    await signInAs(page, gateway.secretKey);
    await page.getByText("A secret key cannot sign in").waitFor();
    await signInAs(page, gateway.managementKey);
    await heading("Overview");
    await page.reload();
    await heading("Overview");
    // Nothing that opens anything is where a script could read it.
    const stored = await page.evaluate(() =>
      JSON.stringify([localStorage, sessionStorage, document.cookie]),
    );
    expect(stored).not.toContain("gateway_");
  },
);

browserTest(
  "a key is created with its limits, shown once, listed as text, and revoked",
  async () => {
    await open("Keys");
    await page.getByRole("button", { name: "Create key" }).click();
    await page.getByLabel("Name", { exact: true }).fill(HOSTILE);
    await page.getByLabel("Requests per minute").fill("60");
    await page.getByLabel("Daily budget").fill("2.50");
    await page.getByRole("button", { name: "Create", exact: true }).click();
    const secret = await page.getByLabel("secret key", { exact: true }).inputValue();
    expect(secret).toStartWith("gateway_sk_");
    await page.getByRole("button", { name: "Done" }).click();
    const row = page.getByRole("row").filter({ hasText: HOSTILE });
    await row.getByText("$0.00 of $2.50").waitFor();
    expect(await row.getByRole("cell", { name: "60", exact: true }).count()).toBe(1);
    const chat = () =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] },
        { key: secret },
      );
    expect((await chat()).status).toBe(200);
    await row.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("button", { name: "Revoke key" }).click();
    await row.waitFor({ state: "detached" });
    await until("the key is refused", async () => (await chat()).status === 401);
  },
);

browserTest(
  "each page has its heading and no serious finding, wide and narrow, light and dark",
  async () => {
    const pages = await page
      .getByRole("navigation", { name: "Pages" })
      .getByRole("link")
      .allInnerTexts();
    expect(pages.slice(0, 5)).toEqual(["Overview", "Usage", "Requests", "Keys", "Webhooks"]);
    const findings: string[] = [];
    for (const [width, colorScheme] of [
      [1440, "light"],
      [390, "dark"],
    ] as const) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme });
      for (const name of pages) {
        if (width === 390) await page.getByRole("button", { name: "Menu" }).click();
        await open(name);
        await heading(name);
        await page.locator("[aria-busy=true]").first().waitFor({ state: "detached" });
        findings.push(
          ...(await seriousFindings(page)).map((finding) => `${name} ${width}: ${finding}`),
        );
        const overflow = await page.evaluate(
          () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
        );
        if (overflow > 0) findings.push(`${name} ${width}: ${overflow} pixels too wide`);
        const blank = await page.evaluate(
          () =>
            document.documentElement.scrollHeight -
            Math.max(innerHeight, document.querySelector(".frame")!.clientHeight),
        );
        if (blank > 0) findings.push(`${name} ${width}: ${blank} blank pixels below it`);
      }
    }
    expect(findings).toEqual([]);
    await page.setViewportSize({ width: 1440, height: 900 });
  },
  120_000,
);

browserTest("the bar of the current hour is drawn", async () => {
  await open("Overview");
  const room = page.getByRole("figure", { name: "Requests by hour" });
  await room.locator("canvas").waitFor();
  // The keys page has made one call of this hour, and the hours before are empty.
  await until("something of the series' colour is at the end of the chart", () =>
    room.locator("canvas").evaluate((canvas: HTMLCanvasElement) => {
      const left = Math.floor(canvas.width * 0.8);
      const { data } = canvas
        .getContext("2d")!
        .getImageData(left, 0, canvas.width - left, canvas.height);
      // Grid and text are grey: of nearly the same red, green and blue.
      for (let at = 0; at < data.length; at += 4) {
        const [red, green, , alpha] = data.subarray(at, at + 4);
        if (alpha === 255 && green! - red! > 60) return true;
      }
      return false;
    }),
  );
});

browserTest("whose key is revoked elsewhere is signed out without doing anything", async () => {
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  const short = await addKeyOf("management", gateway, { name: "short-lived" });
  await signInAs(page, short);
  await page.getByText("Live", { exact: true }).waitFor();
  const listed = await gateway.request("GET", "/v1/keys", undefined, {
    key: gateway.managementKey,
  });
  const { data } = (await listed.json()) as { data: { id: string; name: string }[] };
  const { id } = data.find(({ name }) => name === "short-lived")!;
  await gateway.request("DELETE", `/v1/keys/${id}`, undefined, { key: gateway.managementKey });
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
});

browserTest("an operator sees organizations and adjusts a balance", async () => {
  await signInAs(page, await addOperator(gateway));
  await page.getByRole("link", { name: "Organizations" }).click();
  await heading("Organizations");
  const row = page.getByRole("row").filter({ hasText: gateway.organizationId });
  await row.getByRole("button", { name: /^Adjust/ }).click();
  await page.getByLabel("Amount").fill("5");
  await page.getByLabel("Description").fill("Goodwill");
  await page.getByRole("button", { name: "Adjust", exact: true }).click();
  await page.getByRole("button", { name: "Add $5.00", exact: true }).click();
  await page.getByText(/^Adjusted the balance/).waitFor();
  await row.getByText(/^\$1[45]\.\d\d$/).waitFor();
  await page.getByRole("link", { name: "Providers" }).click();
  await page.getByRole("cell", { name: "sandbox", exact: true }).waitFor();
  expect(await seriousFindings(page)).toEqual([]);
});

browserTest(
  "in all of this no policy was violated, and nothing was asked of another address",
  () => {
    expect(faults).toEqual([]);
  },
);
