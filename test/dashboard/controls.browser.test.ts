import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import OpenAI from "openai";
import type { Browser, Page } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

/* What all pages share: the search over pages, menus, columns, errors at fields, retries, and the end of a session. */

const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;
const HOSTILE = "<img src=x onerror=alert(1)>";
const MINUTE_MS = 60_000;

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[];
beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  gateway = await startTestGateway();
  for (const name of ["Support", `Checkout ${HOSTILE}`]) {
    const options = { key: gateway.managementKey };
    expect((await gateway.request("POST", "/v1/keys", { name }, options)).status).toBe(201);
  }
  browser = await launchChromium();
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});
afterEach(() => page?.context().close());

async function open(path: string): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(ACTION_TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
  await signInAs(page, gateway.managementKey);
  await untilLoaded(page);
}

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);
const dialog = () => page.getByRole("dialog");
const press = (name: string) => page.getByRole("button", { name, exact: true }).first().click();
const heading = (name: string) => page.getByRole("heading", { level: 1, name }).waitFor();

browserTest(
  "the search leads to pages, actions, keys, models and requests by keyboard",
  async () => {
    await open("");
    const goTo = async (text: string, option: string) => {
      await page.keyboard.press("Control+k");
      await page.getByRole("combobox", { name: "Pages, actions, keys and models" }).fill(text);
      await page.getByRole("option", { name: option }).waitFor();
      await page.keyboard.press("Enter");
      await dialog().waitFor({ state: "detached" });
    };
    await goTo("webh", "Webhooks");
    await heading("Webhooks");
    await goTo("invoice", "Billing");
    await page.getByRole("heading", { name: "Statements" }).waitFor();
    await goTo("onerror", `Checkout ${HOSTILE}`);
    await heading("Requests");
    expect(new URL(page.url()).searchParams.get("key_id")).not.toBeNull();
    await goTo("sandbox/reasoning", "Sandbox reasoning");
    await heading("Sandbox reasoning");
    await goTo("req_0123", "req_0123");
    expect(new URL(page.url()).search).toBe("?id=req_0123");
    await page.keyboard.press("Control+k");
    await page.getByRole("combobox", { name: "Pages, actions" }).fill("create key");
    await page.getByRole("option", { name: "Create key" }).click();
    await dialog().getByLabel("Name", { exact: true }).fill("Made from the search");
    await page.keyboard.press("Escape");
    expect(new URL(page.url()).search).toBe("");
    expect(faults).toEqual([]);
  },
);

browserTest("a menu of actions works by keyboard, and returns the focus", async () => {
  await open("keys");
  const button = page.getByRole("button", { name: "Actions for Support" });
  await button.focus();
  await page.keyboard.press("Enter");
  const items = page.getByRole("menuitem");
  await items.first().waitFor();
  expect(await seriousFindings(page)).toEqual([]);
  expect(await items.allTextContents()).toEqual(["Rotate", "Switch off"]);
  await page.keyboard.press("ArrowDown");
  expect(await items.nth(1).evaluate((item) => item === document.activeElement)).toBe(true);
  await page.keyboard.press("Escape");
  await items.first().waitFor({ state: "detached" });
  expect(await button.evaluate((one) => one === document.activeElement)).toBe(true);
});

browserTest("the columns of a table are chosen, and stay chosen after a reload", async () => {
  await open("keys");
  const header = (name: string) => page.getByRole("columnheader", { name, exact: true });
  expect(await header("Models").count()).toBe(0);
  await press("Columns of API keys");
  await page.getByRole("menuitemcheckbox", { name: "Models" }).click();
  await page.getByRole("menuitemcheckbox", { name: "Team" }).click();
  await page.keyboard.press("Escape");
  await header("Models").waitFor();
  await page.reload();
  await header("Models").waitFor();
  expect(await header("Team").count()).toBe(0);
});

browserTest("an error of a field appears at the field, which takes the focus", async () => {
  await open("keys");
  await press("Create key");
  const rate = dialog().getByLabel("Requests per minute");
  await dialog().getByLabel("Name", { exact: true }).fill("Faulty");
  for (const [text, message] of [
    ["many", "Requests per minute must be a number."],
    ["-1", "rate_limit_rpm"],
  ] as const) {
    await rate.fill(text);
    await dialog().getByRole("button", { name: "Create", exact: true }).click();
    const hint = dialog().locator(`[id="${await rate.getAttribute("id")}-hint"]`);
    await hint.getByText(message).waitFor();
    expect(await rate.getAttribute("aria-invalid")).toBe("true");
    expect(await rate.evaluate((one) => one === document.activeElement)).toBe(true);
  }
  await rate.fill("60");
  await dialog().getByRole("button", { name: "Create", exact: true }).click();
  await dialog().getByText("Copy the key now.").waitFor();
});

browserTest("a new key comes with programs that use it", async () => {
  await open("keys?new=1");
  await dialog().getByLabel("Name", { exact: true }).fill("First program");
  await dialog().getByLabel("Allowed models").fill("sandbox/chat");
  await dialog().getByRole("button", { name: "Create", exact: true }).click();
  const program = dialog().locator("pre");
  const [, baseURL, apiKey] =
    /^export OPENAI_BASE_URL=(\S+)\nexport OPENAI_API_KEY=(\S+)$/.exec(
      (await program.textContent()) ?? "",
    ) ?? [];
  const client = new OpenAI({ baseURL: baseURL!, apiKey: apiKey! });
  const messages = [{ role: "user", content: "Hello" }] as const;
  const answer = await client.chat.completions.create({
    model: "sandbox/chat",
    messages: [...messages],
  });
  expect(answer.choices[0]!.message.content).toBeTruthy();
  for (const name of ["curl", "Python", "JavaScript"]) {
    await dialog().getByRole("tab", { name, exact: true }).click();
    const text = await program.textContent();
    expect(text).toContain(apiKey!);
    expect(text).toContain("sandbox/chat");
  }
});

browserTest("what could not be loaded is loaded again on request", async () => {
  await open("webhooks");
  await page.route("**/v1/keys?**", (route) => route.abort());
  await page.getByRole("link", { name: "Keys", exact: true }).click();
  await page.getByText("The gateway cannot be reached.").waitFor();
  await page.unroute("**/v1/keys?**");
  await press("Try again");
  await page.getByRole("row").filter({ hasText: "Support" }).waitFor();
  expect(await page.getByText("The gateway cannot be reached.").count()).toBe(0);
});

browserTest("the viewer is warned before the session ends, and can stay", async () => {
  await open("keys");
  const endsSoon = new Date(Date.now() + 3 * MINUTE_MS).toISOString();
  await page.addInitScript((ends_at) => {
    const send = globalThis.fetch;
    let isFirst = true;
    const endingSoon = async (...[target, ...more]: Parameters<typeof fetch>) => {
      const response = await send(target, ...more);
      if (!String(target).endsWith("/api/session") || !isFirst) return response;
      isFirst = false;
      return Response.json({ ...(await response.json()), ends_at });
    };
    globalThis.fetch = endingSoon as typeof fetch;
  }, endsSoon);
  await page.reload();
  await page.getByText("Your session ends at").waitFor();
  await press("Stay signed in");
  await page.getByText("Your session continues.").waitFor();
  await page.getByText("Your session ends at").waitFor({ state: "detached" });
});

browserTest("without a card, credit is added by adding one first", async () => {
  await open("settings/billing");
  await press("Add credit");
  await dialog().getByText("Add a payment method first.").waitFor();
  await dialog().getByRole("button", { name: "Add", exact: true }).click();
  await dialog().getByLabel("Amount").fill("25");
  await dialog().getByRole("button", { name: "Pay $25.00" }).click();
  await page.getByText("Added $25.00 to the balance.").waitFor();
});

browserTest("the playground offers the presets of the organization", async () => {
  const preset = { name: "support", model: "sandbox/chat", system: "Answer in one sentence." };
  const options = { key: gateway.managementKey };
  expect((await gateway.request("POST", "/v1/presets", preset, options)).status).toBe(201);
  await open("playground");
  await page.getByLabel("Preset").selectOption("support");
});

browserTest("a list is turned page by page", async () => {
  const options = { key: gateway.managementKey };
  for (let number = 0; number < 26; number++) {
    const body = { name: `Turned ${number}` };
    expect((await gateway.request("POST", "/v1/keys", body, options)).status).toBe(201);
  }
  await open("keys");
  await page.getByLabel("Search").fill("Turned");
  await page.getByText("1–25 of 26").waitFor();
  expect(await page.getByRole("button", { name: "Previous" }).isDisabled()).toBe(true);
  await press("Next");
  await page.getByText("26–26 of 26").waitFor();
  expect(await page.getByRole("button", { name: "Next" }).isDisabled()).toBe(true);
  await press("Previous");
  await page.getByText("1–25 of 26").waitFor();
});
