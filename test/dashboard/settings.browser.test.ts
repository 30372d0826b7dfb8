import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { startAskedUpstream } from "../support/asked-upstream.ts";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { StripeServer } from "../support/stripe-server.ts";

/*
 * The page of settings in a real browser, with the test processor and with Stripe's stand-in.
 */
const HOSTILE = "<img src=x onerror=alert(1)>";
const SECRET = "sk-own-0123456789abcdef";
const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;
const GONE = { state: "detached" } as const;

const stripe = new StripeServer();
const provider = startAskedUpstream(async () => ({}));
provider.answer = ({ headers }) =>
  headers.get("authorization")?.endsWith("refused")
    ? Response.json({ error: { message: "Incorrect API key" } }, { status: 401 })
    : Response.json({ object: "list", data: [] });

let gateway: TestGateway;
let sold: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  const providers = [
    { id: "acme", type: "openai", base_url: `${provider.origin}/v1`, api_key: "sk-house" },
  ];
  [gateway, sold, browser] = await Promise.all([
    startTestGateway({
      configuration: { providers },
      environment: { GATEWAY_TEST_PAYMENTS: "true" },
    }),
    startTestGateway({
      environment: { ...stripe.environment, STRIPE_PRO_PRICE_ID: "price_pro" },
    }),
    launchChromium(),
  ]);
  ({ page, faults } = await signedIn(gateway));
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await Promise.all([gateway?.stop(), sold?.stop(), stripe.stop(), provider.stop()]);
});

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);

async function signedIn(served: TestGateway): Promise<{ page: Page; faults: readonly string[] }> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const opened = await context.newPage();
  opened.setDefaultTimeout(ACTION_TIMEOUT_MS);
  const watched = watchFaults(opened, served.baseUrl);
  await opened.goto(`${served.baseUrl}/dashboard/settings/billing`);
  await signInAs(opened, served.managementKey);
  await untilLoaded(opened);
  return { page: opened, faults: watched };
}

const dialog = () => page.getByRole("dialog");
const press = (name: string | RegExp) => page.getByRole("button", { name }).first().click();
const pressInDialog = (name: string) => dialog().getByRole("button", { name, exact: true }).click();
const said = (text: string | RegExp) => page.getByRole("status").getByText(text).waitFor();

/** By its address, so that one test's open dialog does not fail the next one too. */
async function openSection(name: string): Promise<void> {
  await page.goto(`${gateway.baseUrl}/dashboard/settings/${name}`);
  await untilLoaded(page);
}

async function addCard(text: string): Promise<void> {
  await press("Add payment method");
  await dialog().getByLabel("Test card").selectOption({ label: text });
  await pressInDialog("Add");
  await dialog().waitFor(GONE);
}

async function payWith(card: string, amountUsd: string): Promise<void> {
  await press("Add credit");
  await dialog().getByLabel("Amount").fill(amountUsd);
  await dialog().getByLabel("Pay with").selectOption({ label: card });
  await pressInDialog(`Pay $${amountUsd}`);
}

const balanceIs = (text: string) =>
  page.locator(".figure").filter({ hasText: "Balance" }).getByText(text, { exact: true }).waitFor();

browserTest("the menu leads to settings, and each section keeps its address", async () => {
  await page.getByRole("link", { name: "Settings", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Settings" }).waitFor();
  await page.getByText(gateway.organizationId, { exact: true }).waitFor();
  await page.getByRole("row").filter({ hasText: "You" }).getByText("1", { exact: true }).waitFor();
  await page.getByRole("link", { name: "Guardrails", exact: true }).click();
  expect(new URL(page.url()).pathname).toBe("/dashboard/settings/guardrails");
  await page.reload();
  await page.getByRole("heading", { level: 2, name: "Guardrails" }).waitFor();
  expect(await page.title()).toBe("Guardrails · Settings · Model gateway");
  await page.goto(`${gateway.baseUrl}/dashboard/settings/nothing`);
  await page.getByRole("heading", { level: 1, name: "Page not found" }).waitFor();
});

browserTest("a card pays once, one that declines pays nothing, and says so", async () => {
  await openSection("billing");
  await addCard("Visa (succeeds)");
  await addCard("Visa (declined)");
  await payWith("Visa ending in 4242", "25.00");
  await said("Added $25.00 to the balance.");
  await balanceIs("$35.00");
  await payWith("Visa ending in 0002", "30.00");
  await dialog().getByText("The payment was declined: Your card was declined.").waitFor();
  // Another card pays the same amount as another attempt.
  await dialog().getByLabel("Pay with").selectOption({ label: "Visa ending in 4242" });
  await pressInDialog("Pay $30.00");
  await said("Added $30.00 to the balance.");
  await balanceIs("$65.00");
  const payments = page.getByRole("table", { name: "Payments" }).locator("tbody tr");
  await payments.nth(2).waitFor();
  expect(await payments.filter({ hasText: "Paid" }).count()).toBe(2);
  expect(await payments.filter({ hasText: "Your card was declined." }).count()).toBe(1);
});

browserTest("a payment whose answer is lost is looked up, and not made again", async () => {
  await openSection("billing");
  await page.evaluate(() => {
    const send = globalThis.fetch;
    const losing = async (...[target, ...more]: Parameters<typeof fetch>) => {
      const response = await send(target, ...more);
      if (!String(target).includes("topup")) return response;
      globalThis.fetch = send;
      throw new TypeError("the connection is lost");
    };
    globalThis.fetch = losing as typeof fetch;
  });
  await payWith("Visa ending in 4242", "15.00");
  await dialog().getByText("It is still unknown whether $15.00 was paid.").waitFor();
  await page.keyboard.press("Escape");
  await press("Add credit");
  await pressInDialog("Check again");
  await said("Added $15.00 to the balance.");
  await balanceIs("$80.00");
});

browserTest("a card that asks its holder is credited once it is confirmed there", async () => {
  await openSection("billing");
  await addCard("Visa (requires 3-D Secure)");
  await payWith("Visa ending in 3184", "40.00");
  const link = dialog().getByRole("link", { name: "Confirm it on the bank's page" });
  expect(await link.getAttribute("rel")).toContain("noopener");
  await pressInDialog("Check again");
  await said("The payment is not confirmed yet.");
  await balanceIs("$80.00");
  const [bank] = await Promise.all([page.context().waitForEvent("page"), link.click()]);
  await bank.getByRole("button", { name: "Authenticate" }).click();
  await bank.getByText(/authenticated/).waitFor();
  await bank.close();
  await pressInDialog("Check again");
  await said("Added $40.00 to the balance.");
  await balanceIs("$120.00");
});

browserTest(
  "another method becomes the default, one is deleted, top-ups are automatic",
  async () => {
    await openSection("billing");
    await press("Make default: Visa ending in 3184");
    await page.getByRole("cell", { name: "Visa ending in 3184 Default" }).waitFor();
    await press("Delete Visa ending in 3184");
    await pressInDialog("Delete payment method");
    await page.getByRole("cell", { name: "Visa ending in 3184 Default" }).waitFor(GONE);
    await press("Make default: Visa ending in 4242");
    await page.getByRole("cell", { name: "Visa ending in 4242 Default" }).waitFor();
    await page.getByLabel("Top up when the balance is low").check();
    await page.getByLabel("Threshold").fill("0");
    await page.getByLabel("Amount").fill("50");
    await press("Save");
    await page.getByRole("alert").getByText("replenish_threshold_usd above 0").waitFor();
    await page.getByLabel("Threshold").fill("12.50");
    await press("Save");
    await said("Automatic top-ups are on.");
    await page.reload();
    await untilLoaded(page);
    expect(await page.getByLabel("Threshold").inputValue()).toBe("12.5");
  },
);

browserTest("a plan is paid after its price was stated, and left at its end", async () => {
  await openSection("billing");
  await press("Choose Pro");
  await dialog().getByText("$20.00 a month is paid with Visa ending in 4242").waitFor();
  await pressInDialog("Pay $20.00 a month");
  await said("Changed to Pro.");
  await press("Choose Free");
  await dialog()
    .getByText(/^Pro is paid until/)
    .waitFor();
  await pressInDialog("Change to Free");
  await said("Pro ends with its period.");
  await page.getByText(/Then the organization changes to Free/).waitFor();
  await press("Keep Pro");
  await pressInDialog("Keep Pro");
  await page.getByText(/Then the organization changes to Free/).waitFor(GONE);
});

browserTest("a provider key is in its field alone, and nowhere once it is saved", async () => {
  await openSection("provider-keys");
  await press("Add provider key");
  const secret = dialog().getByLabel("Secret");
  expect(await secret.getAttribute("type")).toBe("password");
  await secret.fill("sk-own-0123456789-refused");
  await pressInDialog("Add");
  await dialog().getByText("The provider rejected the key.").waitFor();
  expect(await secret.inputValue()).toBe("");
  await secret.fill(SECRET);
  await dialog().getByLabel("Name").fill(HOSTILE);
  await pressInDialog("Add");
  const row = page.getByRole("row").filter({ hasText: HOSTILE });
  await row.getByText("sk-ow…").waitFor();
  const left = await page.evaluate(() =>
    JSON.stringify([
      document.documentElement.outerHTML,
      [...document.querySelectorAll("input")].map(({ value }) => value),
      location.href,
      localStorage,
      sessionStorage,
    ]),
  );
  expect(left).not.toContain(SECRET);
  await gateway.sql`UPDATE provider_keys SET is_valid = false`;
  await page.reload();
  await row.getByText("Rejected", { exact: true }).waitFor();
  await row.getByRole("button", { name: /^Delete/ }).click();
  await pressInDialog("Delete provider key");
  await page.getByText("No provider keys yet").waitFor();
});

browserTest("a preset is created, changed without losing a field, and deleted", async () => {
  await openSection("presets");
  await press("Create preset");
  await dialog().getByLabel("Name").fill(HOSTILE);
  await dialog().getByLabel("Model").fill("sandbox/chat");
  await dialog().getByLabel("Temperature").fill("0.2");
  await dialog().getByLabel("Additional fields").fill("[1]");
  await pressInDialog("Create");
  await dialog().getByText("Additional fields must be a JSON object.").waitFor();
  await dialog().getByLabel("Additional fields").fill('{"stop": ["END"]}');
  await pressInDialog("Create");
  const row = page.getByRole("row").filter({ hasText: HOSTILE });
  await row.getByRole("button", { name: /^Edit/ }).click();
  await dialog().getByLabel("Max output tokens").fill("100");
  await pressInDialog("Save");
  await said(/^Updated/);
  const listed = await gateway.request("GET", "/v1/presets");
  expect(await listed.json()).toMatchObject({
    data: [
      {
        name: HOSTILE,
        model: "sandbox/chat",
        system: null,
        parameters: { temperature: 0.2, stop: ["END"], max_tokens: 100 },
      },
    ],
  });
  await row.getByRole("button", { name: /^Delete/ }).click();
  await pressInDialog("Delete preset");
  await page.getByText("No presets yet").waitFor();
});

browserTest("a guardrail is made by its form, and does what its list says", async () => {
  await openSection("guardrails");
  await press("Create guardrail");
  await dialog().getByLabel("Name").fill(HOSTILE);
  await dialog().getByLabel("Every kind of personal data").uncheck();
  await pressInDialog("Create");
  await dialog().getByText("Rule 1: choose at least one kind of personal data").waitFor();
  await dialog().getByLabel("Email addresses").check();
  await press("Add a rule");
  const second = dialog().getByRole("group", { name: "Rule 2" });
  await second.getByLabel("Detects").selectOption("pattern");
  await second.getByLabel("Pattern").fill("project-[a-z]+|<b>");
  await second.getByLabel("Applies to").selectOption("input");
  await second.getByLabel("Action").selectOption("block");
  await pressInDialog("Create");
  const row = page.getByRole("row").filter({ hasText: HOSTILE });
  await row.getByText("Blocks matches of project-[a-z]+|<b> in requests").waitFor();
  await row
    .getByText("Redacts personal data (email addresses) from requests and answers")
    .waitFor();
  const chat = (content: string) =>
    gateway.request("POST", "/v1/chat/completions", {
      ...{ model: "sandbox/chat", guardrail: HOSTILE },
      messages: [{ role: "user", content }],
    });
  expect((await chat("project-apollo")).status).toBe(400);
  const answer = await (await chat("write to ada@example.com")).text();
  expect(answer).toContain("[EMAIL]");
});

browserTest("no section has a serious finding or is too wide", async () => {
  const findings: string[] = [];
  const look = async (name: string) => {
    const overflow = await page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
    if (overflow > 0) findings.push(`${name}: ${overflow} pixels too wide`);
    findings.push(...(await seriousFindings(page)).map((one) => `${name}: ${one}`));
  };
  await openSection("billing");
  await look("Billing, wide and light");
  await page.setViewportSize({ width: 390, height: 900 });
  await page.emulateMedia({ colorScheme: "dark" });
  for (const name of ["", "billing", "provider-keys", "presets", "guardrails"]) {
    await openSection(name);
    await look(name);
  }
  await press("Create guardrail");
  await untilLoaded(page);
  await look("the form of a guardrail");
  expect(findings).toEqual([]);
  expect(faults).toEqual([]);
  await expectBooksClosed(gateway);
});

browserTest("with Stripe a card is entered on Stripe's page, and receipts are linked", async () => {
  const stripeUser = await signedIn(sold);
  page = stripeUser.page;
  await press("Choose Pro");
  await dialog().getByText("Add a payment method first").waitFor();
  await page.keyboard.press("Escape");
  await press("Add payment method");
  await pressInDialog("Continue");
  const link = dialog().getByRole("link", { name: "Enter card" });
  expect(await link.getAttribute("href")).toStartWith("https://checkout.stripe.com/");
  expect(await link.getAttribute("rel")).toContain("noopener");
  stripe.completeSession("cs_2", "pm_card_visa");
  const session = { id: "cs_2", object: "checkout.session", mode: "setup" };
  const { body, headers } = await stripe.event("checkout.session.completed", {
    ...session,
    metadata: metadataOfSetup(),
  });
  const webhook = `${sold.baseUrl}/v1/billing/stripe/webhook`;
  expect((await fetch(webhook, { method: "POST", body, headers })).status).toBe(200);
  await pressInDialog("Done");
  await payWith("Visa ending in 4242", "25.00");
  await said("Added $25.00 to the balance.");
  const receipt = page.getByRole("link", { name: "Receipt" });
  expect(await receipt.getAttribute("href")).toStartWith("https://pay.stripe.com/");
  await press("Choose Pro");
  await dialog().getByText("€29.00 a month is paid with Visa ending in 4242").waitFor();
  await pressInDialog("Pay €29.00 a month");
  const invoice = page.getByRole("link", { name: "Latest invoice" });
  expect(await invoice.getAttribute("href")).toStartWith("https://invoice.stripe.com/");
  expect(stripeUser.faults).toEqual([]);
});

function metadataOfSetup(): Record<string, string> {
  const { parameters } = stripe.requests.find(({ path }) => path === "/v1/checkout/sessions")!;
  return Object.fromEntries(
    [...parameters].flatMap(([name, value]) => {
      const field = /^metadata\[(.+)\]$/.exec(name)?.[1];
      return field === undefined ? [] : [[field, value]];
    }),
  );
}
