import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { joined, PASSWORD } from "./people.ts";

const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;
const NAME = "Laptop";

let gateway: TestGateway;
let browser: Browser;
beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  [gateway, browser] = await Promise.all([
    startTestGateway({ environment: { GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8" } }),
    launchChromium(),
  ]);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

test.skipIf(CHROMIUM === undefined)(
  "a person adds a passkey in the browser, signs in with it, and deletes it",
  async () => {
    const person = await joined(gateway, "owner");
    const origin = gateway.baseUrl.replace("127.0.0.1", "localhost");
    const context = await browser.newContext();
    const [name, value] = person.cookie.split("=") as [string, string];
    await context.addCookies([{ name, value, url: origin }]);
    const page = await context.newPage();
    page.setDefaultTimeout(ACTION_TIMEOUT_MS);
    const faults = watchFaults(page, origin);
    const devices = await context.newCDPSession(page);
    await devices.send("WebAuthn.enable");
    await devices.send("WebAuthn.addVirtualAuthenticator", {
      options: {
        ...{ protocol: "ctap2", transport: "internal", automaticPresenceSimulation: true },
        ...{ hasResidentKey: true, hasUserVerification: true, isUserVerified: true },
      },
    });
    const press = (label: string) => page.getByRole("button", { name: label, exact: true }).click();
    const passkeys = page.getByRole("table", { name: "Passkeys" });
    const openPasskeys = async () => {
      await page.goto(`${origin}/dashboard/account`);
      await untilLoaded(page);
    };

    await openPasskeys();
    await press("Add passkey");
    await page.getByRole("dialog").getByLabel("Name", { exact: true }).fill(NAME);
    await page.getByLabel("Current password").fill(PASSWORD);
    expect(await seriousFindings(page)).toEqual([]);
    await press("Continue");
    await passkeys.getByText(NAME).waitFor();

    await press("Sign out");
    await press("Use a passkey");
    await page.getByRole("button", { name: "Sign out" }).waitFor();
    await openPasskeys();
    expect(await passkeys.getByText("Never").count()).toBe(0);
    await press(`Delete ${NAME}`);
    await press("Delete passkey");
    await page.getByText("No passkeys").waitFor();

    await press("Sign out");
    await press("Use a passkey");
    await page.getByText("Signing in with this passkey failed.").waitFor();
    expect(faults).toEqual([]);
    await context.close();
  },
  TIMEOUT_MS,
);
