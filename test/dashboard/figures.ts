import "../support/preload.ts";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { launchChromium, menuOf, signInAs, untilHeaded, untilLoaded } from "../support/chromium.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { fillOrganization, LARGE, ORDINARY } from "../support/filled-organization.ts";
import { startTestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";

/*
 * When the dashboard paints first, and how long each call takes that one of its pages makes:
 *
 *   bun test/dashboard/figures.ts [--large]
 *   bun test/dashboard/figures.ts <address> <management key> <operator key>
 *
 * On a month of ordinary use, on ten million transactions, or at a gateway that runs.
 */

const ROUNDS = 7;
const VIEWPORT = { width: 1440, height: 900 };
const day = (age: number) => new Date(Date.now() - age * 86_400_000).toISOString().slice(0, 10);

/** What people ask of pages further than what they show first. */
const VARIANTS: Readonly<Record<string, readonly string[]>> = {
  usage: [
    ...["model", "key", "provider", "user", "tag"].map((group) => `group_by=${group}`),
    "interval=hour",
    ...["model", "key", "provider"].map((group) => `interval=hour&group_by=${group}`),
    `from=${day(89)}&group_by=key`,
    `from=${day(89)}&group_by=user`,
    "group_by=user&offset=1000",
  ],
  requests: [
    "status=499",
    "status=503",
    "error_code=rate_limit_exceeded",
    "model=sandbox/chat",
    "user=user 3",
    "user=nobody",
  ],
};

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** Milliseconds from the navigation to the first paint, and to the page with its figures. */
async function paintOf(page: Page, url: string): Promise<{ paintMs: number; shownMs: number }> {
  const startedMs = performance.now();
  await page.goto(url);
  await untilLoaded(page);
  const shownMs = performance.now() - startedMs;
  const paintMs = await page.evaluate(async () => {
    for (;;) {
      const [first] = performance.getEntriesByName("first-contentful-paint");
      if (first !== undefined) return first.startTime;
      await new Promise(requestAnimationFrame);
    }
  });
  return { paintMs, shownMs };
}

async function measurePaint(browser: Browser, baseUrl: string, key: string): Promise<void> {
  const url = `${baseUrl}/dashboard`;
  const report = (what: string, found: { paintMs: number; shownMs: number }[]) => {
    const paint = median(found.map(({ paintMs }) => paintMs)).toFixed(0);
    const shown = median(found.map(({ shownMs }) => shownMs)).toFixed(0);
    console.log(
      `${what.padEnd(44)} painted ${paint.padStart(5)} ms, shown ${shown.padStart(5)} ms`,
    );
  };
  const visits = async (context: () => Promise<BrowserContext>, rounds: number) => {
    const found = [];
    for (let round = 0; round < rounds; round++) {
      const page = await (await context()).newPage();
      found.push(await paintOf(page, url));
      // Each that is open has a connection.
      await page.close();
    }
    return found;
  };
  const fresh = () => browser.newContext({ viewport: VIEWPORT });
  report("first visit of all, sign-in", await visits(fresh, 1));
  report("nothing cached, sign-in", await visits(fresh, ROUNDS));
  const signedIn = await fresh();
  const page = await signedIn.newPage();
  await page.goto(url);
  await signInAs(page, key);
  await untilLoaded(page);
  await page.close();
  report("files cached, overview", await visits(async () => signedIn, ROUNDS));
  await signedIn.close();
}

/** Every call that the pages make, with the pages that make it. */
async function callsOfPages(browser: Browser, baseUrl: string, key: string) {
  const calls = new Map<string, string>();
  let place = "";
  const page = await (await browser.newContext({ viewport: VIEWPORT })).newPage();
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    const [, path] = pathname.split("/dashboard/api/");
    const isData = path !== undefined && path !== "events" && path !== "session";
    if (isData && request.method() === "GET" && !calls.has(path + search)) {
      calls.set(path + search, place);
    }
  });
  await page.goto(`${baseUrl}/dashboard`);
  await untilHeaded(page);
  await signInAs(page, key);
  for (const { path } of await menuOf(page)) {
    const name = path.split("/")[2] ?? "overview";
    for (const query of ["", ...(VARIANTS[name] ?? [])]) {
      place = `${name} ${query}`;
      await page.goto(`${baseUrl}${path}?${query}`);
      await untilLoaded(page);
    }
    const one = page.locator(`main a[href*="/${name}?id="]`).first();
    if ((await one.count()) === 0) continue;
    place = `${name}, one`;
    await page.goto(new URL((await one.getAttribute("href"))!, baseUrl).href);
    await untilLoaded(page);
  }
  await page.context().close();
  return calls;
}

async function measureCalls(browser: Browser, baseUrl: string, key: string): Promise<void> {
  const calls = await callsOfPages(browser, baseUrl, key);
  const session = await signIn({ baseUrl }, key);
  const measured = [];
  for (const [path, place] of calls) {
    measured.push({ path, place, ms: await medianOf(session, path) });
  }
  for (const { path, place, ms } of measured.toSorted((a, b) => b.ms - a.ms)) {
    console.log(`${ms.toFixed(1).padStart(8)} ms  ${place.padEnd(28)} ${path}`);
  }
}

async function medianOf(session: DashboardBrowser, path: string): Promise<number> {
  const tookMs: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const startedMs = performance.now();
    const response = await session.call("GET", path);
    await response.arrayBuffer();
    if (!response.ok) console.log(`         ${path}: status ${response.status}`);
    tookMs.push(performance.now() - startedMs);
  }
  return median(tookMs);
}

async function measured(): Promise<{ keys: string[]; baseUrl: string; stop(): Promise<void> }> {
  const [baseUrl, ...keys] = process.argv.slice(2).filter((one) => one !== "--large");
  if (baseUrl !== undefined) return { baseUrl, keys, stop: async () => {} };
  const filling = process.argv.includes("--large") ? LARGE : ORDINARY;
  const gateway = await startTestGateway({
    fill: (sql, organizationId) => fillOrganization(sql, organizationId, filling),
  });
  const operator = await addOperator(gateway);
  return { baseUrl: gateway.baseUrl, keys: [gateway.managementKey, operator], stop: gateway.stop };
}

const { baseUrl, keys, stop } = await measured();
const browser = await launchChromium();
await measurePaint(browser, baseUrl, keys[0]!);
for (const key of keys) await measureCalls(browser, baseUrl, key);
await browser.close();
await stop();
process.exit();
