import { afterAll, beforeAll, expect, test } from "bun:test";
import { settled, stateOf } from "../actors/fake-environment.ts";
import { requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import { until } from "../support/until.ts";
import { scriptedStream } from "./scripted-stream.ts";

let owned: Awaited<ReturnType<typeof openSingleNodeMoney>>;
beforeAll(async () => {
  owned = await openSingleNodeMoney();
});
afterAll(() => owned.close());

test("a stream tells its error once its idempotency key is free: who reads it may call again anywhere", async () => {
  const payer = await owned.addOrganization(100_000n);
  const hold = await owned.money.hold(requestOf(payer, 10_000));
  const { promise: isFree, resolve: freed } = Promise.withResolvers<void>();
  let asked = 0;
  const { stream, provider } = scriptedStream(owned, hold, {
    free() {
      asked++;
      return isFree;
    },
  });
  const opening = stream.open();
  await until("the provider is called", () => provider.calls.length === 1);
  provider.say("one");
  await opening;
  const reader = stream.body().getReader();
  await reader.read();
  provider.breakOff();
  const last = reader.read();
  await until("the key is being freed", () => asked === 1);
  await settled();
  expect(await stateOf(last)).toBe("pending");
  freed();
  expect(Buffer.from((await last).value!).toString()).toContain("provider_error");
});
