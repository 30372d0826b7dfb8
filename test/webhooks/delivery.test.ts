import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import Stripe from "stripe";
import type { Database } from "../../db/client.ts";
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

describe("a delivery", () => {
  test("has the headers, the body and the signature of the specification", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive();
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
    const receiver = gateway.receive();
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
    const [all, created, deleted, foreign] = [
      gateway.receive(),
      gateway.receive(),
      gateway.receive(),
      gateway.receive(),
    ];
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
    const receiver = gateway.receive();
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
    const receiver = gateway.receive(() => {
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
    const receiver = gateway.receive();
    await owner.addHook(receiver);
    const insert = (sql: Database, name: string) => sql`
      INSERT INTO outbox (event_id, organization_id, type, data)
      VALUES (${`evt_${crypto.randomUUID()}`}, ${owner.organizationId}, 'key.created', ${sql.json({ key_name: name })})`;
    const { promise: mayCommit, resolve: commit } = Promise.withResolvers<void>();
    const { promise: inserted, resolve: insertedLate } = Promise.withResolvers<void>();
    const late = gateway.sql.begin(async (transaction) => {
      await insert(transaction as unknown as Database, "late");
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
