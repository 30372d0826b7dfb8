import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { hashApiKey } from "../../src/lib/api-key-format.ts";
import { findRedisBinary } from "../support/redis.ts";
import { until } from "../support/until.ts";
import { seededRandom } from "../upstream/random.ts";
import { type Receiver, startReceiver } from "../webhooks/receiver.ts";
import { auditOf } from "./audit.ts";
import { look } from "./books.ts";
import { type ClusteredGrounds, openClusteredGrounds } from "./clustered-grounds.ts";
import { Disasters, QUIET_TIMEOUT_MS } from "./disasters.ts";
import { chargeOf, holdOf, KINDS } from "./kinds.ts";
import { Load, receive, type Sent, sentOf } from "./load.ts";
import { createPoorOrganization } from "./poor-organization.ts";
import { staleWrites, writesJudged } from "./stale-writes.ts";

/*
 * Three gateways under load on one database: again and again one of them is killed or stands still for
 * longer than its lease, or Redis comes back empty, or the database dies. After each time the books are
 * held against what the clients have seen.
 */

/** 100 is the full proof. */
const ROUNDS = Number(process.env.GATEWAY_TEST_SEVERAL_ROUNDS ?? 4);
const SEED = Number(process.env.GATEWAY_TEST_CRASH_SEED ?? Date.now() % 1_000_000);
const TIMEOUT_MS = 90_000 + ROUNDS * 20_000;
const INSTANCES = 3;
const WORKERS = 24;
/** What the limited key and the poor organization may spend a round, less than what they are asked for. */
const ROUND_NANO = chargeOf(0, 600);
const EVENTS = ["budget.threshold", "budget.exhausted", "completion.error"];

const PLAIN = KINDS.find(({ name }) => name === "plain")!;
const redisBinary = await findRedisBinary();

const newFigures = () => ({
  seed: SEED,
  rounds: { kill: 0, pause: 0, redis: 0, database: 0 },
  requests: 0,
  whole: 0,
  replays: 0,
  refused: 0,
  streamsCut: 0,
  charges: 0,
  probes: 0,
  probesRefused: 0,
  slowestQuietMs: 0,
  deliveries: 0,
  writesJudged: 0,
  violations: 0,
});

describe.skipIf(redisBinary === null)("three gateways", () => {
  let grounds: ClusteredGrounds;
  let receiver: Receiver;
  let load: Load;
  let poorKeys: readonly string[];
  let limitedId: string;
  let figures: ReturnType<typeof newFigures>;
  let random: () => number;

  // A second attempt has gateways, books and clients of its own.
  beforeEach(async () => {
    figures = newFigures();
    random = seededRandom(SEED);
    grounds = await openClusteredGrounds(redisBinary!, INSTANCES);
    receiver = startReceiver();
    const limited = await manage("POST", "/v1/keys", { name: "Limited", monthly_budget_usd: 0 });
    limitedId = limited.id;
    await manage("POST", "/v1/webhooks", { url: receiver.url, events: EVENTS });
    const poor = createPoorOrganization(grounds.cluster.environment, 0n);
    poorKeys = [limited.key!, poor.secret];
    load = new Load({
      workers: WORKERS,
      random: seededRandom(SEED + 1),
      keys: [
        { secret: grounds.cluster.secretKey, weight: 6 },
        ...poorKeys.map((secret) => ({ secret, weight: 1 })),
      ],
    });
  }, TIMEOUT_MS);
  afterEach(async () => {
    await receiver?.stop();
    await grounds?.clear();
  }, TIMEOUT_MS);

  async function manage(
    method: string,
    path: string,
    body: object,
  ): Promise<{ id: string; key?: string }> {
    const { instances, cluster } = grounds;
    const response = await fetch(`${instances[0]!.baseUrl}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.managementKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    });
    expect(response.ok).toBeTrue();
    return (await response.json()) as { id: string; key?: string };
  }

  /** Each round has its own little money, so that its end is met in every one. */
  async function giveMoney(round: number): Promise<void> {
    const budgetUsd = (Number(ROUND_NANO) * round) / 1e9;
    await manage("PATCH", `/v1/keys/${limitedId}`, { monthly_budget_usd: budgetUsd });
    await look(
      grounds.cluster.databaseUrl,
      (sql) => sql`SELECT ledger_post_credit(${`txn_round_${round}`}, organization_id, 'topup',
        ${ROUND_NANO}, 'A round', 0) FROM api_keys WHERE key_hash = ${hashApiKey(poorKeys[1]!)}`,
    );
  }

  /** Waits until nothing runs and nothing is held, what the dead have left included. */
  async function quiet(): Promise<void> {
    const sinceMs = performance.now();
    while (load.pending > 0) await Bun.sleep(5);
    await until(
      "no hold and no attempt is left",
      () =>
        look(grounds.cluster.databaseUrl, async (sql) => {
          const [left] = await sql<{ count: number }[]>`
            SELECT (SELECT count(*) FROM holds)::int + (SELECT count(*) FROM attempts)::int AS count`;
          return left!.count === 0;
        }),
      QUIET_TIMEOUT_MS,
    );
    const tookMs = Math.round(performance.now() - sinceMs);
    figures.slowestQuietMs = Math.max(figures.slowestQuietMs, tookMs);
  }

  const audit = async (finished: readonly Sent[]) => {
    const { databaseUrl, upstream, secretKey } = grounds.cluster;
    const violations = await auditOf(databaseUrl, upstream, finished, count);
    violations.push(...(await look(databaseUrl, staleWrites)));
    // Of what the rich one is refused for want of money, all was refused wrongly.
    for (const { tag, key, status } of finished) {
      if (key === secretKey && status === 402) violations.push(`M5 ${tag}: refused with 402`);
    }
    return violations;
  };

  function count(sent: Sent, charges: number): void {
    figures.requests++;
    figures.charges += charges;
    if (sent.isReplay) figures.replays++;
    if (sent.isWhole) figures.whole++;
    else if (sent.status !== undefined && sent.status !== 200) figures.refused++;
    else if (sent.kind.stream && sent.wasCut) figures.streamsCut++;
  }

  /** What the key's account, or its organization's, has left. */
  async function leftOf(secret: string): Promise<bigint> {
    return look(grounds.cluster.databaseUrl, async (sql) => {
      const [row] = await sql<{ left: bigint }[]>`
        SELECT least(o.credit_nano - o.posted_nano - o.held_nano,
          k.monthly_budget_nano - coalesce(m.posted_nano + m.held_nano, 0))::bigint AS left
        FROM api_keys k JOIN accounts o ON o.id = 'org:' || k.organization_id
        LEFT JOIN accounts m ON m.key_id = k.id AND m.kind = 'month'
        WHERE k.key_hash = ${hashApiKey(secret)}`;
      return row!.left;
    });
  }

  /** While nothing else runs, a request is served where its money is there, and refused where it is not. */
  async function probe(): Promise<string[]> {
    const wrong: string[] = [];
    for (const [n, secret] of poorKeys.entries()) {
      for (const baseUrl of grounds.urls()) {
        const isPaidFor = (await leftOf(secret)) >= holdOf(PLAIN);
        const sent = sentOf(`probe-${figures.probes++}`, PLAIN);
        await receive(sent, baseUrl, secret);
        if (!isPaidFor) figures.probesRefused++;
        if (sent.status !== (isPaidFor ? 200 : 402)) {
          wrong.push(`M5 key ${n} got ${sent.status}, with ${isPaidFor} money for it`);
        }
      }
    }
    return wrong;
  }

  test(
    `${ROUNDS} deaths under load: the books are right after each, and the dead write nothing`,
    async () => {
      const disasters = new Disasters(grounds, load, random);
      const names = Object.keys(figures.rounds) as (keyof typeof figures.rounds)[];
      const violations: string[] = [];
      for (let round = 1; round <= ROUNDS; round++) {
        const name = names[(round - 1) % names.length]!;
        await giveMoney(round);
        load.open(...grounds.urls());
        await disasters.someLoad();
        await disasters[name]();
        load.close();
        await quiet();
        const broken = await audit(load.takeFinished());
        broken.push(...(await probe()));
        violations.push(...broken.map((one) => `round ${round}, ${name}: ${one}`));
        figures.rounds[name]++;
      }
      load.open(...grounds.urls());
      await load.end();
      await quiet();
      violations.push(...(await audit(load.takeFinished())));
      violations.push(...(await probe()));
      await until("the webhook's events have gone out", allDelivered, QUIET_TIMEOUT_MS);
      figures.deliveries = receiver.received.length;
      figures.writesJudged = await look(grounds.cluster.databaseUrl, writesJudged);
      figures.violations = violations.length;
      console.log(JSON.stringify(figures));
      expect(violations).toEqual([]);
      expect(figures.streamsCut).toBeGreaterThan(0);
      expect(figures.whole).toBeGreaterThan(ROUNDS * 5);
      expect(figures.writesJudged).toBeGreaterThan(figures.charges);
    },
    TIMEOUT_MS,
  );

  const allDelivered = () =>
    look(grounds.cluster.databaseUrl, async (sql) => {
      const [row] = await sql`SELECT count(*)::int AS missing FROM outbox o
        JOIN webhooks w USING (organization_id)
        WHERE o.type IN ${sql(EVENTS)} AND NOT EXISTS (SELECT 1 FROM deliveries d
          WHERE d.outbox_id = o.id AND d.webhook_id = w.id AND d.status = 'delivered')`;
      return row!.missing === 0;
    });
});
