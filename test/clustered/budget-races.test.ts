import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateApiKey, hashApiKey } from "../../src/lib/api-key-format.ts";
import { brokenRules, look } from "../crash/books.ts";
import { createPoorOrganization } from "../crash/poor-organization.ts";
import { type Flood, flood, type Outcome } from "../money/money-flood.ts";
import {
  EXACT_TOKENS,
  MONEY_BEHAVIOURS,
  moneyConfiguration,
  ROOMY_TOKENS,
  TOKEN_CHARGE_NANO,
} from "../money/money-gateway.ts";
import { findTestRedis } from "../support/redis.ts";
import { StripeServer } from "../support/stripe-server.ts";
import { until } from "../support/until.ts";
import { type Cluster, type Instance, openCluster } from "./cluster.ts";

/* Three processes, and more requests at once than there is money for. */

/** Of requests whose hold is 20 times their charge; 30 shows the same at the pace of a busy key. */
const ARRIVAL_SECONDS = Number(process.env.GATEWAY_TEST_ARRIVAL_SECONDS ?? 3);
const TIMEOUT_MS = 60_000 + ARRIVAL_SECONDS * 1_000;
const SETTLED_MS = 15_000;
/** A change reaches every instance within a second; the rest is for asking them on a loaded machine. */
const KNOWN_MS = 3_000;
const REQUESTS = 2_000;
const PAID_REQUESTS = 200;
const EXACT_NANO = BigInt(EXACT_TOKENS) * TOKEN_CHARGE_NANO;
const ROOMY_NANO = BigInt(ROOMY_TOKENS) * TOKEN_CHARGE_NANO;
/** Tokens that a request of "hi" is admitted with. */
const EXACT_BOUND = 26 + EXACT_TOKENS;
const EXACT = { model: "test/exact", max_tokens: EXACT_TOKENS };
/** Held like the others, and never answered. */
const SILENT = { model: "test/silent", max_tokens: EXACT_TOKENS };
/** What the one that is killed holds until then. */
const HELD_REQUESTS = 60;
/** A limit of 20 times what it gives. */
const ROOMY = { model: "test/roomy" };
const OPERATOR_KEY = generateApiKey("operator").key;
const redis = await findTestRedis();

describe.skipIf(redis === undefined)("three gateways and money for 200 of 2,000 requests", () => {
  const folder = mkdtempSync(join(tmpdir(), "gateway-races-"));
  const stripe = new StripeServer();
  let cluster: Cluster;
  let instances: Instance[];
  beforeAll(async () => {
    const configPath = join(folder, "gateway.config.json");
    cluster = await openCluster(redis!.url, {
      GATEWAY_CONFIG: configPath,
      GATEWAY_OPERATOR_KEY: OPERATOR_KEY,
      ...stripe.environment,
    });
    for (const [model, behaviour] of MONEY_BEHAVIOURS) {
      await cluster.upstream.behave(model, behaviour);
    }
    writeFileSync(configPath, JSON.stringify(moneyConfiguration(cluster.upstream.baseUrl)));
    const first = await cluster.start();
    instances = [first, ...(await Promise.all([cluster.start(), cluster.start()]))];
  }, TIMEOUT_MS);
  afterAll(async () => {
    await cluster?.stop();
    await stripe.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  test(
    "and tokens a minute for some of them admit no more than those, whichever instance is asked",
    async () => {
      const limit = 100 * EXACT_BOUND;
      const created = await fetch(`${instances[0]!.baseUrl}/v1/keys`, {
        method: "POST",
        headers: {
          authorization: `Bearer ${cluster.managementKey}`,
          "content-type": "application/json",
        },
        body: JSON.stringify({ name: crypto.randomUUID(), rate_limit_tpm: limit }),
      });
      const { key } = (await created.json()) as { key: string };
      const outcomes = await flood(instances, { key, body: EXACT, requests: REQUESTS });
      const admitted = successesOf(outcomes, "rate_limit_exceeded", 429);
      const { tokens } = await spentOf({ key });
      console.info(`${admitted} of ${REQUESTS} admitted, ${tokens} of ${limit} tokens used`);
      // Each counts for its bound while it runs, so as many fit at least; apart an instance has a third of the limit.
      expect(admitted).toBeGreaterThanOrEqual(3 * Math.floor(limit / 3 / EXACT_BOUND));
      expect(tokens).toBeLessThanOrEqual(limit);
      // An instance that was too busy for Redis gives back what counts twice when it has caught up.
      await until(
        "every instance leaves what was not used",
        async () =>
          (await Promise.all(instances.map((one) => tokensLeft(one, key)))).every(
            (left) => left === limit - tokens,
          ),
        SETTLED_MS,
      );
    },
    TIMEOUT_MS,
  );

  async function tokensLeft({ baseUrl }: Instance, key: string): Promise<number> {
    const own = await fetch(`${baseUrl}/v1/key`, { headers: { authorization: `Bearer ${key}` } });
    return ((await own.json()) as { remaining_tpm: number }).remaining_tpm;
  }

  /** Who spends: by which keys, and with which fields of their requests. */
  interface Payer {
    readonly key: string | readonly string[];
    readonly fields?: { readonly user: string };
  }

  async function manage(
    method: string,
    path: string,
    body: object,
  ): Promise<{ id: string; key: string }> {
    const response = await fetch(`${instances[0]!.baseUrl}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${cluster.managementKey}`,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
    });
    expect(response.ok).toBe(true);
    return (await response.json()) as { id: string; key: string };
  }

  const addKey = async (settings: object = {}) =>
    (await manage("POST", "/v1/keys", { name: crypto.randomUUID(), ...settings })).key;

  /** The budget of a user of three keys, which every instance knows of. */
  async function userWith(nano: bigint): Promise<Payer> {
    const key = await Promise.all([addKey(), addKey(), addKey()]);
    const fields = { user: crypto.randomUUID() };
    const subject = { type: "user", value: fields.user };
    const ask = (instance: Instance) =>
      flood(instance, { key, body: { ...EXACT, ...fields }, requests: 1 });
    // Each knows of it as of one that has no budget.
    await Promise.all(instances.map(ask));
    const { id } = await manage("POST", "/v1/budgets", { subject, daily_budget_usd: 0 });
    await until(
      "every instance refuses the user",
      async () => {
        const answers = (await Promise.all(instances.map(ask))).flat();
        return answers.every(({ code }) => code === "budget_exhausted");
      },
      KNOWN_MS,
    );
    await manage("PATCH", `/v1/budgets/${id}`, { daily_budget_usd: Number(nano) / 1e9 });
    return { key, fields };
  }

  /** The budget of a team with five keys. */
  async function teamWith(nano: bigint): Promise<Payer> {
    const limits = { daily_budget_usd: Number(nano) / 1e9 };
    const team = await manage("POST", "/v1/teams", { name: crypto.randomUUID(), ...limits });
    const keys = Array.from({ length: 5 }, () => addKey({ team_id: team.id }));
    return { key: await Promise.all(keys) };
  }

  const payers: [string, (nano: bigint) => Promise<Payer>, string][] = [
    [
      "budget",
      async (nano) => ({ key: await addKey({ monthly_budget_usd: Number(nano) / 1e9 }) }),
      "budget_exhausted",
    ],
    [
      "balance",
      async (nano) => ({ key: createPoorOrganization(cluster.environment, nano).secret }),
      "insufficient_credits",
    ],
    ["user's budget", userWith, "budget_exhausted"],
    ["team's budget", teamWith, "budget_exhausted"],
  ];

  /** What the ledger says that was spent, once nothing is held any more: of a user with a budget, by that. */
  async function spentOf({
    key,
    fields,
  }: Payer): Promise<{ spent: bigint; charges: number; tokens: number }> {
    return look(cluster.databaseUrl, async (sql) => {
      await until(
        "nothing is held",
        async () => {
          const [left] = await sql<{ count: number }[]>`
            SELECT (SELECT count(*) FROM holds)::int + (SELECT count(*) FROM attempts)::int AS count`;
          return left!.count === 0;
        },
        SETTLED_MS,
      );
      expect(await brokenRules(sql)).toEqual([]);
      const [row] = await sql<{ spent: bigint; charges: number; tokens: number }[]>`
        SELECT coalesce(-sum(t.amount_nano), 0)::bigint AS spent, count(t.id)::int AS charges,
          coalesce(sum(t.prompt_tokens + t.completion_tokens), 0)::int AS tokens
        FROM api_keys k LEFT JOIN transactions t ON t.key_id = k.id
        WHERE k.key_hash = ANY (${sql.array([key].flat().map(hashApiKey))}::text[])`;
      if (fields === undefined) return row!;
      const accounts = await sql<{ posted_nano: bigint; held_nano: bigint }[]>`
        SELECT a.posted_nano, a.held_nano FROM accounts a JOIN subject_budgets b ON b.id = a.budget_id
        WHERE b.subject_value = ${fields.user}`;
      const [{ posted_nano: spent = 0n } = {}] = accounts;
      expect(accounts.map((account) => ({ ...account }))).toEqual(
        accounts.map(() => ({ posted_nano: spent, held_nano: 0n })),
      );
      return { ...row!, spent, charges: Number(spent / EXACT_NANO) };
    });
  }

  const successesOf = (outcomes: readonly Outcome[], code: string, status = 402) => {
    const refusals = outcomes.filter((one) => one.code !== undefined);
    expect(new Set(refusals.map((one) => `${one.status} ${one.code}`))).toEqual(
      new Set([`${status} ${code}`]),
    );
    return outcomes.length - refusals.length;
  };

  describe.each(payers)("of a %s", (_, payerWith, code) => {
    test(
      "spend it to the last and not beyond, where each request holds what it costs",
      async () => {
        const limit = EXACT_NANO * BigInt(PAID_REQUESTS);
        const payer = await payerWith(limit);
        const { key, fields } = payer;
        await cluster.upstream.takeServed();
        const body = { ...EXACT, ...fields };
        const outcomes = await flood(instances, { key, body, requests: REQUESTS });
        const successes = successesOf(outcomes, code);
        const { spent, charges } = await spentOf(payer);
        const begun = (await cluster.upstream.takeServed()).length;
        console.info(
          `${successes} of ${REQUESTS} succeeded, ${begun} calls began, ${limit - spent} nano-USD are left`,
        );
        // No call without its money: the provider bills the operator for each that begins.
        expect(begun).toBe(charges);
        expect(successes).toBeWithin(195, PAID_REQUESTS + 1);
        expect(charges).toBe(successes);
        expect(spent).toBe(EXACT_NANO * BigInt(successes));
      },
      TIMEOUT_MS,
    );

    // Of a user it would show what it shows of a key.
    test.if(payerWith !== userWith)(
      `serve at least 180 that hold 20 times what they cost, arriving over ${ARRIVAL_SECONDS} s`,
      async () => {
        const limit = ROOMY_NANO * BigInt(PAID_REQUESTS);
        const payer = await payerWith(limit);
        const { key } = payer;
        await cluster.upstream.takeServed();
        const outcomes = await flood(instances, {
          key,
          body: ROOMY,
          requests: REQUESTS,
          spreadMs: ARRIVAL_SECONDS * 1_000,
        });
        const successes = successesOf(outcomes, code);
        const { spent, charges } = await spentOf(payer);
        expect((await cluster.upstream.takeServed()).length).toBe(charges);
        console.info(`${successes} of ${REQUESTS} succeeded, ${limit - spent} nano-USD are left`);
        expect(successes).toBeGreaterThanOrEqual(180);
        expect(spent).toBeLessThanOrEqual(limit);
      },
      TIMEOUT_MS,
    );

    test(
      "overspend nothing when one is killed that holds a part of it, and that part is there again afterwards",
      async () => {
        const limit = EXACT_NANO * BigInt(PAID_REQUESTS);
        const payer = await payerWith(limit);
        const { key, fields } = payer;
        const [victim, ...others] = instances as [Instance, ...Instance[]];
        // What the killed one is asked ends anyhow: in an answer, a broken one or none.
        const ask = (body: Flood["body"], requests: number) =>
          Array.from({ length: requests }, () =>
            flood(victim, { key, body: { ...body, ...fields }, requests: 1 }).catch(() => []),
          );
        const unanswered = ask(SILENT, HELD_REQUESTS);
        await until("it holds", async () => (await holdsOf()) === HELD_REQUESTS, SETTLED_MS);
        const doomed = ask(EXACT, REQUESTS / 4);
        const options = { key, body: { ...EXACT, ...fields }, requests: REQUESTS / 2 };
        const sound = flood(others, options);
        await until("it is at work", async () => (await chargesOf(key)) > 0, SETTLED_MS);
        victim.gateway.signal("SIGKILL");
        await victim.gateway.exited;
        const heldAtDeath = await holdsOf();
        expect((await Promise.all(unanswered)).flat()).toEqual([]);
        const answered = (await Promise.all(doomed)).flat();
        const outcomes = [...answered, ...(await sound)];
        const successes = outcomes.filter((one) => one.status === 200 && one.costUsd !== undefined);
        const { spent, charges } = await spentOf(payer);
        // Nobody but the dead one's heirs can have given back what it held.
        expect(heldAtDeath).toBeGreaterThanOrEqual(HELD_REQUESTS);
        expect(charges).toBeWithin(successes.length, PAID_REQUESTS + 1);
        expect(spent).toBeLessThanOrEqual(limit);
        const last = await flood(others, { ...options, requests: PAID_REQUESTS });
        const after = await spentOf(payer);
        console.info(
          `${successes.length} succeeded and ${charges} were charged when one was killed that held ` +
            `${HELD_REQUESTS}; ${last.filter((one) => one.code === undefined).length} more afterwards`,
        );
        expect(successesOf(last, code)).toBe(after.charges - charges);
        expect(after.charges).toBeWithin(195, PAID_REQUESTS + 1);
        expect(after.spent).toBe(EXACT_NANO * BigInt(after.charges));
        instances = [...others, await cluster.start()];
      },
      TIMEOUT_MS,
    );
  });

  test(
    "500 requests at once take a balance below its threshold: it is topped up once, although the instance dies that pays",
    async () => {
      const thresholdNano = 5_000_000_000n;
      const limit = thresholdNano + EXACT_NANO * 100n;
      const { id, secret, managementKey } = createPoorOrganization(cluster.environment, limit);
      await look(cluster.databaseUrl, async (sql) => {
        await sql`INSERT INTO payment_methods (id, organization_id, processor, state, reference, type,
            is_default)
          VALUES ('pm_1', ${id}, 'stripe', 'active', 'pm_card_visa', 'card', true)`;
      });
      const settings = { replenish_threshold_usd: 5, replenish_amount_usd: 20 };
      const changed = await fetch(`${instances[0]!.baseUrl}/v1/credits`, {
        method: "PATCH",
        headers: { authorization: `Bearer ${managementKey}`, "content-type": "application/json" },
        body: JSON.stringify({ auto_replenish: true, ...settings }),
      });
      expect(changed.status).toBe(200);
      const asked = Promise.withResolvers<void>();
      const died = Promise.withResolvers<undefined>();
      stripe.beforeAnswer = ({ method, path }) => {
        if (method !== "POST" || path !== "/v1/payment_intents") return Promise.resolve(undefined);
        asked.resolve();
        return died.promise;
      };
      const outcomes = await flood(instances, { key: secret, body: EXACT, requests: 500 });
      expect(outcomes.filter((one) => one.status !== 200)).toEqual([]);
      await asked.promise;
      const payer = await payerOf(id);
      payer.gateway.signal("SIGKILL");
      await payer.gateway.exited;
      died.resolve(undefined);
      await look(cluster.databaseUrl, async (sql) => {
        const isCredited = async () =>
          (await sql`SELECT 1 FROM transactions WHERE organization_id = ${id} AND type = 'topup'`)
            .length > 0;
        await until("another one credits it", isCredited, 3 * SETTLED_MS);
        await sql`UPDATE auto_replenish SET due_at = clock_timestamp() WHERE organization_id = ${id}`;
        await until(
          "the end is noted",
          async () =>
            (
              await sql`SELECT 1 FROM auto_replenish WHERE organization_id = ${id} AND due_at IS NULL`
            ).length > 0,
          SETTLED_MS,
        );
        const topUps = await sql`SELECT amount_nano FROM transactions
          WHERE organization_id = ${id} AND type = 'topup'`;
        expect([...topUps]).toEqual([{ amount_nano: 20_000_000_000n }]);
      });
      expect(stripe.charges).toHaveLength(1);
      const { spent } = await spentOf({ key: secret });
      expect(spent).toBe(EXACT_NANO * 500n);
      instances = [...instances.filter((one) => one !== payer), await cluster.start()];
    },
    TIMEOUT_MS,
  );

  /** The instance that asks for the organization's payment. */
  async function payerOf(organizationId: string): Promise<Instance> {
    const instanceId = await look(cluster.databaseUrl, async (sql) => {
      const [row] = await sql<{ id: string }[]>`SELECT instance_id AS id FROM payment_intents
        WHERE organization_id = ${organizationId}`;
      return row!.id;
    });
    for (const instance of instances) {
      const response = await fetch(`${instance.baseUrl}/v1/admin/providers`, {
        headers: { authorization: `Bearer ${OPERATOR_KEY}` },
      });
      const { instance_id: id } = (await response.json()) as { instance_id: string };
      if (id === instanceId) return instance;
    }
    throw new Error(`no instance ${instanceId}`);
  }

  const holdsOf = () =>
    look(cluster.databaseUrl, async (sql) => {
      const [row] = await sql<{ count: number }[]>`SELECT count(*)::int AS count FROM holds`;
      return row!.count;
    });

  const chargesOf = (key: Payer["key"]) =>
    look(cluster.databaseUrl, async (sql) => {
      const [row] = await sql<{ count: number }[]>`
        SELECT count(*)::int AS count FROM transactions t JOIN api_keys k ON k.id = t.key_id
        WHERE k.key_hash = ANY (${sql.array([key].flat().map(hashApiKey))}::text[])`;
      return row!.count;
    });
});
