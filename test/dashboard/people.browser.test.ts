import { afterAll, beforeAll, expect, test } from "bun:test";
import { TOTP } from "otpauth";
import type { Browser, Page } from "playwright-core";
import { insertAccountLink } from "../../db/queries/people.ts";
import { firstOperatorLink } from "../../src/accounts/people/accounts.ts";
import { newLinkSecret } from "../../src/accounts/people/one-time-links.ts";
import {
  invite,
  type Json,
  joined,
  manage,
  PASSWORD,
  type SignedInPerson,
  uniqueEmail,
} from "../people/people.ts";
import {
  CHROMIUM,
  launchChromium,
  menuOf,
  seriousFindings,
  signInWithAccount,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

/*
 * Accounts, members and teams in a real browser.
 */
const HOSTILE = "<img src=x onerror=alert(1)>";
const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;
const GONE = { state: "detached" } as const;

let gateway: TestGateway;
let browser: Browser;
let owner: SignedInPerson;
const faults: (readonly string[])[] = [];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  [gateway, browser] = await Promise.all([
    startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } }),
    launchChromium(),
  ]);
  owner = await joined(gateway, "owner");
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);

let pages = 0;

/** Opens a page in a browser of its own, at an address of its own, because attempts are counted by address. */
async function open(path: string): Promise<Page> {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    extraHTTPHeaders: { "x-forwarded-for": `203.0.113.${++pages}` },
  });
  const page = await context.newPage();
  page.setDefaultTimeout(ACTION_TIMEOUT_MS);
  faults.push(watchFaults(page, gateway.baseUrl));
  await page.goto(`${gateway.baseUrl}/dashboard${path}`);
  return page;
}

/** Opens a page with the session of a person. */
async function openAs({ cookie }: SignedInPerson, path: string): Promise<Page> {
  const page = await open("");
  const [name, value] = cookie.split("=");
  await page.context().addCookies([{ name: name!, value: value!, url: gateway.baseUrl }]);
  await page.goto(`${gateway.baseUrl}/dashboard${path}`);
  await untilLoaded(page);
  return page;
}

const heading = (page: Page, name: string | RegExp) =>
  page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
const dialogOf = (page: Page) => page.getByRole("dialog");
const press = (page: Page, name: string) =>
  page.getByRole("button", { name, exact: true }).first().click();
const pressInDialog = (page: Page, name: string) =>
  dialogOf(page).getByRole("button", { name, exact: true }).click();
const said = (page: Page, text: string) => page.getByRole("status").getByText(text).waitFor();
const titles = async (page: Page) => (await menuOf(page)).map(({ name }) => name);
const codeFor = (secret: string, stepsAhead = 0) =>
  new TOTP({ secret }).generate({ timestamp: Date.now() + stepsAhead * 30_000 });

browserTest("a person signs in with an account, and a wrong password says so", async () => {
  const { email } = await joined(gateway, "admin");
  const page = await open("");
  await signInWithAccount(page, email, "not the right password");
  await page.getByText("The email address or the password is wrong.").waitFor();
  await signInWithAccount(page, email, PASSWORD);
  await heading(page, "Overview");
  await page.locator(".signed-in-as").getByText(email).waitFor();
  await page.locator(".signed-in-as").getByText("Admin", { exact: true }).waitFor();
  await page.reload();
  await heading(page, "Overview");
  const stored = await page.evaluate(() =>
    JSON.stringify([localStorage, sessionStorage, document.cookie]),
  );
  expect(stored).not.toContain(PASSWORD);
  await press(page, "Sign out");
  await press(page, "Forgot your password?");
  await page.getByText("This gateway sends no mail").waitFor();
});

browserTest("a link leads to an account, leaves the address bar, and works once", async () => {
  const { email, token } = await invite(gateway, "viewer");
  const page = await open(`/join#${token}`);
  await heading(page, /^Join /);
  expect(page.url()).toBe(`${gateway.baseUrl}/dashboard/join`);
  await page.getByText("Sees everything and changes nothing.").waitFor();
  await page.getByLabel("Name", { exact: true }).fill(HOSTILE);
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await press(page, "Create account and join");
  await heading(page, "Overview");
  await page.locator(".signed-in-as").getByText(email).waitFor();
  const again = await open(`/join#${token}`);
  await heading(again, "This link does not work");
  await again.getByText("If you have accepted it, sign in.").waitFor();
  await again.getByRole("link", { name: "Sign in" }).click();
  await heading(again, "Sign in");
  const without = await open("/join");
  await without.getByText("The address has no secret").waitFor();
});

browserTest("the first operator gets an account, and switches to the organization", async () => {
  const token = await gateway.sql.begin((sql) => firstOperatorLink(sql, Date.now()));
  const page = await open(`/welcome#${token}`);
  await page.getByLabel("Email").fill(uniqueEmail());
  await page.getByLabel("Name", { exact: true }).fill("First");
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await press(page, "Create account");
  await heading(page, "Overview");
  const organization = page.locator("#side").getByLabel("Organization", { exact: true });
  const names = await organization.locator("option").allTextContents();
  expect(names).toHaveLength(2);
  await organization.selectOption({ label: names.find((name) => name !== "Operator")! });
  await page.locator(".signed-in-as").getByText("Owner", { exact: true }).waitFor();
  await heading(page, "Overview");
  expect(await titles(page)).toContain("Members");
});

browserTest("an owner invites a person, changes the role, and removes the member", async () => {
  const { body: team } = await manage(gateway, "POST", "teams", { name: `Invited ${HOSTILE}` });
  const page = await openAs(owner, "/members");
  const email = uniqueEmail();
  await press(page, "Invite member");
  await dialogOf(page).getByLabel("Email").fill(email);
  await dialogOf(page).getByLabel("Role").selectOption("billing");
  await dialogOf(page).getByText("Sees usage, requests and credits, and pays.").waitFor();
  await dialogOf(page).getByLabel(team.name).check();
  await pressInDialog(page, "Invite");
  await dialogOf(page).getByText("This gateway sends no mail.").waitFor();
  const url = await dialogOf(page).getByLabel("invitation link", { exact: true }).inputValue();
  await pressInDialog(page, "Done");
  const row = page.getByRole("row").filter({ hasText: email });
  await row.getByText(team.name).waitFor();
  const joining = await open(new URL(url).pathname.replace("/dashboard", "") + new URL(url).hash);
  await joining.getByLabel("Name", { exact: true }).fill("Invited person");
  await joining.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await press(joining, "Create account and join");
  await heading(joining, "Overview");
  expect(await titles(joining)).not.toContain("Keys");
  await page.reload();
  await page.getByRole("button", { name: "Edit Invited person" }).click();
  await dialogOf(page).getByLabel("Role").selectOption("admin");
  await dialogOf(page).getByLabel("Daily budget").fill("12.50");
  await pressInDialog(page, "Save");
  await said(page, "Updated Invited person.");
  await row.getByText("$12.50 a day").waitFor();
  const { body: members } = await manage(gateway, "GET", "members?limit=1000");
  expect(members.data.find((one: Json) => one.email === email)).toMatchObject({
    ...{ role: "admin", daily_budget_usd: 12.5, monthly_budget_usd: null },
    teams: [{ id: team.id, role: "member" }],
  });
  await page.getByRole("button", { name: "Actions for Invited person" }).click();
  await page.getByRole("menuitem", { name: "Deactivate" }).click();
  await pressInDialog(page, "Deactivate");
  await heading(joining, "Sign in");
  await page.getByRole("button", { name: "Actions for Invited person" }).click();
  await page.getByRole("menuitem", { name: "Activate" }).click();
  await said(page, "Activated Invited person.");
  await page.getByRole("button", { name: "Actions for Invited person" }).click();
  await page.getByRole("menuitem", { name: "Remove" }).click();
  await pressInDialog(page, "Remove member");
  await row.waitFor(GONE);
});

browserTest("an open invitation is withdrawn, and its link no longer works", async () => {
  const { email, token } = await invite(gateway, "viewer");
  const page = await openAs(owner, "/members");
  await page.getByRole("button", { name: `Withdraw the invitation of ${email}` }).click();
  await pressInDialog(page, "Withdraw invitation");
  await page.getByRole("row").filter({ hasText: email }).waitFor(GONE);
  await heading(await open(`/join#${token}`), "This link does not work");
});

browserTest("a team is created with its limits, shown with its spend, and deleted", async () => {
  const page = await openAs(owner, "/teams");
  const name = `Search ${HOSTILE}`;
  await press(page, "Create team");
  await dialogOf(page).getByLabel("Name").fill(name);
  await dialogOf(page).getByLabel("Daily budget", { exact: true }).fill("25");
  await dialogOf(page).getByLabel("Requests per minute").fill("600");
  await dialogOf(page).getByLabel("Allowed models").fill("sandbox/chat");
  await dialogOf(page).getByLabel("Keys per member").fill("2");
  await pressInDialog(page, "Create");
  const row = page.getByRole("row").filter({ hasText: name });
  await row.getByText("$0.00 of $25.00").waitFor();
  await row.getByRole("progressbar", { name: `Budget of ${name}, today` }).waitFor();
  const { body: teams } = await manage(gateway, "GET", "teams");
  const team = teams.data.find((one: Json) => one.name === name);
  expect(team).toMatchObject({
    ...{ daily_budget_usd: 25, monthly_budget_usd: null, rate_limit_rpm: 600 },
    ...{ allowed_models: ["sandbox/chat"], guardrail: null },
    key_policy: { max_keys_per_member: 2, max_daily_budget_usd: null, max_lifetime_days: null },
  });
  const keys = await openAs(owner, "/keys");
  await press(keys, "Create key");
  await dialogOf(keys).getByLabel("Name").fill("Key of the team");
  await dialogOf(keys).getByLabel("Team").selectOption({ label: name });
  await dialogOf(keys).getByLabel("Owner").selectOption({ label: "The owner" });
  await pressInDialog(keys, "Create");
  await pressInDialog(keys, "Done");
  const keyRow = keys.getByRole("row").filter({ hasText: "Key of the team" });
  await keyRow.getByText(name).waitFor();
  await keyRow.getByText("The owner").waitFor();
  await page.getByRole("button", { name: `Delete ${name}` }).click();
  await pressInDialog(page, "Delete team");
  await dialogOf(page).getByText("The team has 1 API key. Delete or move them first.").waitFor();
  await keyRow.getByRole("button", { name: "Revoke" }).click();
  await pressInDialog(keys, "Revoke key");
  await keyRow.waitFor(GONE);
  await pressInDialog(page, "Delete team");
  await row.waitFor(GONE);
});

browserTest("a developer sees only own keys, and creates one within a team", async () => {
  const stated = { name: "Team of developers", key_policy: { max_daily_budget_usd: 5 } };
  const { body: team } = await manage(gateway, "POST", "teams", stated);
  await manage(gateway, "POST", "keys", { name: "Key of others" });
  const developer = await joined(gateway, "developer", { team_ids: [team.id] });
  const page = await openAs(developer, "");
  expect(await titles(page)).toEqual([
    ...["Usage", "Requests", "Models", "Playground", "Batches", "Fine-tuning", "Responses"],
    ...["Storage", "My keys", "Settings", "Account"],
  ]);
  await page.getByRole("link", { name: "My keys" }).click();
  await page.getByText("No keys yet").waitFor();
  await press(page, "Create key");
  expect(await dialogOf(page).getByLabel("Owner").count()).toBe(0);
  await dialogOf(page).getByLabel("Name").fill("Own key");
  await pressInDialog(page, "Create");
  await pressInDialog(page, "Done");
  const row = page.getByRole("row").filter({ hasText: "Own key" });
  await row.getByText("$0.00 of $5.00").waitFor();
  await row.getByText("Team of developers").waitFor();
  expect(await page.getByText("Key of others").count()).toBe(0);
  await page.goto(`${gateway.baseUrl}/dashboard/members`);
  await heading(page, "Page not found");
});

browserTest("a developer without a team is told to ask an admin", async () => {
  const page = await openAs(await joined(gateway, "developer"), "/keys");
  await page.getByText("You are in no team, so you cannot create keys.").waitFor();
  expect(await page.getByRole("button", { name: "Create key" }).isDisabled()).toBe(true);
});

browserTest("a viewer sees pages without buttons that change anything", async () => {
  const page = await openAs(await joined(gateway, "viewer"), "/members");
  const shown = ["Keys", "Members", "Teams", "Webhooks"];
  for (const name of shown) {
    await page.getByRole("link", { name, exact: true }).click();
    await heading(page, name);
    await untilLoaded(page);
    const buttons = page.locator('main button:not([aria-label^="Columns of"])');
    expect({ name, buttons: await buttons.allTextContents() }).toEqual({ name, buttons: [] });
  }
});

browserTest("a second factor is set up, asked for at the sign-in, and removed", async () => {
  const person = await joined(gateway, "viewer");
  const page = await openAs(person, "/account");
  await press(page, "Set up second factor");
  const secret = await dialogOf(page).getByLabel("secret", { exact: true }).inputValue();
  expect(await dialogOf(page).getByRole("link").getAttribute("href")).toStartWith("otpauth://");
  await dialogOf(page).getByLabel("Current password").fill(PASSWORD);
  await dialogOf(page).getByLabel("Code").fill("000000");
  await pressInDialog(page, "Switch on");
  await dialogOf(page).getByText("The code is wrong.").waitFor();
  await dialogOf(page).getByLabel("Code").fill(codeFor(secret));
  await pressInDialog(page, "Switch on");
  await said(page, "The second factor is on.");
  const next = await open("");
  await signInWithAccount(next, person.email, PASSWORD);
  const code = next.getByLabel("Code of your second factor");
  await code.waitFor();
  expect(await code.evaluate((field) => field === document.activeElement)).toBe(true);
  await code.fill(codeFor(secret, 1));
  await next.keyboard.press("Enter");
  await heading(next, "Overview");
  await press(page, "Remove");
  await dialogOf(page).getByLabel("Current password").fill(PASSWORD);
  await pressInDialog(page, "Remove second factor");
  await said(page, "The second factor is off.");
});

browserTest("a link sets a new password once, which ends the sessions of the account", async () => {
  const person = await joined(gateway, "viewer");
  const signedIn = await openAs(person, "");
  const { token, tokenHash } = newLinkSecret();
  const createdAtMs = Date.now();
  await gateway.sql.begin((transaction) =>
    insertAccountLink(transaction, {
      ...{ tokenHash, purpose: "password" as const, personId: person.state.person.id, createdAtMs },
      expiresAtMs: createdAtMs + 3_600_000,
    }),
  );
  const page = await open(`/new-password#${token}`);
  await page.getByLabel("New password").fill("another long password");
  await press(page, "Set password");
  await heading(page, "Password changed");
  await heading(signedIn, "Sign in");
  await page.getByRole("link", { name: "Sign in with the new password" }).click();
  await signInWithAccount(page, person.email, "another long password");
  await heading(page, "Overview");
  const again = await open(`/new-password#${token}`);
  await again.getByLabel("New password").fill("yet another password");
  await press(again, "Set password");
  await heading(again, "This link does not work");
});

browserTest("a person changes name and password, which ends the other sessions", async () => {
  const person = await joined(gateway, "viewer");
  const page = await openAs(person, "/account");
  const other = await open("");
  await signInWithAccount(other, person.email, PASSWORD);
  await heading(other, "Overview");
  await page.getByLabel("Name", { exact: true }).fill("New name");
  await press(page, "Save");
  await said(page, "Changed your name.");
  await press(page, "Change password");
  await dialogOf(page).getByLabel("Current password").fill("not the right password");
  await dialogOf(page).getByLabel("New password").fill("another long password");
  await pressInDialog(page, "Change password");
  await dialogOf(page).getByText("The current password is wrong.").waitFor();
  await dialogOf(page).getByLabel("Current password").fill(PASSWORD);
  await pressInDialog(page, "Change password");
  await said(page, "Changed your password.");
  await heading(other, "Sign in");
  await signInWithAccount(other, person.email, "another long password");
  await heading(other, "Overview");
  await page.reload();
  await press(page, "End other sessions");
  await said(page, "Ended your other sessions.");
  await heading(other, "Sign in");
});

browserTest("no page has a serious finding or is too wide", async () => {
  const findings: string[] = [];
  const look = async (page: Page, name: string) => {
    const overflow = await page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
    if (overflow > 0) findings.push(`${name}: ${overflow} pixels too wide`);
    findings.push(...(await seriousFindings(page)).map((one) => `${name}: ${one}`));
  };
  await manage(gateway, "POST", "teams", {
    ...{ name: "Looked at", daily_budget_usd: 5, rate_limit_rpm: 10, guardrail: "none" },
  });
  const { token } = await invite(gateway, "developer");
  const page = await openAs(owner, "/members");
  const gate = await open("");
  for (const [width, colorScheme] of [
    [1_440, "light"],
    [390, "dark"],
  ] as const) {
    for (const one of [page, gate]) {
      await one.setViewportSize({ width, height: 900 });
      await one.emulateMedia({ colorScheme });
    }
    for (const [path, action] of [
      ["members", "Invite member"],
      ["teams", "Create team"],
      ["keys", "Create key"],
      ["account", "Set up second factor"],
    ] as const) {
      await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
      await untilLoaded(page);
      await look(page, `${path}, ${width}`);
      await press(page, action);
      await untilLoaded(page);
      await look(page, `${action}, ${width}`);
    }
    for (const path of ["", `/join#${token}`, "/welcome#x", "/new-password#x", "/join"]) {
      await gate.goto("about:blank");
      await gate.goto(`${gateway.baseUrl}/dashboard${path}`);
      await untilLoaded(gate);
      await look(gate, `${path}, ${width}`);
    }
  }
  expect(findings).toEqual([]);
  expect(faults.flat()).toEqual([]);
});
