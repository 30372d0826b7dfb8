import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import { type HookGateway, startHookGateway } from "./hook-gateway.ts";
import { addHookOwner, namesOf, untilReceived } from "./hooks.ts";

let gateway: HookGateway;
beforeAll(async () => {
  gateway = await startHookGateway();
});
afterEach(() => gateway.stopReceivers());
afterAll(() => gateway.stop());

describe("an event that fails", () => {
  test("is named by those that wait behind it, with the time of its next attempt", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive(500);
    const hook = await owner.addHook(receiver);
    await owner.emit("first");
    await owner.emit("second");
    const [first, second] = await until("the first has failed once", async () => {
      const found = await owner.deliveries(hook);
      return found.length === 2 && found[0]!.attempts.length > 0 && found;
    });
    expect(first).toMatchObject({ waits_behind: null });
    expect(second!.waits_behind).toMatchObject({
      id: first!.id,
      event_id: first!.event_id,
      event_type: "key.created",
    });
    receiver.answer = 200;
    await until("both are delivered", async () =>
      (await owner.deliveries(hook)).every(
        ({ status, waits_behind: behind }) => status === "delivered" && behind === null,
      ),
    );
  });

  test("for the sixth time is dropped, and disables its webhook; what is behind it is kept", async () => {
    const owner = await addHookOwner(gateway);
    const receiver = gateway.receive(500);
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
    const receiver = gateway.receive(
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
    const receiver = gateway.receive(async ({ event }) => {
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
    const receiver = gateway.receive();
    const dead = gateway.receive();
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

test("a receiver that never answers slows no other one", async () => {
  const owner = await addHookOwner(gateway);
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<void>();
  const stuck = gateway.receive(async () => {
    await mayAnswer;
    return new Response();
  });
  const receiver = gateway.receive();
  await owner.addHook(stuck);
  await owner.addHook(receiver);
  for (let i = 0; i < 20; i++) await owner.emit(`key ${i}`);
  await untilReceived(receiver, 20);
  await untilReceived(stuck, 1);
  expect(stuck.received).toHaveLength(1);
  answer();
  await untilReceived(stuck, 20);
  expect(namesOf(stuck)).toEqual(namesOf(receiver));
});
