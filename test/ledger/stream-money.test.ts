import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Hold } from "../../src/billing/ledger/interface.ts";
import { settled, stateOf } from "../actors/fake-environment.ts";
import { requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import { until } from "../support/until.ts";
import { attemptsOf, faultsOf, type Payer } from "./books.ts";
import { readAll, readUntil } from "./read-bytes.ts";
import { type ScriptedStream, scriptedStream, TOTAL_TIMEOUT_MS } from "./scripted-stream.ts";
import { lockAccount, lockInstances, untilWaiting } from "./standing-in-the-way.ts";

let owned: Awaited<ReturnType<typeof openSingleNodeMoney>>;
let payer: Payer;
beforeAll(async () => {
  owned = await openSingleNodeMoney();
});
afterAll(() => owned.close());

async function begin(isGoneAtOnce = false): Promise<ScriptedStream & { hold: Hold }> {
  payer = await owned.addOrganization(100_000n);
  const hold = await owned.money.hold(requestOf(payer, 10_000));
  return { hold, ...scriptedStream(owned, hold, { isGoneAtOnce }) };
}

interface Bill {
  readonly charge: bigint;
  readonly status: number;
}

async function billOf({ requestId }: Hold): Promise<Bill | undefined> {
  const [row] = await owned.sql<{ charge: bigint; status: number }[]>`
    SELECT -amount_nano AS charge, status FROM transactions WHERE request_id = ${requestId}`;
  return row && { charge: row.charge, status: row.status };
}

/** Every hold has ended, nothing waits for the next start, and the stream is over for everyone. */
async function expectOver({ ticker, finished, notes }: ScriptedStream): Promise<void> {
  await until("the hold has ended", () => owned.money.outstandingHolds === 0);
  expect(await attemptsOf(owned.sql)).toEqual([]);
  expect(await faultsOf(owned.sql)).toEqual([]);
  expect(ticker.size).toBe(0);
  expect(finished.times).toBe(1);
  expect([...notes]).toEqual([]);
}

async function opened(scripted: ScriptedStream) {
  const opening = scripted.stream.open();
  await until("the provider is called", () => scripted.provider.calls.length === 1);
  scripted.provider.say("a", "b");
  await opening;
  return scripted.stream.body().getReader();
}

test("nothing leaves while the instance may have been taken for dead, and what came goes on after that", async () => {
  const scripted = await begin();
  const reader = await opened(scripted);
  await readUntil(reader, '"b"');
  const end = scripted.doubt();
  scripted.provider.say("c");
  const next = readUntil(reader, '"c"');
  expect(await stateOf(next)).toBe("pending");
  // Long enough for the provider's piece to have come.
  await owned.sql`SELECT 1`;
  expect(await stateOf(next)).toBe("pending");
  end();
  await next;
  scripted.provider.finish();
  expect(await readAll(reader)).toEndWith("data: [DONE]\n\n");
  expect(await billOf(scripted.hold)).toEqual({ charge: 3n, status: 200 });
  await expectOver(scripted);
});

describe("a stream whose provider ends before anything may leave", () => {
  test("leaves behind its checkpoint, and [DONE] behind its charge", async () => {
    const scripted = await begin();
    const unlock = await lockInstances(owned.sql);
    const opening = scripted.stream.open();
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.provider.say("a", "b");
    scripted.provider.finish();
    await untilWaiting(owned.sql);
    expect(await stateOf(opening)).toBe("pending");
    await unlock();
    await opening;
    const reader = scripted.stream.body().getReader();
    expect(await readAll(reader)).toEndWith("data: [DONE]\n\n");
    expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 200 });
    await expectOver(scripted);
  });

  test("is charged once where its client leaves meanwhile", async () => {
    const scripted = await begin();
    const unlock = await lockInstances(owned.sql);
    const opening = scripted.stream.open();
    opening.catch(() => {});
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.provider.say("a", "b");
    scripted.provider.finish();
    await untilWaiting(owned.sql);
    scripted.leave();
    await unlock();
    await expect(opening).rejects.toMatchObject({ code: "client_closed_request" });
    await expectOver(scripted);
    expect((await billOf(scripted.hold))!.status).toBe(499);
  });
});

describe("a stream is charged once, and nothing of it is left,", () => {
  test("where it ends as it should", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    scripted.provider.say("c");
    scripted.provider.finish();
    expect(await readAll(reader)).toEndWith("data: [DONE]\n\n");
    expect(await billOf(scripted.hold)).toEqual({ charge: 3n, status: 200 });
    await expectOver(scripted);
  });

  test("where the provider breaks off", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    scripted.provider.breakOff();
    expect(await readAll(reader)).toContain('"error"');
    expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 200 });
    await expectOver(scripted);
  });

  test("where the client leaves in the middle", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    scripted.leave();
    expect(scripted.provider.calls[0]!.isAborted).toBe(true);
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 499 });
  });

  test("where the client leaves while the first checkpoint becomes durable", async () => {
    const scripted = await begin();
    const unlock = await lockInstances(owned.sql);
    const opening = scripted.stream.open();
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.provider.say("a");
    await untilWaiting(owned.sql);
    scripted.leave();
    opening.catch(() => {});
    await unlock();
    await expectOver(scripted);
    expect((await billOf(scripted.hold))?.status).toBe(499);
  });

  test("where the client leaves while its charge becomes durable", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const rest = readAll(reader);
    scripted.provider.finish();
    await untilWaiting(owned.sql);
    await reader.cancel();
    scripted.leave();
    await rest;
    await unlock();
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 200 });
  });

  test("where the client leaves while the charge of a stream that broke becomes durable", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
    const rest = readAll(reader);
    scripted.provider.breakOff();
    await untilWaiting(owned.sql);
    await reader.cancel();
    scripted.leave();
    await rest;
    await unlock();
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 200 });
    // A later tick meets no closed stream.
    owned.clock.advance(2 * TOTAL_TIMEOUT_MS);
  });

  test("where the client stays and does not read, when its time is up", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    scripted.provider.say("c", "d");
    owned.clock.advance(TOTAL_TIMEOUT_MS + 100);
    await expectOver(scripted);
    expect((await billOf(scripted.hold))?.status).toBe(200);
    expect(await readAll(reader)).toContain("provider_timeout");
  });

  test("where the database does not answer in the middle: the client is told when its time is up, the charge follows", async () => {
    const scripted = await begin();
    const reader = await opened(scripted);
    await readUntil(reader, '"b"');
    const unlock = await lockInstances(owned.sql);
    scripted.provider.say(...Array<string>(400).fill("x"));
    const rest = readAll(reader);
    await untilWaiting(owned.sql);
    owned.clock.advance(TOTAL_TIMEOUT_MS + 100);
    await settled();
    owned.clock.advance(2_000);
    expect(await rest).toContain("provider_timeout");
    expect(await billOf(scripted.hold)).toBeUndefined();
    await unlock();
    await expectOver(scripted);
    expect((await billOf(scripted.hold))!.charge).toBeGreaterThanOrEqual(2n);
  });
});

test("a stream that broke while the database does not answer ends when its time is up, and is charged afterwards", async () => {
  const scripted = await begin();
  const reader = await opened(scripted);
  await readUntil(reader, '"b"');
  const unlock = await lockAccount(owned.sql, `org:${payer.organizationId}`);
  const rest = readAll(reader);
  scripted.provider.breakOff();
  await untilWaiting(owned.sql);
  owned.clock.advance(TOTAL_TIMEOUT_MS);
  expect(await rest).toContain("provider_error");
  expect(await billOf(scripted.hold)).toBeUndefined();
  await unlock();
  await expectOver(scripted);
  expect(await billOf(scripted.hold)).toEqual({ charge: 2n, status: 200 });
});

describe("a stream costs nothing", () => {
  test("where its client was gone before the provider was called, which is not called then", async () => {
    const scripted = await begin(true);
    const code = await scripted.stream.open().catch((error) => (error as { code: string }).code);
    expect(code).toBe("client_closed_request");
    expect(scripted.provider.calls).toEqual([]);
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toBeUndefined();
  });

  test("where the client leaves before the provider has said anything", async () => {
    const scripted = await begin();
    const opening = scripted.stream.open();
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.leave();
    expect(await opening.catch((error) => (error as { code: string }).code)).toBe(
      "client_closed_request",
    );
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toBeUndefined();
  });

  test("where its first checkpoint is refused, and is not logged as if it did", async () => {
    const scripted = await begin();
    await owned.sql`UPDATE instances SET alive = false`;
    const reader = scripted.stream.body().getReader();
    const reading = readAll(reader);
    await until("the provider is called", () => scripted.provider.calls.length === 1);
    scripted.provider.say("a");
    expect(await reading).toContain('"error"');
    await owned.sql`UPDATE instances SET alive = true`;
    await expectOver(scripted);
    expect(await billOf(scripted.hold)).toBeUndefined();
    expect(scripted.log.costNano).toBeUndefined();
  });
});
