import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { openConnections } from "../../src/main/compose/base.ts";
import { type ClusterNode, createClusterNode } from "../../src/main/compose/cluster-node.ts";
import { ChangeFeed } from "../../src/platform/cluster/change-feed.ts";
import { createTelemetry } from "../../src/platform/telemetry/create-telemetry.ts";
import { type CuttingProxy, startCuttingProxy } from "../support/cutting-proxy.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

let database: OpenTestDatabase;
let sql: Database;
const members: Member[] = [];
beforeAll(async () => {
  database = await openTestDatabase(1);
  ({ sql } = database);
});
afterAll(async () => {
  for (const { node, network, close } of members) {
    await node.leave().catch(() => {});
    await close();
    await network.stop();
  }
  await database.drop();
});

interface Member {
  readonly id: string;
  readonly node: ClusterNode;
  readonly network: CuttingProxy;
  isFenced(): boolean;
  close(): Promise<unknown>;
}

/** One of several instances, in this process, with a network of its own to the database. */
async function addMember(): Promise<Member> {
  const network = await startCuttingProxy(database.url);
  let isFenced = false;
  const id = newId("ins");
  const connections = openConnections(
    { url: network.url },
    {
      instance: { id, epoch: 1n },
      poolSize: 2,
      clock: systemClock,
      ledgerSettings: {},
      onRenewed() {},
    },
  );
  const node = createClusterNode({
    connections,
    instance: { id, epoch: 1n },
    deploymentMode: "clustered",
    clock: systemClock,
    telemetry: createTelemetry({ level: "silent" }),
    changes: new ChangeFeed({ sql: connections.lock, onUnknownKind() {} }),
    onFenced() {
      isFenced = true;
    },
    onError() {},
    cleaningTasks: [],
  });
  await node.enter();
  await node.start();
  const member = { id, node, network, isFenced: () => isFenced, close: connections.close };
  members.push(member);
  return member;
}

test("an outage of the database is nobody's death: those who come back later live on, and keep what they own", async () => {
  const [early, late] = [await addMember(), await addMember()];
  const [lease] = await late.node.ownership.claim("webhook", ["one"]);
  await until(
    "both may judge others",
    () => members.every(({ node }) => node.membership.lease.mayJudgeOthers),
    INSTANCE_LEASE_MS + 10_000,
  );
  for (const { network } of members) network.breakDown();
  await until(
    "both are past their leases",
    () => members.every(({ node }) => !node.membership.lease.isCurrent),
    INSTANCE_LEASE_MS + 10_000,
  );
  expect(late.node.ownership.isHeld(lease!)).toBeFalse();
  early.network.restore();
  await until("the first one is back", () => early.node.membership.isFresh);
  // It sees a heartbeat of the other one that is older than a lease, and work that seems to be free.
  expect(await early.node.ownership.claim("webhook", ["one"])).toEqual([]);
  await Bun.sleep(600);
  late.network.restore();
  await until("the other one is back", () => late.node.membership.isFresh);
  expect(late.node.ownership.isHeld(lease!)).toBeTrue();
  expect(await sql`SELECT id FROM instances WHERE NOT alive`).toEqual([] as never);
  expect(members.map(({ isFenced }) => isFenced())).toEqual([false, false]);
  await until("each counts two", () =>
    members.every(({ node }) => node.membership.liveInstances().length === 2),
  );
}, 60_000);
