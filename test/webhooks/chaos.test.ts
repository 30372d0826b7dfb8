import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { addHook, addOrganization, emit } from "./many-hooks.ts";
import { type OwnerProcess, startOwner } from "./owner-process.ts";
import { type Fault, startUnrulyReceiver, type UnrulyReceiver } from "./unruly-receiver.ts";

/** GATEWAY_TEST_DELIVERY_EVENTS=10000 is the full length. */
const EVENTS = Number(process.env.GATEWAY_TEST_DELIVERY_EVENTS ?? 400);
const IS_FULL = EVENTS >= 10_000;
const ORGANIZATIONS = 10;
const HOOKS_OF_EACH = 5;
/** Only what hangs takes so long, also on a machine with much else to do. */
const ATTEMPT_TIMEOUT_MS = 1_000;
/** Past the lease of an instance, so that others take over meanwhile. */
const PAUSE_MS = 4_000;
const FAULTS: readonly Fault[] = ["500", "429", "reset", "500", "429", "hang"];
const FAULT_SHARE = 0.1;

let database: OpenTestDatabase;
let sql: Database;
beforeAll(async () => {
  database = await openTestDatabase(ORGANIZATIONS);
  ({ sql } = database);
});
afterAll(() => database.drop());

const pick = (): Fault | undefined =>
  Math.random() < FAULT_SHARE ? FAULTS[Math.floor(Math.random() * FAULTS.length)] : undefined;

/** Events of one organization follow one another: each is emitted once the one before is committed. */
async function emitAll(organizationId: string, count: number, overMs: number): Promise<void> {
  const beganMs = performance.now();
  for (let number = 0; number < count; number++) {
    await emit(sql, organizationId, [number]);
    const aheadMs = (overMs * number) / count - (performance.now() - beganMs);
    if (aheadMs > 0) await Bun.sleep(aheadMs);
  }
}

/** Kills and pauses owners, and starts others in their place, until it is told to stop. */
async function disturb(owners: OwnerProcess[], isOver: () => boolean): Promise<string[]> {
  const done: string[] = [];
  while (!isOver() || done.length < 2) {
    const victim = owners.shift()!;
    if (done.length % 2 === 0) {
      victim.pause();
      await Bun.sleep(PAUSE_MS);
      victim.resume();
      owners.push(victim);
      done.push("pause");
    } else {
      await victim.kill();
      owners.push(await startOwner(database.url, ATTEMPT_TIMEOUT_MS));
      done.push("kill");
    }
  }
  return done;
}

test(`through failing receivers and owners that die or stand still, ${EVENTS} events arrive in their order, and none is lost`, async () => {
  const receivers: UnrulyReceiver[] = [];
  const organizations: string[] = [];
  for (let i = 0; i < ORGANIZATIONS; i++) {
    const organizationId = await addOrganization(sql);
    organizations.push(organizationId);
    for (let hook = 0; hook < HOOKS_OF_EACH; hook++) {
      const receiver = await startUnrulyReceiver(pick);
      receivers.push(receiver);
      await addHook(sql, organizationId, receiver.url, receiver.secret);
    }
  }
  const owners = await Promise.all(
    Array.from({ length: 3 }, () => startOwner(database.url, ATTEMPT_TIMEOUT_MS)),
  );
  try {
    const count = EVENTS / ORGANIZATIONS;
    let isOver = false;
    const disturbing = disturb(owners, () => isOver);
    const emitMs = IS_FULL ? 60_000 : 3_000;
    await Promise.all(organizations.map((id) => emitAll(id, count, emitMs)));
    isOver = true;
    const disturbances = await disturbing;
    await until(
      "everything is accepted",
      () => receivers.every(({ accepted }) => accepted.size === count),
      IS_FULL ? 240_000 : 60_000,
    );
    const inOrder = Array.from({ length: count }, (_, number) => number);
    for (const { firsts, badSignatures } of receivers) {
      expect(firsts).toEqual(inOrder);
      expect(badSignatures).toBe(0);
    }
    await until(
      "every result is written",
      async () => {
        const [left] =
          await sql`SELECT count(*)::int AS count FROM deliveries WHERE status <> 'delivered'`;
        return left!.count === 0;
      },
      15_000,
    );
    const [hooks] = await sql`SELECT count(*)::int AS count FROM webhooks WHERE NOT enabled`;
    expect(hooks!.count).toBe(0);
    if (IS_FULL) report(receivers, count, disturbances);
  } finally {
    await Promise.all(owners.map((owner) => owner.stop()));
    await Promise.all(receivers.map((receiver) => receiver.stop()));
  }
}, 600_000);

function report(receivers: readonly UnrulyReceiver[], count: number, disturbances: string[]): void {
  const requests = receivers.reduce((sum, receiver) => sum + receiver.requests, 0);
  const duplicates = receivers.reduce((sum, receiver) => sum + receiver.duplicates, 0);
  const recorded = receivers.length * count;
  console.log(
    `${recorded} deliveries of ${EVENTS} events, ${requests} requests, ${duplicates} duplicates, ${disturbances.length} disturbances: order violations 0, lost 0, bad signatures 0`,
  );
}
