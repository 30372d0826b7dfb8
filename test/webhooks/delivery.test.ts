import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Stripe from "stripe";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";
import { addHookOwner, namesOf, untilReceived } from "./hooks.ts";
import { isSigned, LOCAL_DELIVERY, type Receiver, startReceiver } from "./receiver.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({ environment: LOCAL_DELIVERY });
});
afterAll(() => gateway.stop());

const receivers: Receiver[] = [];
afterEach(async () => {
  for (const receiver of receivers.splice(0)) await receiver.stop();
});

function receive(answer?: Receiver["answer"]): Receiver {
  const receiver = startReceiver(answer);
  receivers.push(receiver);
  return receiver;
}

describe("a delivery", () => {
  test("has the headers, the body and the signature of the specification", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
    const hook = await owner.addHook(receiver);
    const beganMs = Date.now();
    await owner.emit("ada");
    await untilReceived(receiver, 1);
    const [delivery] = receiver.received;
    expect(delivery!.headers.get("content-type")).toBe("application/json");
    expect(delivery!.type).toBe("key.created");
    expect(Object.keys(delivery!.event).sort()).toEqual(["created_at", "data", "id", "type"]);
    expect(delivery!.event).toMatchObject({ id: delivery!.id, type: "key.created" });
    expect(delivery!.event.data).toMatchObject({ key_id: expect.any(String), key_name: "ada" });
    expect(Date.parse(delivery!.event.created_at)).toBeWithin(beganMs - 2_000, Date.now() + 2_000);
    expect(delivery!.headers.get("gateway-webhook-signature")).toMatch(
      /^t=\d{10},v1=[0-9a-f]{64}$/,
    );
    expect(isSigned(delivery!, hook.secret)).toBeTrue();
    expect(isSigned(delivery!, `${hook.secret}x`)).toBeFalse();
  });

  test("is accepted by the verifier of Stripe's SDK, which refuses what was changed or is old", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
    const hook = await owner.addHook(receiver, { secret: "0123456789abcdef" });
    for (let i = 0; i < 5; i++) await owner.emit(`key ${i}`);
    await untilReceived(receiver, 5);
    const { webhooks } = new Stripe("sk_test_0");
    for (const { body, headers, id } of receiver.received) {
      const signature = headers.get("gateway-webhook-signature")!;
      const event = await webhooks.constructEventAsync(body, signature, hook.secret);
      expect(event.id).toBe(id);
      const later = Number(headers.get("gateway-webhook-timestamp")) + 301;
      for (const [changedBody, secret, atSeconds] of [
        [`${body} `, hook.secret, undefined],
        [body, "0123456789abcdeg", undefined],
        [body, hook.secret, later],
      ] as const) {
        const checked = webhooks.constructEventAsync(
          changedBody,
          signature,
          secret,
          300,
          undefined,
          atSeconds && atSeconds * 1_000,
        );
        await expect(checked).rejects.toThrow();
      }
    }
  });

  test("goes to the webhooks that want its type, of its organization alone", async () => {
    const [owner, other] = [await addHookOwner(gateway), await addHookOwner(gateway)];
    const [all, created, deleted, foreign] = [receive(), receive(), receive(), receive()];
    await owner.addHook(all!);
    await owner.addHook(created!, { events: ["key.created", "key.updated"] });
    await owner.addHook(deleted!, { events: ["key.deleted"] });
    await other.addHook(foreign!);
    const key = await (await owner.call("POST", "/v1/keys", { name: "ada" })).json();
    await owner.call("PATCH", `/v1/keys/${key.id}`, { name: "eve" });
    await owner.call("DELETE", `/v1/keys/${key.id}`);
    await untilReceived(all!, 3);
    await untilReceived(created!, 2);
    await untilReceived(deleted!, 1);
    expect(all!.received.map(({ type }) => type)).toEqual([
      "key.created",
      "key.updated",
      "key.deleted",
    ]);
    expect(created!.received.map(({ type }) => type)).toEqual(["key.created", "key.updated"]);
    expect(deleted!.received.map(({ type }) => type)).toEqual(["key.deleted"]);
    expect(foreign!.received).toEqual([]);
  });

  test("of what happened before its webhook was made is never made", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
    await owner.emit("before");
    await owner.addHook(receiver);
    await owner.emit("after");
    await untilReceived(receiver, 1);
    expect(namesOf(receiver)).toEqual(["after"]);
  });
});

describe("the order", () => {
  test("is that of the changes, through failures of all kinds, and every attempt is signed afresh", async () => {
    const owner = await addHookOwner(gateway);
    let calls = 0;
    const receiver = receive(() => {
      const status = [500, 429, 302, 200, 408, 200][calls++ % 6]!;
      return new Response(null, { status, headers: { location: "http://127.0.0.1:1/" } });
    });
    const hook = await owner.addHook(receiver);
    const names = Array.from({ length: 12 }, (_, i) => `key ${i}`);
    for (const name of names) await owner.emit(name);
    await until(
      "all are delivered",
      async () =>
        (await owner.deliveries(hook)).filter(({ status }) => status === "delivered").length === 12,
    );
    expect(namesOf(receiver)).toEqual(names);
    for (const one of receiver.received) expect(isSigned(one, hook.secret)).toBeTrue();
    expect(receiver.received.length).toBeGreaterThan(24);
    const [first] = await owner.deliveries(hook);
    expect(first!.attempts.map(({ status_code }) => status_code)).toEqual([500, 429, 302, 200]);
    expect(first!.attempts.map(({ error }) => error === null)).toEqual([false, false, false, true]);
  });

  test("gives an event that comes into sight late the next number, and none is lost", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
    await owner.addHook(receiver);
    const insert = (sql: TestGateway["sql"], name: string) => sql`
      INSERT INTO outbox (event_id, organization_id, type, data)
      VALUES (${`evt_${crypto.randomUUID()}`}, ${owner.organizationId}, 'key.created', ${sql.json({ key_name: name })})`;
    const { promise: mayCommit, resolve: commit } = Promise.withResolvers<void>();
    const { promise: inserted, resolve: insertedLate } = Promise.withResolvers<void>();
    const late = gateway.sql.begin(async (transaction) => {
      await insert(transaction as unknown as TestGateway["sql"], "late");
      insertedLate();
      await mayCommit;
    });
    await inserted;
    await owner.emit("early 1");
    await owner.emit("early 2");
    await untilReceived(receiver, 2);
    commit();
    await late;
    await owner.emit("last");
    await untilReceived(receiver, 4);
    expect(namesOf(receiver).slice(0, 2)).toEqual(["early 1", "early 2"]);
    expect(namesOf(receiver).sort()).toEqual(["early 1", "early 2", "last", "late"]);
    expect(receiver.received).toHaveLength(4);
  });
});

describe("an event that fails", () => {
  test("for the sixth time is dropped, and disables its webhook; what is behind it is kept", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive(500);
    const hook = await owner.addHook(receiver);
    await owner.emit("first");
    await owner.emit("second");
    await until("the webhook is disabled", async () => !(await owner.hook(hook)).enabled);
    expect(await owner.hook(hook)).toMatchObject({ enabled: false, disabled_by: "failures" });
    expect(receiver.received).toHaveLength(6);
    expect(namesOf(receiver)).toEqual(["first"]);
    await owner.emit("third");
    const listed = await until("three deliveries", async () => {
      const found = await owner.deliveries(hook);
      return found.length === 3 && found;
    });
    expect(listed.map(({ status }) => status)).toEqual(["dropped", "pending", "pending"]);
    expect(receiver.received).toHaveLength(6);
    receiver.answer = 200;
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { enabled: true });
    await untilReceived(receiver, 8);
    expect(namesOf(receiver)).toEqual(["first", "second", "third"]);
    expect(await owner.hook(hook)).toMatchObject({ enabled: true, disabled_by: null });
  });

  test("with a final answer is given up at once, alone, and its webhook stays enabled", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive(
      ({ event }) => new Response(null, { status: event.data.key_name === "bad" ? 410 : 200 }),
    );
    const hook = await owner.addHook(receiver);
    for (const name of ["good", "bad", "fine"]) await owner.emit(name);
    await untilReceived(receiver, 3);
    expect(receiver.received).toHaveLength(3);
    await until(
      "all have ended",
      async () =>
        (await owner.deliveries(hook)).map(({ status }) => status).join() ===
        "delivered,failed,delivered",
    );
    expect((await owner.hook(hook)).enabled).toBeTrue();
  });

  test("for good has durably done so before the next one is sent", async () => {
    const owner = await addHookOwner(gateway);
    const before: unknown[] = [];
    const receiver = receive(async ({ event }) => {
      const number = Number(event.data.key_name);
      const rows = await gateway.sql`SELECT status FROM deliveries
        WHERE webhook_id = ${hook.id} AND sequence <= ${number} AND status = 'pending'`;
      before.push(rows.length);
      return new Response(null, { status: 410 });
    });
    const hook = await owner.addHook(receiver);
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { enabled: false });
    for (let number = 0; number < 20; number++) await owner.emit(`${number}`);
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { enabled: true });
    await untilReceived(receiver, 20);
    await until("all are answered", () => before.length === 20);
    expect(before).toEqual(Array(20).fill(0));
  });

  test("because nobody listens, or the answer is no HTTP, is sent again", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
    const dead = receive();
    await dead.stop();
    const hook = await owner.addHook(dead);
    await owner.emit("ada");
    const [delivery] = await until("a failed attempt", async () => {
      const found = await owner.deliveries(hook);
      return (found[0]?.attempts.length ?? 0) > 0 && found;
    });
    expect(delivery!.attempts[0]).toMatchObject({
      status_code: null,
      error: expect.stringMatching(/^the connection failed/),
    });
    await owner.call("PATCH", `/v1/webhooks/${hook.id}`, { url: receiver.url, enabled: true });
    // Where the sixth attempt came first, the event is gone with it.
    await owner.emit("eve");
    await until("what follows arrives", () => namesOf(receiver).includes("eve"));
  });
});

describe("a webhook", () => {
  test("that is disabled gets nothing, and what was kept for it once it is enabled", async () => {
    const owner = await addHookOwner(gateway);
    const [receiver, other] = [receive(), receive()];
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
    const [receiver, other] = [receive(500), receive()];
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

  test("whose secret was replaced signs with both, the new one first", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
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

  test("whose secret was replaced again and again signs with each for its day", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive();
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
    const receiver = receive();
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

  test("gets a delivery again on request, outside the order, and that is noted", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = receive(404);
    const hook = await owner.addHook(receiver);
    await owner.emit("ada");
    const failed = await until("it failed", async () =>
      (await owner.deliveries(hook)).find(({ status }) => status === "failed"),
    );
    receiver.answer = 200;
    const path = `/v1/webhooks/${hook.id}/deliveries/${failed.id}/redeliver`;
    const again = await owner.call("POST", path);
    expect(again.status).toBe(200);
    expect(await again.json()).toMatchObject({
      id: failed.id,
      event_id: failed.event_id,
      status: "delivered",
      delivered: true,
      status_code: 200,
    });
    expect(receiver.received.map(({ id }) => id)).toEqual([failed.event_id, failed.event_id]);
    expect(isSigned(receiver.received[1]!, hook.secret)).toBeTrue();
    const [listed] = await owner.deliveries(hook);
    expect(listed!.attempts.map(({ status_code }) => status_code)).toEqual([404, 200]);
    expect((await owner.call("POST", path.replace(failed.id, "dlv_0000000000000000"))).status).toBe(
      404,
    );
    expect((await owner.call("POST", path.replace(failed.id, "dlv_x"))).status).toBe(404);
    const other = await addHookOwner(gateway);
    expect((await other.call("POST", path)).status).toBe(404);
  });
});

test("a receiver that never answers slows no other one", async () => {
  const owner = await addHookOwner(gateway);
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
  const stuck = receive(async () => {
    await mayAnswer;
    return new Response();
  });
  const receiver = receive();
  await owner.addHook(stuck);
  await owner.addHook(receiver);
  for (let i = 0; i < 20; i++) await owner.emit(`key ${i}`);
  await untilReceived(receiver, 20);
  expect(stuck.received).toHaveLength(1);
  answer();
  await untilReceived(stuck, 20);
  expect(namesOf(stuck)).toEqual(namesOf(receiver));
});
