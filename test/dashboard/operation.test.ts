import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { CHROMIUM, launchChromium, signInAs } from "../support/chromium.ts";
import { addOperator } from "../support/operator-keys.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY, type Receiver, startReceiver } from "../webhooks/receiver.ts";

/*
 * What is done and looked into on the pages of keys, requests, deliveries and organizations, with a real browser.
 */
const TIMEOUT_MS = 30_000;
const browserTest = test.skipIf(CHROMIUM === undefined);

let gateway: ChatGateway;
let receiver: Receiver;
let browser: Browser;
let page: Page;

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  receiver = startReceiver(500);
  gateway = await startChatGateway({
    models: { pair: ["primary/pair-a", "secondary/pair-b"] },
    environment: { ...LOCAL_DELIVERY, GATEWAY_WEBHOOK_RETRY_DELAYS: "3600" },
  });
  browser = await launchChromium();
  page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  await page.goto(`${gateway.baseUrl}/dashboard/keys`);
  await signInAs(page, gateway.managementKey);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  await receiver?.stop();
});

const asManager = { key: "" };
async function managed<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
  asManager.key = gateway.managementKey;
  const response = await gateway.request(method, path, body, asManager);
  expect(response.status).toBeLessThan(300);
  return (await response.json()) as Answer;
}

const statusOfChat = async (key: string) => {
  const slug = gateway.modelThat({ do: "complete" });
  const response = await gateway.chat(slug, {}, { key });
  await response.arrayBuffer();
  return response.status;
};

const click = (name: string) => page.getByRole("button", { name, exact: true }).first().click();
const choose = async (menu: string, item: string) => {
  await click(`Actions for ${menu}`);
  await page.getByRole("menuitem", { name: item }).click();
};
const press = (name: string) =>
  page.locator("dialog[open]").getByRole("button", { name, exact: true }).click();
const rowOf = (text: string) => page.getByRole("row").filter({ hasText: text });

interface ListedKey {
  readonly id: string;
  readonly name: string;
  readonly rate_limit_tpm: number | null;
  readonly daily_budget_usd: number | null;
  readonly scopes: readonly string[];
  readonly expires_at: string | null;
}

const keysNamed = async (text: string) =>
  (await managed<{ data: ListedKey[] }>("GET", `/v1/keys?search=${text}`)).data;

/** The secret that a dialog shows. */
async function secretShown(): Promise<string> {
  const secret = await page.getByLabel("secret key", { exact: true }).inputValue();
  await press("Done");
  return secret;
}

browserTest("a key is limited in tokens and scopes, found by its name, and rotated", async () => {
  await click("Create key");
  await page.getByLabel("Name", { exact: true }).fill("turning");
  await page.getByLabel("Tokens per minute").fill("100000");
  await page.getByLabel("Daily budget").fill("2.5");
  await page.getByText("Scopes").first().click();
  await page.getByLabel("images", { exact: true }).uncheck();
  await press("Create");
  const old = await secretShown();
  await page.getByLabel("Search").fill("TURN");
  await until("it alone is listed", async () => (await page.getByRole("row").count()) === 2);

  await choose("turning", "Rotate");
  await press("Rotate key");
  const second = await secretShown();
  await rowOf("turning (replaced")
    .getByText(/^in \d+ h$|^in 1 d$/)
    .waitFor();
  expect(await Promise.all([old, second].map(statusOfChat))).toEqual([200, 200]);
  const [replacement, replaced] = await keysNamed("turning");
  expect(replacement).toMatchObject({
    name: "turning",
    rate_limit_tpm: 100_000,
    daily_budget_usd: 2.5,
    expires_at: null,
    scopes: replaced!.scopes as string[],
  });
  expect(replacement!.scopes).not.toContain("images");
  const leftMs = Date.parse(replaced!.expires_at!) - Date.now();
  expect(leftMs).toBeWithin(23 * 3_600_000, 24 * 3_600_000 + 1);

  await choose("turning", "Rotate");
  await page.getByLabel("Old key expires").selectOption("Immediately");
  await press("Rotate key");
  const third = await secretShown();
  expect(await statusOfChat(third)).toBe(200);
  await until("the second one is refused", async () => (await statusOfChat(second)) === 401);
  expect((await keysNamed("turning")).map(({ name }) => name).toSorted()).toEqual([
    "turning",
    expect.stringContaining("replaced"),
  ]);
});

browserTest("a rotation that stops half way has shown the replacement, and says so", async () => {
  await managed("POST", "/v1/keys", { name: "stuck" });
  await page.getByLabel("Search").fill("stuck");
  await page.route("**/dashboard/api/v1/keys/*", (route) =>
    route.request().method() === "PATCH" ? route.abort() : route.continue(),
  );
  await choose("stuck", "Rotate");
  await press("Rotate key");
  await page.getByText("the rotation failed").waitFor();
  await page.unrouteAll();
  expect(await statusOfChat(await secretShown())).toBe(200);
  expect((await keysNamed("stuck")).map(({ name }) => name)).toEqual([
    expect.stringMatching(/^stuck \(replacement, /),
    "stuck",
  ]);
});

browserTest("a request shows the tries that it took, and why", async () => {
  gateway.upstream.behave("pair-a", { do: "error", status: 500 });
  gateway.upstream.behave("pair-b", { do: "complete" });
  const response = await gateway.chat("pair");
  await response.arrayBuffer();
  const id = response.headers.get("x-gateway-request-id");
  await page.goto(`${gateway.baseUrl}/dashboard/requests?id=${id}`);
  const tries = page.getByRole("table", { name: "Attempts" });
  await tries.getByRole("row", { name: /primary\/pair-a Unavailable .* Status 500/ }).waitFor();
  await tries.getByRole("row", { name: /secondary\/pair-b OK The provider answered/ }).waitFor();
  await page
    .getByText("Under 20 ms")
    .or(page.getByText(/^[\d.,]+\sm?s$/))
    .first()
    .waitFor();
});

browserTest(
  "a failed request says what its error means, and that nothing was charged",
  async () => {
    const response = await gateway.chat("no-such-model");
    const id = response.headers.get("x-gateway-request-id");
    await until("it is written down", async () => {
      const shown = await gateway.request("GET", `/v1/requests/${id}`);
      return shown.status === 200;
    });
    await page.goto(`${gateway.baseUrl}/dashboard/requests?id=${id}`);
    await page.getByText("The model does not exist.").waitFor();
    await page.getByText("Nothing was charged.").waitFor();
    await page.getByText("without calling a provider").waitFor();
  },
);

browserTest("a delivery that waits says behind which one; redelivery lets it go on", async () => {
  const { id } = await managed<{ id: string }>("POST", "/v1/webhooks", {
    url: receiver.url,
    events: ["key.created"],
  });
  for (const name of ["first", "second"]) await managed("POST", "/v1/keys", { name });
  await page.goto(`${gateway.baseUrl}/dashboard/webhooks?id=${id}`);
  await page.getByText("Waits for key.created").waitFor();
  await page.getByText(/which failed and is retried/).waitFor();
  await click("Send test event");
  await press("Send");
  await page.getByText(/^Not delivered: the receiver answered 500/).waitFor();
  receiver.answer = 200;
  await press("Send");
  await page.getByText(/^Delivered: status 200/).waitFor();
  await page.keyboard.press("Escape");
  const failed = page.getByRole("row").filter({ hasNotText: "Waits for" }).nth(1);
  await failed.getByRole("button", { name: /^Redeliver/ }).click();
  await page.getByText("The event was delivered.").waitFor();
  await until("the one behind it went out too", async () => {
    await page.reload();
    await page.getByRole("cell", { name: "Delivered", exact: true }).first().waitFor();
    return (await page.getByRole("cell", { name: "Delivered", exact: true }).count()) === 2;
  });
});

browserTest("days are named as they are in UTC, in any zone", async () => {
  const zones = ["America/Los_Angeles", "Pacific/Kiritimati"];
  // A shorter span is shown by hour.
  const dates = [7, 6, 5, 4, 3, 2, 1, 0].map((age) => new Date(Date.now() - age * 86_400_000));
  const [from, to] = [dates[0], dates.at(-1)];
  const shown = { day: "numeric", month: "short", timeZone: "UTC" } as const;
  const span = `from=${from!.toISOString().slice(0, 10)}&to=${to!.toISOString().slice(0, 10)}`;
  for (const timezoneId of zones) {
    const context = await browser.newContext({ timezoneId });
    const elsewhere = await context.newPage();
    await elsewhere.goto(`${gateway.baseUrl}/dashboard/usage?${span}`);
    await signInAs(elsewhere, gateway.managementKey);
    const spend = elsewhere.getByRole("figure", { name: /^Spend/ });
    await spend.getByText("Numbers").click();
    const days = spend.locator("tbody th");
    await days.first().waitFor();
    expect(await days.allTextContents()).toEqual(
      dates.map((day) => day.toLocaleString("en-US", shown)),
    );
    await context.close();
  }
});

browserTest("an operator creates an organization, and changes its plan and limits", async () => {
  await page.goto(`${gateway.baseUrl}/dashboard`);
  await click("Sign out");
  await signInAs(page, await addOperator(gateway));
  await page.getByRole("link", { name: "Organizations", exact: true }).click();
  await click("Create organization");
  await page.getByLabel("Name", { exact: true }).fill("Acme");
  await page.getByLabel("Starting credit").fill("7");
  await press("Create");
  const secret = await page.getByLabel("secret key", { exact: true }).inputValue();
  await press("Done");
  expect(await statusOfChat(secret)).toBe(200);
  const row = rowOf("Acme");
  await row.getByText("$7.00").waitFor();
  await click("Edit Acme");
  await page.getByLabel("Plan").selectOption("pro");
  await page.getByLabel("Fee (percent)").fill("1.25");
  await page.getByLabel("Credit limit").fill("50");
  await page.getByLabel("Max keys").fill("3");
  await press("Save");
  await row.getByText("1.25% fee").waitFor();
  await row.getByText("$50.00 credit").waitFor();
  // A field that is left as it was is not sent, and one that is emptied falls back to the plan.
  await click("Edit Acme");
  expect(await page.getByLabel("Max keys").inputValue()).toBe("3");
  await page.getByLabel("Fee (percent)").fill("");
  await press("Save");
  await row.getByText("2.5% fee").waitFor();
  await choose("Acme", "Suspend");
  await press("Suspend");
  await row.getByText("Suspended").waitFor();
  await until("its keys are refused", async () => (await statusOfChat(secret)) === 403);
});
