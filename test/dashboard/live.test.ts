import { afterAll, beforeAll, expect, test } from "bun:test";
import { TICK_MS } from "../../src/dashboard/live.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { addKeyOf } from "../support/api-keys.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

/*
 * How soon an open page learns that its session has ended, in waits of its event stream: so the bound holds on a
 * machine of any load.
 */

const BOUND_MS = 1_000;

let waits = 0;
const clock = {
  nowMs: systemClock.nowMs,
  after(delayMs: number, run: () => void) {
    if (delayMs === TICK_MS) waits++;
    return systemClock.after(delayMs, run);
  },
};

let gateway: TestGateway;
let owner: DashboardBrowser;
beforeAll(async () => {
  gateway = await startTestGateway({ clock });
  owner = await signIn(gateway, gateway.managementKey);
});
afterAll(() => gateway.stop());

async function idOf(name: string): Promise<string> {
  const listed = await owner.call("GET", "v1/keys?limit=100");
  const { data } = (await listed.json()) as { data: { id: string; name: string }[] };
  return data.find((key) => key.name === name)!.id;
}

test.each([
  ["its key is revoked", (id: string) => owner.call("DELETE", `v1/keys/${id}`)],
  ["its key is switched off", (id: string) => owner.call("PATCH", `v1/keys/${id}`, OFF)],
  ["someone ends it", (id: string) => owner.call("DELETE", `settings/sign-ins/${id}`)],
])("an open page learns within a second that %s", async (name, end) => {
  const secret = await addKeyOf("management", gateway, { name });
  const stream = await (await signIn(gateway, secret)).call("GET", "events");
  const before = waits;
  const reader = stream.body!.pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader.read()).value).toBe("event: open\ndata: {}\n\n");
  await until("the stream waits", () => waits > before);
  expect((await end(await idOf(name))).status).toBe(200);
  const committed = waits;
  let received = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    received += part.value;
  }
  expect(received).toEndWith("event: ended\ndata: {}\n\n");
  // The wait that was under way when the act was committed counts too.
  expect((waits - committed + 1) * TICK_MS).toBeLessThanOrEqual(BOUND_MS);
});

const OFF = { is_active: false };
