import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import { type HookGateway, startHookGateway } from "./hook-gateway.ts";
import { addHookOwner, namesOf, untilReceived } from "./hooks.ts";
import { isSigned } from "./receiver.ts";

let gateway: HookGateway;
beforeAll(async () => {
  gateway = await startHookGateway();
});
afterEach(() => gateway.stopReceivers());
afterAll(() => gateway.stop());

describe("a webhook", () => {
  test("that is disabled gets nothing, and what was kept for it once it is enabled", async () => {
    const owner = await addHookOwner(gateway);
    const [receiver, other] = [gateway.receive(), gateway.receive()];
    const hook = await owner.addHook(receiver!, { enabled: false });
    await owner.addHook(other!);
    await owner.emit("kept");
    await untilReceived(other!, 1);
    expect(receiver!.received).toEqual([]);
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { enabled: true });
    await untilReceived(receiver!, 1);
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { enabled: false });
    await owner.emit("kept too");
    await untilReceived(other!, 2);
    await until("it is numbered", async () => (await owner.deliveries(hook)).length === 2);
    expect(receiver!.received).toHaveLength(1);
  });

  test("that is deleted gets nothing more, though it had more to come", async () => {
    const owner = await addHookOwner(gateway);
    const [receiver, other] = [gateway.receive(500), gateway.receive()];
    const hook = await owner.addHook(receiver!);
    await owner.addHook(other!);
    await owner.emit("first");
    await untilReceived(receiver!, 1);
    await owner.call("DELETE", `/v1/webhooks/${hook.id}`);
    // An attempt may be under way while it is deleted; none begins once the news is around.
    await owner.emit("second");
    await untilReceived(other!, 2);
    const received = receiver!.received.length;
    receiver!.answer = 200;
    for (let i = 0; i < 5; i++) await owner.emit(`more ${i}`);
    await untilReceived(other!, 7);
    expect(receiver!.received.length).toBeLessThanOrEqual(received + 1);
    expect(namesOf(receiver!)).toEqual(["first"]);
  });

  test.each(["\ufeffsecret of our own", " \t spaces around ", "schlüssel 🔑 schlüssel"])(
    "signs with the secret that it was given, each character of %j, and after a rotation too",
    async (secret) => {
      const owner = await addHookOwner(gateway);
      const receiver = gateway.receive();
      const hook = await owner.addHook(receiver, { secret });
      const test = () =>
        owner.call("POST", `/v1/webhooks/${hook.id}/test`, { type: "key.created" });
      await test();
      expect(isSigned(receiver.received[0]!, secret)).toBeTrue();
      await owner.call("POST", `/v1/webhooks/${hook.id}/rotate_secret`);
      await test();
      expect(isSigned(receiver.received[1]!, secret)).toBeTrue();
    },
  );

  test("whose secret was replaced signs with both, the new one first", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive();
    const hook = await owner.addHook(receiver);
    await owner.emit("before");
    await untilReceived(receiver, 1);
    const rotated = await (
      await owner.call("POST", `/v1/webhooks/${hook.id}/rotate_secret`)
    ).json();
    expect(rotated.secret).not.toBe(hook.secret);
    const dayMs = Date.parse(rotated.previous_secret_expires_at) - Date.now();
    expect(dayMs).toBeWithin(86_000_000, 86_400_001);
    await owner.emit("after");
    await untilReceived(receiver, 2);
    const last = receiver.received[1]!;
    expect(last.headers.get("gateway-webhook-signature")).toMatch(/^t=\d+(,v1=[0-9a-f]{64}){2}$/);
    expect(isSigned(last, hook.secret)).toBeTrue();
    expect(isSigned(last, rotated.secret)).toBeTrue();
    // A day later the old one is gone.
    await gateway.sql`UPDATE webhooks SET previous_secret_until = now() - interval '1 second' WHERE id = ${hook.id}`;
    const tested = await owner.call("POST", `/v1/webhooks/${hook.id}/test`, {
      type: "key.created",
    });
    expect(tested.status).toBe(200);
    expect(isSigned(receiver.received[2]!, hook.secret)).toBeFalse();
    expect(isSigned(receiver.received[2]!, rotated.secret)).toBeTrue();
  });

  test("without a body the test event has the first type that the webhook subscribes to", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive();
    const hook = await owner.addHook(receiver, { events: ["key.deleted", "key.created"] });
    const path = `${gateway.baseUrl}/v1/webhooks/${hook.id}/test`;
    const headers = { authorization: `Bearer ${owner.key}` };
    for (const body of [undefined, "", "{}"]) {
      const contentType = body === "{}" ? "application/json" : "text/plain";
      const tested = await fetch(path, {
        method: "POST",
        headers: { ...headers, ...(body !== undefined && { "content-type": contentType }) },
        ...(body !== undefined && { body }),
      });
      expect({ body, status: tested.status }).toEqual({ body, status: 200 });
      expect((await tested.json()).delivered).toBeTrue();
    }
    expect(receiver.received.map(({ event }) => event.type)).toEqual(Array(3).fill("key.deleted"));
  });

  test("whose secret was replaced again and again signs with each for its day", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive();
    const hook = await owner.addHook(receiver);
    const rotate = async (): Promise<string> => {
      const response = await owner.call("POST", `/v1/webhooks/${hook.id}/rotate_secret`);
      return (await response.json()).secret;
    };
    const test = async () => {
      await owner.call("POST", `/v1/webhooks/${hook.id}/test`, { type: "key.created" });
      return receiver.received.at(-1)!;
    };
    const second = await rotate();
    await gateway.sql`
      UPDATE webhooks SET previous_secret_until = now() + interval '2 seconds' WHERE id = ${hook.id}`;
    // Two at once, as of a client that asks again: neither takes the other's away.
    const [third, fourth] = await Promise.all([rotate(), rotate()]);
    for (const secret of [hook.secret, second, third!, fourth!]) {
      expect(isSigned(await test(), secret)).toBeTrue();
    }
    await until("the first one's time is over", async () => !isSigned(await test(), hook.secret));
    for (const secret of [second, third!, fourth!]) {
      expect(isSigned(await test(), secret)).toBeTrue();
    }
    // What signs stays bounded, and the newest do.
    let newest = "";
    for (let i = 0; i < 12; i++) newest = await rotate();
    const last = await test();
    expect(last.headers.get("gateway-webhook-signature")!.match(/v1=/g)).toHaveLength(9);
    expect(isSigned(last, newest)).toBeTrue();
    expect(isSigned(last, second)).toBeFalse();
  });

  test("is tested with a made-up event of each type, at once and once, disabled or not", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive();
    const hook = await owner.addHook(receiver, { enabled: false, events: ["cache.purged"] });
    const tested = await (
      await owner.call("POST", `/v1/webhooks/${hook.id}/test`, { type: "budget.threshold" })
    ).json();
    expect(tested).toMatchObject({
      event_id: receiver.received[0]!.id,
      delivered: true,
      status_code: 200,
      latency_ms: expect.any(Number),
    });
    expect(receiver.received[0]!.event.data).toMatchObject({
      test: true,
      key_id: expect.any(String),
      threshold_percent: 80,
      period: "daily",
      budget_usd: 10,
      spent_usd: 8,
      period_end: expect.any(String),
    });
    receiver.answer = 503;
    const failed = await (
      await owner.call("POST", `/v1/webhooks/${hook.id}/test`, { type: "key.deleted" })
    ).json();
    expect(failed).toMatchObject({ delivered: false, status_code: 503 });
    expect(receiver.received).toHaveLength(2);
    expect((await owner.hook(hook)).disabled_by).toBe("request");
  });
});
