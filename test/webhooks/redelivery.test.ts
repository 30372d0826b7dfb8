import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import { type HookGateway, startHookGateway } from "./hook-gateway.ts";
import { addHookOwner, namesOf, untilReceived } from "./hooks.ts";
import { isSigned } from "./receiver.ts";

let gateway: HookGateway;
beforeAll(async () => {
  gateway = await startHookGateway({ GATEWAY_WEBHOOK_RETRY_DELAYS: "3600" });
});
afterEach(() => gateway.stopReceivers());
afterAll(() => gateway.stop());

test("a delivery is sent again on request, outside the order, and that is noted", async () => {
  const owner = await addHookOwner(gateway);
  const receiver = gateway.receive(404);
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

test("what stands behind a delivery that is to be sent again goes out once that one was received on request", async () => {
  const owner = await addHookOwner(gateway);
  const receiver = gateway.receive(500);
  const hook = await owner.addHook(receiver);
  for (const name of ["first", "second"]) await owner.emit(name);
  const failed = await until("the first failed, the second waits", async () => {
    const [first, second] = await owner.deliveries(hook);
    return second !== undefined && first!.attempts.length === 1 && first;
  });
  const redeliver = () =>
    owner.call("POST", `/v1/webhooks/${hook.id}/deliveries/${failed.id}/redeliver`);
  expect(await (await redeliver()).json()).toMatchObject({ status: "pending", delivered: false });
  receiver.answer = 200;
  expect(await (await redeliver()).json()).toMatchObject({ status: "delivered", delivered: true });
  await untilReceived(receiver, 4);
  expect(namesOf(receiver)).toEqual(["first", "second"]);
  const statuses = async () => (await owner.deliveries(hook)).map(({ status }) => status).join();
  await until("both are noted", async () => (await statuses()) === "delivered,delivered");
  expect(receiver.received).toHaveLength(4);
});
