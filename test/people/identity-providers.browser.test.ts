import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { type OidcIssuer, startOidcIssuer } from "../support/oidc-issuer.ts";
import { startRealIssuer } from "../support/oidc-provider.ts";
import { addOperator } from "../support/operator-keys.ts";
import { manage } from "./people.ts";

const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;

let gateway: TestGateway;
let issuer: OidcIssuer;
let browser: Browser;
beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  [gateway, issuer, browser] = await Promise.all([
    startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } }),
    startOidcIssuer(),
    launchChromium(),
  ]);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  await issuer?.stop();
});

test.skipIf(CHROMIUM === undefined)(
  "an operator adds an identity provider, a person signs in there, and the operator deletes it",
  async () => {
    const operator = await signIn(gateway, await addOperator(gateway));
    const context = await browser.newContext();
    const [name, value] = operator.cookie.split("=") as [string, string];
    await context.addCookies([{ name, value, url: gateway.baseUrl }]);
    const page = await context.newPage();
    page.setDefaultTimeout(ACTION_TIMEOUT_MS);
    const faults = watchFaults(page, gateway.baseUrl);
    const press = (label: string) => page.getByRole("button", { name: label, exact: true }).click();
    const dialog = page.getByRole("dialog");
    await page.goto(`${gateway.baseUrl}/dashboard/identity-providers`);
    await untilLoaded(page);

    await press("Add identity provider");
    await dialog.getByLabel("Name", { exact: true }).fill("Acme");
    await dialog.getByLabel("Issuer", { exact: true }).fill(issuer.url);
    await dialog.getByLabel("Client ID").fill(issuer.clientId);
    await dialog.getByLabel("Client secret").fill(issuer.clientSecret);
    await dialog.getByLabel("Value 1").fill("engineering");
    await dialog.getByLabel("Role in 1").selectOption({ index: 1 });
    await dialog.getByLabel("Role 1", { exact: true }).selectOption("admin");
    expect(await seriousFindings(page)).toEqual([]);
    await page.setViewportSize({ width: 390, height: 800 });
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(390);
    await page.setViewportSize({ width: 1440, height: 900 });
    await dialog.getByRole("button", { name: "Add", exact: true }).click();
    await dialog.getByText("Register this redirect URI").waitFor();
    const uri = await dialog.getByLabel("redirect URI", { exact: true }).inputValue();
    await dialog.getByRole("button", { name: "Done" }).click();
    await page.getByRole("row").filter({ hasText: "Acme" }).waitFor();
    expect(faults).toEqual([]);

    // The issuer's page is not a page of the gateway, so the person comes back by its answer.
    const visitor = await (await browser.newContext()).newPage();
    visitor.setDefaultTimeout(ACTION_TIMEOUT_MS);
    await visitor.goto(`${gateway.baseUrl}/dashboard`);
    const href = await visitor
      .getByRole("link", { name: "Sign in with Acme" })
      .getAttribute("href");
    expect(`${href}/callback`).toBe(uri);
    const begun = await visitor.context().request.get(href!, { maxRedirects: 0 });
    const target = begun.headers().location!;
    const claims = { email: "ada@example.com", email_verified: true, groups: ["engineering"] };
    await visitor.goto(issuer.authorize(target, claims).href);
    await visitor.getByText("ada@example.com").first().waitFor();

    await press("Delete Acme");
    await dialog.getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("No identity providers yet").waitFor();
    await context.close();
  },
  TIMEOUT_MS,
);

test.skipIf(CHROMIUM === undefined)(
  "a person signs in at a real issuer, and loses the role with the group",
  async () => {
    const real = await startRealIssuer();
    const operator = await addOperator(gateway);
    const rule = { claim: "groups", value: "admins", organization_id: gateway.organizationId };
    const created = await manage(
      gateway,
      "POST",
      "admin/identity_providers",
      {
        ...{ name: "Real", issuer: real.url, client_id: real.clientId },
        ...{ client_secret: real.clientSecret, rules: [{ ...rule, role: "admin" }] },
      },
      operator,
    );
    expect(created.status).toBe(201);
    const start = `${gateway.baseUrl}/dashboard/sign-on/${created.body.id}`;
    await real.register(`${start}/callback`);
    real.groups.set("grace", ["admins"]);

    const page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(ACTION_TIMEOUT_MS);
    await page.goto(`${gateway.baseUrl}/dashboard`);
    await page.getByRole("link", { name: "Sign in with Real" }).click();
    await page.locator("input[name=login]").fill("grace");
    await page.locator("input[name=password]").fill("any");
    await page.getByRole("button").first().click();
    // The issuer asks for consent.
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("grace@example.com").first().waitFor();
    await page.getByRole("link", { name: "Members", exact: true }).waitFor();

    real.groups.set("grace", []);
    await page.goto(start);
    await page.getByText("Your account has no access to this gateway.").waitFor();
    await page.goto(`${gateway.baseUrl}/dashboard`);
    expect(await page.getByRole("link", { name: "Members", exact: true }).count()).toBe(0);
    real.stop();
  },
  TIMEOUT_MS,
);
