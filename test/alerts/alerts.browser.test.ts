import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { joined, PASSWORD, type SignedInPerson } from "../people/people.ts";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  signInWithAccount,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type SmtpServer, startSmtpServer } from "../support/smtp-server.ts";
import { until } from "../support/until.ts";
import { LOCAL_DELIVERY } from "../webhooks/receiver.ts";
import { type Chat, emitAlerts, startChat } from "./chats.ts";

/*
 * Alert channels and alerts by mail in a real browser.
 */
const HOSTILE = "<img src=x onerror=alert(1)>";
const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;

let gateway: TestGateway;
let browser: Browser;
let smtp: SmtpServer;
let chat: Chat;
let developer: SignedInPerson;

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  smtp = await startSmtpServer();
  chat = startChat();
  [gateway, browser] = await Promise.all([
    startTestGateway({
      environment: {
        ...{ ...LOCAL_DELIVERY, SMTP_URL: smtp.url, SMTP_FROM: "gateway@example.com" },
        GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8",
        GATEWAY_PUBLIC_URL: "http://localhost:3000",
      },
    }),
    launchChromium(),
  ]);
  developer = await joined(gateway, "developer");
  await gateway.sql`UPDATE people SET email_verified_at = now() WHERE email = ${developer.email}`;
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  await chat?.stop();
  smtp?.stop();
});

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);

async function open(path: string): Promise<{ page: Page; faults: readonly string[] }> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(ACTION_TIMEOUT_MS);
  const faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
  return { page, faults };
}

browserTest("a channel is created, tested, switched off and on, changed and deleted", async () => {
  const { page, faults } = await open("settings/alerts");
  await signInAs(page, gateway.managementKey);
  await untilLoaded(page);
  expect(await seriousFindings(page)).toEqual([]);
  const said = (text: string) => page.getByRole("status").getByText(text).waitFor();
  const dialog = page.getByRole("dialog");
  const pressInDialog = (name: string) => dialog.getByRole("button", { name, exact: true }).click();
  const choose = async (item: string) => {
    await page.getByRole("button", { name: `Actions for ${HOSTILE}` }).click();
    await page.getByRole("menuitem", { name: item }).click();
  };

  await page.getByRole("button", { name: "Create your first channel" }).click();
  await dialog.getByLabel("Name").fill(HOSTILE);
  await dialog.getByLabel("Service").selectOption("teams");
  await dialog.getByLabel("Webhook URL").fill("https://10.0.0.1/hook");
  await pressInDialog("Create");
  await dialog.getByText("url leads to an address that is not public.").first().waitFor();
  await dialog.getByLabel("Webhook URL").fill(chat.url);
  expect(await seriousFindings(page)).toEqual([]);
  await pressInDialog("Create");
  await said(`Created ${HOSTILE}.`);

  await page.getByRole("button", { name: `Send test to ${HOSTILE}` }).click();
  await said("Sent the test alert.");
  expect(chat.bodies[0].attachments[0].content.type).toBe("AdaptiveCard");
  await choose("Switch off");
  await said(`Switched ${HOSTILE} off.`);
  await choose("Switch on");
  await said(`Switched ${HOSTILE} on.`);
  const low = { balance_usd: 0.5, threshold_usd: 1 };
  await emitAlerts(gateway, gateway.organizationId, "credits.low", [low]);
  await until("the alert", () => chat.bodies.length === 2);
  await choose("Edit");
  await dialog.getByLabel(/^Low balance/).uncheck();
  await pressInDialog("Save");
  await said(`Updated ${HOSTILE}.`);
  await page.getByRole("cell", { name: "Budgets, Payments" }).waitFor();
  expect(await page.content()).not.toContain("a-secret");
  await choose("Delete");
  await pressInDialog("Delete channel");
  await said(`Deleted ${HOSTILE}.`);
  expect(faults).toEqual([]);
});

browserTest("a developer chooses alerts by mail, and gets a test", async () => {
  const { page, faults } = await open("account");
  await signInWithAccount(page, developer.email, PASSWORD);
  await page.getByRole("heading", { name: "Account" }).waitFor();
  await untilLoaded(page);
  const panel = page.getByRole("region", { name: "Alerts by mail" });
  await panel.getByLabel(/^Budgets/).check();
  expect(await panel.getByRole("checkbox").count()).toBe(2);
  await panel.getByRole("button", { name: "Save alerts" }).click();
  await page.getByRole("status").getByText("Saved your alerts.").waitFor();
  await panel.getByRole("button", { name: "Send test" }).click();
  await page.getByRole("status").getByText("Sent the test alert.").waitFor();
  expect(smtp.messages.at(-1)).toMatchObject({ to: developer.email });
  expect(await seriousFindings(page)).toEqual([]);
  expect(faults).toEqual([]);
});
