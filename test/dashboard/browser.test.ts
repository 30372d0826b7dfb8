import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import { version } from "../../package.json";
import { usd } from "../../src/dashboard/web/format.ts";
import { addKeyOf } from "../support/api-keys.ts";
import {
  CHROMIUM,
  launchChromium,
  menuOf,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { fillOrganization, ORDINARY } from "../support/filled-organization.ts";
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
const MADE = `Made here${HOSTILE}`;
const TIMEOUT_MS = 30_000;

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[] = [];
/** Bodies that webhooks were sent. */
const received: string[] = [];
let receiver: Bun.Server<undefined>;

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  receiver = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      received.push(await request.text());
      return new Response(null, { status: 204 });
    },
  });
  const few = { transactions: 1_500, keys: 12, users: 20, detailed: 0.9, mark: HOSTILE };
  const filling = { ...ORDINARY, ...few, receiver: receiver.url.origin };
  gateway = await startTestGateway({
    environment: { GATEWAY_EGRESS_ALLOW: "127.0.0.0/8", GATEWAY_WEBHOOK_ALLOW_HTTP: "true" },
    fill: (sql, organizationId) => fillOrganization(sql, organizationId, filling),
  });
  for (const [kind, body] of [
    ["presets", { model: "sandbox/chat" }],
    ["guardrails", { rules: [{ type: "pii" }] }],
  ] as const) {
    const named = { name: `A name${HOSTILE}`, ...body };
    const options = { key: gateway.managementKey };
    expect((await gateway.request("POST", `/v1/${kind}`, named, options)).status).toBe(201);
  }
  browser = await launchChromium();
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  await receiver?.stop(true);
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
    await page.getByLabel("Name", { exact: true }).fill(MADE);
    await page.getByLabel("Requests per minute").fill("60");
    await page.getByLabel("Daily budget").fill("2.50");
    await page.getByRole("button", { name: "Create", exact: true }).click();
    const secret = await page.getByLabel("secret key", { exact: true }).inputValue();
    expect(secret).toStartWith("gateway_sk_");
    await page.getByRole("button", { name: "Done" }).click();
    const row = page.getByRole("row").filter({ hasText: MADE });
    await row.getByText("$0.00 of $2.50").waitFor();
    expect(await row.getByRole("cell", { name: "60 requests", exact: true }).count()).toBe(1);
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

/** What the figure of that name shows. */
const figure = (label: string) =>
  page.locator(".figure", { hasText: label }).locator(".value").textContent();

/** What the ledger says was spent since then, as pages show it. */
async function spentSince(from: Date): Promise<string> {
  const [row] = await gateway.sql<{ nano: bigint }[]>`
    SELECT coalesce(-sum(amount_nano), 0)::bigint AS nano FROM transactions
    WHERE organization_id = ${gateway.organizationId} AND type = 'usage' AND created_at >= ${from}`;
  return inDollars(row!.nano);
}

const inDollars = (nano: bigint) => usd(Number(nano) / 1e9);

browserTest("overview and usage show what the ledger has, to the cent", async () => {
  await open("Overview");
  await untilLoaded(page);
  const today = new Date(new Date().setUTCHours(0, 0, 0, 0));
  const month = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth()));
  expect(await figure("Spend today")).toBe(await spentSince(today));
  expect(await figure("Spend this month")).toBe(await spentSince(month));
  const [account] = await gateway.sql<{ balance: bigint }[]>`
    SELECT sum(amount_nano)::bigint AS balance FROM transactions
    WHERE organization_id = ${gateway.organizationId}`;
  expect(await figure("Balance")).toBe(inDollars(account!.balance));
  await open("Usage");
  await untilLoaded(page);
  const shownSince = new Date(today.getTime() - 29 * 86_400_000);
  const spent = await spentSince(shownSince);
  expect(spent).not.toBe("$0.00");
  expect(await figure("Spend")).toBe(spent);
});

browserTest("a failed delivery is sent again", async () => {
  await page.goto(`${gateway.baseUrl}/dashboard/webhooks`);
  await page.getByRole("row").filter({ hasText: "/everything" }).getByRole("link").first().click();
  await page.getByLabel("State").selectOption("failed");
  const failed = page.getByRole("row").filter({ hasText: "status 503" }).first();
  const event = (await failed.locator(".sub.code").first().textContent())!.trim();
  await page.getByRole("button", { name: `Redeliver ${event}` }).click();
  await until("the receiver has it", () => received.some((body) => body.includes(event)));
  await page.getByRole("row").filter({ hasText: event }).waitFor({ state: "detached" });
  await page.getByLabel("State").selectOption("delivered");
  await page.getByRole("row").filter({ hasText: event }).getByText("delivered").waitFor();
});

/** What keeps someone from using the page that is shown, and names of others that became more than text. */
async function findingsHere(where: string): Promise<string[]> {
  await untilLoaded(page);
  const findings = await seriousFindings(page);
  const [overflow, blank, images] = await page.evaluate(() => {
    const { scrollWidth, clientWidth, scrollHeight } = document.documentElement;
    const shown = Math.max(innerHeight, document.querySelector(".frame")!.clientHeight);
    return [scrollWidth - clientWidth, scrollHeight - shown, document.images.length] as const;
  });
  if (overflow > 0) findings.push(`${overflow} pixels too wide`);
  if (blank > 0) findings.push(`${blank} blank pixels below it`);
  if (images > 0) findings.push("a name became an image");
  const saysSo = await page.getByText("Test payments are enabled").isVisible();
  if (!saysSo) findings.push("it does not say that payments are a test");
  return findings.map((finding) => `${where}: ${finding}`);
}

const LOOKS = [
  [1440, "light"],
  [390, "dark"],
] as const;

/** Every page of the menu, and one of what it lists, as wide and as narrow as they come, light and dark. */
async function findingsOfAll(): Promise<{ findings: string[]; withNames: string[] }> {
  const findings: string[] = [];
  const withNames = new Set<string>();
  const menu = await menuOf(page);
  for (const [width, colorScheme] of LOOKS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    for (const { name } of menu) {
      if (width === 390) await page.getByRole("button", { name: "Menu" }).click();
      await open(name);
      await heading(name);
      findings.push(...(await findingsHere(`${name} ${width}`)));
      if ((await page.getByText(HOSTILE).count()) > 0) withNames.add(name);
      const one = page.locator('main a[href*="?id="]').first();
      if ((await one.count()) === 0) continue;
      await one.click();
      findings.push(...(await findingsHere(`one of ${name} ${width}`)));
    }
  }
  await page.setViewportSize({ width: 1440, height: 900 });
  return { findings, withNames: [...withNames] };
}

browserTest(
  "each page has its heading, no serious finding, and names of others as text, wide and narrow, light and dark",
  async () => {
    const { findings, withNames } = await findingsOfAll();
    expect(findings).toEqual([]);
    expect(withNames).toContainValues(["Overview", "Requests", "Keys", "Webhooks"]);
    for (const group of ["Model", "Key", "User", "Tag"]) {
      await open("Usage");
      await page.getByLabel("Group by").selectOption({ label: group });
      await page.getByRole("row").filter({ hasText: HOSTILE }).first().waitFor();
      expect(await page.locator("img").count()).toBe(0);
    }
  },
  120_000,
);

browserTest("what an address asks for is text too, also where the gateway refuses it", async () => {
  const asked = encodeURIComponent(HOSTILE);
  for (const path of [
    `usage?from=${asked}`,
    `usage?group_by=${asked}`,
    `requests?model=${asked}&key_id=${asked}&status=${asked}`,
    `requests?id=${asked}`,
    `webhooks?id=${asked}`,
    asked,
  ]) {
    await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
    await untilLoaded(page);
    expect(await page.locator("img").count()).toBe(0);
  }
});

browserTest(
  "a page of another port reads nothing and changes nothing with the session",
  async () => {
    const foreign = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: () =>
        new Response("<!doctype html><title>Foreign</title><form method=post></form>", {
          headers: { "content-type": "text/html" },
        }),
    });
    try {
      const visited = await page.context().newPage();
      const statuses: number[] = [];
      visited.on("response", (response) => {
        if (response.url().startsWith(gateway.baseUrl)) statuses.push(response.status());
      });
      await visited.goto(foreign.url.href);
      const outcomes = await visited.evaluate(async (base) => {
        const api = `${base}/dashboard/api`;
        const body = JSON.stringify({ name: "foreign" });
        const asked: [string, RequestInit][] = [
          [`${api}/session`, {}],
          [`${api}/v1/keys`, {}],
          [`${api}/v1/keys`, { method: "POST", mode: "no-cors", body }],
          [
            `${api}/v1/keys`,
            { method: "POST", headers: { "content-type": "application/json" }, body },
          ],
        ];
        return Promise.all(
          asked.map(([url, init]) =>
            fetch(url, { credentials: "include", ...init }).then(
              ({ type, status }) => `${type} ${status}`,
              () => "unreadable",
            ),
          ),
        );
      }, gateway.baseUrl);
      // A script learns not even a status of what may be sent at all.
      expect(outcomes).toEqual(["unreadable", "unreadable", "opaque 0", "unreadable"]);
      expect(statuses.filter((status) => status < 400 && status !== 204)).toEqual([]);
      // The cookie comes along from another port, which is the same site to a browser.
      await visited.evaluate((action) => {
        document.forms[0]!.action = action;
        document.forms[0]!.submit();
      }, `${gateway.baseUrl}/dashboard/api/v1/keys`);
      await visited.waitForURL(`${gateway.baseUrl}/**`);
      await visited.getByText("cross_origin").waitFor();
      await visited.close();
      const [made] =
        await gateway.sql`SELECT count(*)::int AS keys FROM api_keys WHERE name = 'foreign'`;
      expect(made).toEqual({ keys: 0 });
    } finally {
      await foreign.stop(true);
    }
  },
);

browserTest(
  "a page that is not seen follows no changes, and catches up when it is seen",
  async () => {
    await page.goto(`${gateway.baseUrl}/dashboard`);
    await page.getByText("Live", { exact: true }).waitFor();
    const show = (isShown: boolean) =>
      page.evaluate((hidden) => {
        Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
        document.dispatchEvent(new Event("visibilitychange"));
      }, !isShown);
    await show(false);
    await page.getByText("Not live", { exact: true }).waitFor();
    const caughtUp = page.waitForResponse((response) => response.url().endsWith("/api/overview"));
    await show(true);
    expect((await caughtUp).status()).toBe(200);
    await page.getByText("Live", { exact: true }).waitFor();
  },
);

browserTest("the foot of the page shows the version of the gateway", async () => {
  await page.goto(`${gateway.baseUrl}/dashboard`);
  await page.getByText(`Version ${version}`, { exact: true }).waitFor();
});

browserTest("the bar of today is drawn", async () => {
  await open("Overview");
  const room = page.getByRole("figure", { name: "Requests", exact: true });
  await room.locator("canvas").waitFor();
  await until("something of the series' colour is at the end of the chart", () =>
    room.locator("canvas").evaluate((canvas: HTMLCanvasElement) => {
      const left = Math.floor(canvas.width * 0.8);
      const { data } = canvas
        .getContext("2d")!
        .getImageData(left, 0, canvas.width - left, canvas.height);
      // Grid and text are grey: of nearly the same red, green and blue.
      for (let at = 0; at < data.length; at += 4) {
        const [red, , blue, alpha] = data.subarray(at, at + 4);
        if (alpha === 255 && blue! - red! > 60) return true;
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

browserTest(
  "an operator sees organizations and adjusts a balance",
  async () => {
    await signInAs(page, await addOperator(gateway));
    await page.getByRole("link", { name: "Organizations" }).click();
    await heading("Organizations");
    const row = page.getByRole("row").filter({ hasText: gateway.organizationId });
    await row.getByText(`Example Ltd.${HOSTILE}`).waitFor();
    await row.getByRole("button", { name: /^Actions for/ }).click();
    await page.getByRole("menuitem", { name: "Adjust balance" }).click();
    await page.getByLabel("Amount").fill("5");
    await page.getByLabel("Description").fill("Goodwill");
    await page.getByRole("button", { name: "Adjust", exact: true }).click();
    await page.getByRole("button", { name: "Add $5.00", exact: true }).click();
    await page.getByText(/^Adjusted the balance/).waitFor();
    const [account] = await gateway.sql<{ balance: bigint }[]>`
    SELECT balance_after_nano AS balance FROM transactions WHERE description = 'Goodwill'`;
    await row.getByText(inDollars(account!.balance), { exact: true }).waitFor();
    await page.getByRole("link", { name: "Providers", exact: true }).click();
    await page.getByRole("cell", { name: "sandbox", exact: true }).waitFor();
    expect((await findingsOfAll()).findings).toEqual([]);
  },
  120_000,
);

browserTest(
  "in all of this no policy was violated, and nothing was asked of another address",
  () => {
    expect(faults).toEqual([]);
  },
);
