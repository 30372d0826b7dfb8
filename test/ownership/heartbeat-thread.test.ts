import { afterEach, beforeEach, expect, test } from "bun:test";
import { join } from "node:path";
import { INSTANCE_LEASE_MS, insertInstance } from "../../db/queries/instances.ts";
import { HeartbeatThread } from "../../src/platform/cluster/heartbeat-thread.ts";
import { type OpenTestDatabase, openTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

const TIMEOUT_MS = 60_000;
const STALL_MS = INSTANCE_LEASE_MS + 2_500;

let database: OpenTestDatabase;
const members: Member[] = [];
beforeEach(async () => {
  database = await openTestDatabase(2);
});
afterEach(async () => {
  for (const { child } of members.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
  await database.drop();
});

interface Member {
  readonly id: string;
  readonly child: Bun.Subprocess<"ignore", "pipe", "inherit">;
  said(): string;
}

async function enter(name: string, stallMs: number, maxStallMs: number): Promise<Member> {
  const script = join(import.meta.dir, "stalling-instance.ts");
  const child = Bun.spawn(
    [process.execPath, script, database.url, name, String(stallMs), String(maxStallMs)],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  let said = "";
  void (async () => {
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) said += decoder.decode(bytes);
  })();
  const member = { id: `ins_${name}`, child, said: () => said };
  members.push(member);
  await until(`${name} is a member`, () => said.includes("member"));
  return member;
}

async function isAlive({ id }: Member): Promise<boolean> {
  const [row] = await database.sql<
    { alive: boolean }[]
  >`SELECT alive FROM instances WHERE id = ${id}`;
  return row!.alive;
}

test(
  "an instance whose loop stands still for longer than its lease is not declared dead, and knows it",
  async () => {
    await enter("watching", 0, 20_000);
    const stalling = await enter("stalling", STALL_MS, 20_000);
    await until("its loop turns again", () => stalling.said().includes("current "), 20_000);
    expect(stalling.said()).toContain("current true");
    expect(await isAlive(stalling)).toBeTrue();
    stalling.child.kill("SIGTERM");
    expect(await stalling.child.exited).toBe(0);
    expect(await isAlive(stalling)).toBeFalse();
  },
  TIMEOUT_MS,
);

test("a heartbeat of the thread counts from its beginning, however late the thread was started", async () => {
  const instance = { id: "ins_own", epoch: 1n };
  await insertInstance(database.sql, instance);
  const errors: unknown[] = [];
  const target = { url: database.url };
  const thread = new HeartbeatThread({ target, instance, onError: (error) => errors.push(error) });
  const startedMs = performance.now();
  thread.start();
  try {
    await until("it has beaten", () => Number.isFinite(thread.ageMs()));
    // This process began long before its thread.
    expect(thread.ageMs()).toBeLessThanOrEqual(performance.now() - startedMs);
    expect(errors).toEqual([]);
  } finally {
    thread.stop();
  }
});

test(
  "an instance whose loop stands still for good is declared dead, and writes nothing when it wakes",
  async () => {
    await enter("watching", 0, 20_000);
    const stalling = await enter("stalling", STALL_MS + 4_000, 1_000);
    await until("it is declared dead", async () => !(await isAlive(stalling)), 15_000);
    await until("its loop turns again", () => stalling.said().includes("current "), 20_000);
    expect(stalling.said()).toContain("current false");
    expect(await stalling.child.exited).toBe(1);
  },
  TIMEOUT_MS,
);

test(
  "an instance that is stopped as a whole is declared dead although its thread would beat",
  async () => {
    await enter("watching", 0, 20_000);
    const stopped = await enter("stopped", 0, 20_000);
    await Bun.sleep(2_500);
    stopped.child.kill("SIGSTOP");
    await until("it is declared dead", async () => !(await isAlive(stopped)), 15_000);
    stopped.child.kill("SIGCONT");
    expect(await stopped.child.exited).toBe(1);
  },
  TIMEOUT_MS,
);
