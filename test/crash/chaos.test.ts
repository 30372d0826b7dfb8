import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { Redis } from "ioredis";
import { connectDatabase, type Database } from "../../db/client.ts";
import { setCreditLimit } from "../../db/queries/credit-commands.ts";
import { hashApiKey } from "../../src/lib/api-key-format.ts";
import { findRedisBinary } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { seededRandom } from "../upstream/random.ts";
import { auditOf } from "./audit.ts";
import { look } from "./books.ts";
import { type ClusteredGrounds, openClusteredGrounds } from "./clustered-grounds.ts";
import { Disasters, QUIET_TIMEOUT_MS } from "./disasters.ts";
import { chargeOf } from "./kinds.ts";
import { Load, type Sent } from "./load.ts";
import { createPoorOrganization } from "./poor-organization.ts";
import { staleWrites } from "./stale-writes.ts";

/*
 * Three gateways under load, for so many seconds: killed and paused, their connections to Postgres and Redis
 * cut and their statements cancelled, keys switched off and on, budgets and credit limits changed. All the
 * time balances are looked at; in the end the books are held against what the clients have seen.
 * GATEWAY_TEST_CHAOS_SECONDS=600 is the long run.
 */
const SECONDS = Number(process.env.GATEWAY_TEST_CHAOS_SECONDS ?? 4);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
/** What is kept in memory of requests and of the upstream's calls is looked through this often. */
const AUDIT_SECONDS = 30;
const INSTANCES = 3;
const WORKERS = 16;
const SAMPLE_MS = 25;
const TROUBLE_MS = { least: 20, most: 250 };
/** Between two deaths; a pause takes longer than a lease. */
const DEATH_MS = { least: 1_500, most: 6_000 };
const SETTLING_MS = 1_500;
const TIMEOUT_MS = 120_000 + SECONDS * 3_000;
const ROUND_NANO = chargeOf(0, 600);

const redisBinary = await findRedisBinary();

const newFigures = () => ({
  seed: SEED,
  seconds: SECONDS,
  kills: 0,
  pauses: 0,
  cancelled: 0,
  cut: 0,
  redisCuts: 0,
  keyChanges: 0,
  limitChanges: 0,
  samples: 0,
  requests: 0,
  whole: 0,
  replays: 0,
  refused: 0,
  charges: 0,
  statuses: {} as Record<string, number>,
});

describe.skipIf(redisBinary === null)("three gateways in trouble of every kind", () => {
  let grounds: ClusteredGrounds;
  let sql: Database;
  let redis: Redis;
  let load: Load;
  /** Keys that are valid all the time, and one that is switched off and on. */
  let keys: { rich: string; limited: string; poor: string; switched: string };
  let ids: { limited: string; switched: string };
  let poorOrganization: string;
  /** Budgets may be lowered below what is spent: spend is bounded by the highest that was in force. */
  let highestBudgetUsd: number;
  let violations: string[];
  let figures: ReturnType<typeof newFigures>;
  let random: () => number;

  // A second attempt has gateways, books and clients of its own.
  beforeEach(async () => {
    highestBudgetUsd = 0;
    violations = [];
    figures = newFigures();
    random = seededRandom(SEED);
    grounds = await openClusteredGrounds(redisBinary!, INSTANCES);
    const { cluster } = grounds;
    sql = connectDatabase(
      { url: cluster.databaseUrl },
      { poolSize: 3, applicationName: "troublemaker" },
    );
    redis = new Redis(grounds.redis.url);
    redis.on("error", () => {});
    const limited = await createKey({ name: "Limited", monthly_budget_usd: 0 });
    const switched = await createKey({ name: "Switched" });
    const poor = createPoorOrganization(cluster.environment, 0n).secret;
    ids = { limited: limited.id, switched: switched.id };
    keys = { rich: cluster.secretKey, limited: limited.key, poor, switched: switched.key };
    const [row] = await sql<{ id: string }[]>`
      SELECT organization_id AS id FROM api_keys WHERE key_hash = ${hashApiKey(poor)}`;
    poorOrganization = row!.id;
    load = new Load({
      workers: WORKERS,
      random: seededRandom(SEED + 1),
      keys: Object.values(keys).map((secret, place) => ({ secret, weight: place === 0 ? 5 : 1 })),
    });
  }, TIMEOUT_MS);
  afterEach(async () => {
    redis?.disconnect();
    await sql?.end({ timeout: 1 });
    await grounds?.clear();
  }, TIMEOUT_MS);

  const between = ({ least, most }: { least: number; most: number }) =>
    least + random() * (most - least);

  /** Undefined where the gateway that was asked is down or without its database. */
  async function manage(method: string, path: string, body: object) {
    const { instances, cluster } = grounds;
    const { baseUrl } = instances[Math.floor(random() * instances.length)]!;
    const response = await fetch(`${baseUrl}${path}`, {
      method,
      keepalive: false,
      headers: {
        authorization: `Bearer ${cluster.managementKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    }).catch(() => undefined);
    if (response === undefined) return undefined;
    const text = await response.text().catch(() => "");
    if (response.ok) return JSON.parse(text) as { id: string; key?: string };
    if (response.status < 500) violations.push(`${method} ${path}: ${response.status} ${text}`);
    return undefined;
  }

  /** Creates a key. A gateway that has just started may refuse it on a busy machine, so this asks again. */
  function createKey(body: object): Promise<{ id: string; key: string }> {
    return until("a key is created", async () => {
      const created = await manage("POST", "/v1/keys", body);
      return created?.key === undefined ? undefined : { id: created.id, key: created.key };
    });
  }

  /** A start whose statement is cancelled ends, for its supervisor to try again: young sessions are spared. */
  const sparedSeconds = () => 2 + grounds.startingMs() / 1_000;

  const troubles = {
    async cancelled() {
      const rows = await sql`SELECT pg_cancel_backend(pid) FROM (
        SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'gateway-%' AND state <> 'idle'
          AND backend_start < now() - make_interval(secs => ${sparedSeconds()})
        ORDER BY random() LIMIT 2) AS chosen`;
      figures.cancelled += rows.length;
    },
    async cut() {
      const rows = await sql`SELECT pg_terminate_backend(pid) FROM (
        SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'gateway-%'
          AND backend_start < now() - make_interval(secs => ${sparedSeconds()})
        ORDER BY random() LIMIT 1) AS chosen`;
      figures.cut += rows.length;
    },
    async redisCut() {
      await redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      figures.redisCuts++;
    },
    async switchedOff() {
      const changed = await manage("PATCH", `/v1/keys/${ids.switched}`, {
        is_active: random() < 0.5,
      });
      if (changed) figures.keyChanges++;
    },
    async budget() {
      const budgetUsd = (Number(ROUND_NANO) * Math.floor(random() * 200)) / 1e9;
      highestBudgetUsd = Math.max(highestBudgetUsd, budgetUsd);
      const path = `/v1/keys/${ids.limited}`;
      if (await manage("PATCH", path, { monthly_budget_usd: budgetUsd })) figures.keyChanges++;
    },
    async creditLimit() {
      const limit = ROUND_NANO * BigInt(Math.floor(random() * 100));
      await sql.begin((transaction) => setCreditLimit(transaction, poorOrganization, limit));
      figures.limitChanges++;
    },
  };
  const OFTEN = ["cancelled", "cancelled", "cancelled", "cut", "redisCut"] as const;
  const ALL = [...OFTEN, "switchedOff", "budget", "creditLimit"] as const;

  async function makeTrouble(untilMs: number): Promise<void> {
    while (performance.now() < untilMs) {
      await Bun.sleep(between(TROUBLE_MS));
      await troubles[ALL[Math.floor(random() * ALL.length)]!]();
    }
  }

  async function bringDeath(untilMs: number): Promise<void> {
    const disasters = new Disasters(grounds, load, random);
    while (performance.now() < untilMs) {
      await Bun.sleep(Math.min(between(DEATH_MS), (SECONDS * 1_000) / 3));
      const isKill = figures.kills <= figures.pauses;
      if (isKill) await disasters.kill();
      else await disasters.pause();
      figures[isKill ? "kills" : "pauses"]++;
      load.open(...grounds.urls());
    }
  }

  /** M1 at every moment, not only in the end. */
  async function watchBalances(isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const below =
        await sql`SELECT id, credit_nano, credit_limit_nano, posted_nano, held_nano FROM accounts
        WHERE kind = 'org' AND credit_nano + credit_limit_nano < posted_nano + held_nano
          OR posted_nano < 0 OR held_nano < 0`;
      for (const row of below) violations.push(`M1 ${JSON.stringify(row, textOfInteger)}`);
      figures.samples++;
      await Bun.sleep(SAMPLE_MS);
    }
  }

  async function quiet(): Promise<void> {
    load.close();
    while (load.pending > 0) await Bun.sleep(5);
    await until(
      "no hold and no attempt is left",
      async () => {
        const [left] = await sql<{ count: number }[]>`
          SELECT (SELECT count(*) FROM holds)::int + (SELECT count(*) FROM attempts)::int AS count`;
        return left!.count === 0;
      },
      QUIET_TIMEOUT_MS,
    );
    // Refunds of charges that were posted behind the failure of their calls.
    await Bun.sleep(SETTLING_MS);
  }

  async function audit(): Promise<void> {
    const { databaseUrl, upstream } = grounds.cluster;
    const finished = load.takeFinished();
    const switchedOff = new Set(
      finished
        .filter(({ key, errorCode }) => key === keys.switched && errorCode === "key_inactive")
        .map(({ tag }) => `${tag} (`),
    );
    const found = await auditOf(databaseUrl, upstream, finished, count);
    found.push(...(await look(databaseUrl, staleWrites)));
    for (const { tag, key, status, errorCode } of finished) {
      if (key === keys.rich && status === 402) found.push(`M5 ${tag}: refused with 402`);
      const isRefusedKey = status === 401 || status === 403 || status === 404;
      if (key !== keys.switched && isRefusedKey) {
        found.push(`${tag}: a valid key was refused with ${status} ${errorCode}`);
      }
    }
    const isExpected = (one: string) =>
      one.startsWith(`M1 a key spent more than its budget: {"id":"month:${ids.limited}:`) ||
      (one.endsWith("refused: key_inactive") &&
        [...switchedOff].some((tag) => one.startsWith(tag)));
    violations.push(...found.filter((one) => !isExpected(one)));
    const [spent] = await sql<{ nano: string }[]>`SELECT coalesce(max(posted_nano), 0)::text AS nano
      FROM accounts WHERE kind = 'month' AND key_id = ${ids.limited}`;
    if (Number(spent!.nano) > Math.round(highestBudgetUsd * 1e9)) {
      violations.push(`M1 the limited key spent ${spent!.nano} of at most ${highestBudgetUsd} USD`);
    }
  }

  function count({ isReplay, isWhole, status, errorCode }: Sent, charges: number): void {
    figures.requests++;
    figures.charges += charges;
    if (isReplay) figures.replays++;
    if (isWhole) figures.whole++;
    else if (status !== undefined && status !== 200) figures.refused++;
    const outcome = isWhole ? "whole" : `${status ?? "none"} ${errorCode ?? ""}`.trim();
    figures.statuses[outcome] = (figures.statuses[outcome] ?? 0) + 1;
  }

  test(
    `for ${SECONDS} s of trouble no balance is overspent, no valid key refused, and every answer charged once`,
    async () => {
      let isOver = false;
      const watching = watchBalances(() => isOver);
      const endMs = performance.now() + SECONDS * 1_000;
      while (performance.now() < endMs) {
        const partEndMs = Math.min(endMs, performance.now() + AUDIT_SECONDS * 1_000);
        load.open(...grounds.urls());
        await Promise.all([makeTrouble(partEndMs), bringDeath(partEndMs)]);
        await quiet();
        await audit();
      }
      load.open(...grounds.urls());
      await load.end();
      await quiet();
      await audit();
      isOver = true;
      await watching;
      console.log(JSON.stringify(figures));
      expect(violations).toEqual([]);
      expect(figures.whole).toBeGreaterThan(SECONDS);
      // Which kinds of trouble fall into a few seconds is chance.
      expect(figures.cancelled + figures.cut + figures.redisCuts).toBeGreaterThan(0);
      if (SECONDS >= 60) expect(figures.cancelled).toBeGreaterThan(0);
      expect(figures.kills).toBeGreaterThan(0);
    },
    TIMEOUT_MS,
  );
});

const textOfInteger = (_: string, value: unknown) =>
  typeof value === "bigint" ? value.toString() : value;
