import type { Database } from "../../db/client.ts";
import { insertKey } from "../../db/queries/api-keys.ts";
import { insertProviderKey } from "../../db/queries/provider-keys.ts";
import { insertWebhook } from "../../db/queries/webhooks.ts";
import { newKey } from "../../src/accounts/keys/api-keys.ts";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { EVENT_TYPES, sampleData } from "../../src/lib/events/event-types.ts";
import { newId } from "../../src/lib/ids.ts";
import { WebhookSecrets } from "../../src/webhooks/webhook-secrets.ts";
import { fillLedger, inBulk, type LedgerModel } from "./filled-ledger.ts";
import { fillObjects } from "./filled-objects.ts";
import { testKeyring } from "./master-key.ts";
import { rollUpAll } from "./usage-faults.ts";

export interface Filling {
  /** Charges and top-ups; some two per cent as many requests failed. */
  readonly transactions: number;
  readonly days: number;
  readonly keys: number;
  readonly users: number;
  /** The share of requests that state users, sessions and tags. */
  readonly detailed: number;
  /** Where deliveries go. */
  readonly receiver: string;
  /** Is put into every name that someone else has chosen. */
  readonly mark: string;
}

/** What an organization has after a month of ordinary use. */
export const ORDINARY: Filling = {
  transactions: 100_000,
  days: 30,
  keys: 50,
  users: 400,
  detailed: 0.7,
  receiver: "https://hooks.example.com",
  mark: "",
};

/** What a large one has after three months. */
export const LARGE: Filling = {
  ...ORDINARY,
  transactions: 10_000_000,
  days: 90,
  keys: 1_000,
  users: 7_000,
  detailed: 0.3,
};

const DAY_MS = 86_400_000;
const NANO_PER_USD = 1_000_000_000n;

const model = (id: string, prompt: number, completion: number, averageMs: number): LedgerModel => ({
  id,
  provider: id.slice(0, id.indexOf("/")),
  promptNano: prompt,
  completionNano: completion,
  averageMs,
});

const MODELS = [
  model("openai/gpt-5-mini", 250, 2_000, 900),
  model("anthropic/claude-sonnet-4-5", 3_000, 15_000, 2_400),
  model("google/gemini-2.5-flash", 300, 2_500, 700),
  model("openai/gpt-5", 1_250, 10_000, 3_100),
  model("mistral/mistral-small", 100, 300, 600),
  model("deepseek/deepseek-chat", 270, 1_100, 1_900),
  model("groq/llama-3.3-70b", 590, 790, 250),
  model("openai/text-embedding-3-small", 20, 0, 120),
  model("anthropic/claude-opus-4-5", 5_000, 25_000, 3_800),
  model("sandbox/chat", 100, 200, 80),
];
const TEAMS = ["Checkout", "Search", "Support", "Mobile", "Research", "Billing", "Data", "Docs"];
const PLACES = ["production", "staging", "batch", "evaluation", "preview", "local", "canary"];
const TAGS = ["checkout", "chat", "summaries", "search", "support", "translation", "evaluation"];

/** Fills an organization that was just made, before any gateway has read its accounts. */
export async function fillOrganization(
  sql: Database,
  organizationId: string,
  filling: Filling = ORDINARY,
): Promise<void> {
  const nowMs = Date.now();
  const fromMs = nowMs - filling.days * DAY_MS;
  await beginAt(sql, organizationId, fromMs, filling.mark);
  const nameOf = (name: string) => name + filling.mark;
  const keyIds = await addKeys(sql, organizationId, filling, fromMs);
  const { transactions, users, detailed } = filling;
  const models = MODELS.map((one) => ({ ...one, id: nameOf(one.id) }));
  const tags = TAGS;
  const subjects = { users, tags, detailed, nameOf };
  const span = { fromMs, beforeMs: nowMs };
  const plan = { organizationId, transactions, keyIds, models, ...span, ...subjects };
  const isLarge = transactions >= LARGE.transactions;
  if (isLarge) await inBulk(sql, () => fillLedger(sql, plan));
  else await fillLedger(sql, plan);
  await addFailures(sql, organizationId);
  await addWebhooks(sql, organizationId, filling);
  await addBatches(sql, organizationId, keyIds, nowMs);
  await fillObjects(sql, { organizationId, keyIds, nowMs, mark: filling.mark });
  await addProviderKeys(sql, organizationId, filling, fromMs);
  await rollUpAll(sql, isLarge ? 500_000 : 20_000);
  await sql`ANALYZE`;
}

/** The organization, with what it has, was made then. */
async function beginAt(
  sql: Database,
  organizationId: string,
  atMs: number,
  mark: string,
): Promise<void> {
  const at = new Date(atMs);
  await sql`UPDATE organizations SET name = ${`Example Ltd.${mark}`}, created_at = ${at}
    WHERE id = ${organizationId}`;
  await sql`UPDATE api_keys SET created_at = ${at} WHERE organization_id = ${organizationId}`;
  await sql`UPDATE transactions SET created_at = ${at} WHERE organization_id = ${organizationId}`;
}

/** Those that are used most first: some have budgets, rates, limits, an end, or are switched off. */
async function addKeys(
  sql: Database,
  organizationId: string,
  { keys, mark }: Filling,
  fromMs: number,
): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < keys; at++) {
    const dollars = BigInt(10 * (1 + (at % 7)));
    const key = newKey({
      organizationId,
      kind: at % 16 === 15 ? "management" : "secret",
      secret: generateApiKey(at % 16 === 15 ? "management" : "secret").key,
      nowMs: fromMs + at * 60_000,
      settings: {
        name: `${TEAMS[at % 8]} ${PLACES[Math.floor(at / 8) % 7]}${at < 56 ? "" : ` ${at}`}${mark}`,
        rateLimitRpm: at % 3 === 0 ? 60 * (at + 1) : null,
        dailyBudgetNano: at % 4 === 0 ? dollars * NANO_PER_USD : null,
        monthlyBudgetNano: at % 5 === 0 ? 30n * dollars * NANO_PER_USD : null,
        allowedModels: at % 9 === 4 ? ["openai/*", "sandbox/chat"] : null,
        expiresAtMs: at % 11 === 7 ? Date.now() + at * DAY_MS : null,
        isActive: at % 13 !== 9,
      },
    });
    await sql.begin((transaction) => insertKey(transaction, key));
    ids.push(key.id);
  }
  return ids;
}

const FAILURES = [
  ["rate_limit_exceeded", 429],
  ["provider_unavailable", 502],
  ["budget_exceeded", 402],
  ["provider_timeout", 408],
  ["invalid_body", 400],
] as const;

/** Each behind a charge that says who asked. */
async function addFailures(sql: Database, organizationId: string): Promise<void> {
  const [codes, statuses] = [FAILURES.map(([code]) => code), FAILURES.map(([, status]) => status)];
  await sql`
    INSERT INTO failed_requests (id, organization_id, key_id, position, model, provider, status, error_code,
      user_name, session_id, tags, latency_ms, is_charged, created_at)
    SELECT left(request_id, 16) || substr(md5(request_id), 1, 20), organization_id, key_id, sequence, model,
      CASE WHEN kind IN (2, 4) THEN provider END, (${sql.array(statuses)}::integer[])[kind],
      (${sql.array([...codes])}::text[])[kind],
      details ->> 'user', details ->> 'session_id', details -> 'metadata' -> 'tags', 5 + latency_ms / 20,
      false, date_trunc('milliseconds', created_at)
    FROM (
      SELECT *, 1 + floor(5 * power((hashint8extended(sequence, 21) & 1048575) / 1048576.0, 2))::integer AS kind
      FROM transactions WHERE organization_id = ${organizationId} AND type = 'usage'
        AND hashint8extended(sequence, 20) & 1023 < 20
    ) t`;
}

const EVENTS_OF_ALL = 600;
/** What becomes of a delivery, by how often; the last ones wait. */
const FATES = [...Array.from({ length: 7 }, () => "delivered"), "retried", "failed", "dropped"];
const WAITING = 4;

/** Three webhooks with deliveries in every state; the second was switched off by its failures. */
async function addWebhooks(sql: Database, organizationId: string, filling: Filling): Promise<void> {
  const secrets = new WebhookSecrets(await testKeyring(sql));
  const nowMs = Date.now();
  const ids: string[] = [];
  for (const [path, events, description] of [
    ["/billing", ["credits.low", "budget.exhausted"], "Finance"],
    ["/failures", ["completion.error", "provider_key.invalid"], "On call"],
    ["/everything", ["*"], null],
  ] as const) {
    const id = newId("whk");
    const seal = secrets.sealing(secrets.generate());
    const settings = { url: filling.receiver + path, events, enabled: true };
    const named = { id, organizationId, description: description && description + filling.mark };
    const createdAtMs = nowMs - filling.days * DAY_MS;
    await insertWebhook(sql, { ...settings, ...named, secret: seal, createdAtMs }, 100);
    ids.push(id);
  }
  await sql`UPDATE webhooks SET enabled = false, disabled_at = clock_timestamp(), disabled_by = 'failures'
    WHERE id = ${ids[1]!}`;
  for (const [at, id] of ids.entries()) {
    await addDeliveries(
      sql,
      organizationId,
      id,
      Math.round(EVENTS_OF_ALL / (at + 2)),
      filling.mark,
    );
  }
}

/** They are numbered already, so that no owner deals them out again; what is pending is due in an hour. */
async function addDeliveries(
  sql: Database,
  organizationId: string,
  webhookId: string,
  count: number,
  mark: string,
): Promise<void> {
  const types = EVENT_TYPES.map((type) => ({ type, data: sampleData(type) }));
  await sql.begin(async (transaction) => {
    await transaction`
      WITH events AS (
        INSERT INTO outbox (event_id, organization_id, type, data, created_at)
        SELECT 'evt_' || md5(${webhookId} || i), ${organizationId}, t.type, t.data,
          clock_timestamp() - (${count}::integer - i + 1) * interval '40 minutes'
        FROM generate_series(1, ${count}::integer) i
        JOIN jsonb_to_recordset(${JSON.stringify(types.map((one, place) => ({ ...one, place })))}::text::jsonb)
          AS t (place integer, type text, data jsonb) ON t.place = i * i % ${types.length}::integer
        ORDER BY i RETURNING id, event_id, type, created_at
      ), fated AS (
        SELECT *, row_number() OVER (ORDER BY id) AS number,
          CASE WHEN row_number() OVER (ORDER BY id DESC) <= ${WAITING}::integer THEN 'pending'
            ELSE (${transaction.array(FATES)}::text[])[1 + id * 7 % ${FATES.length}::integer] END AS fate FROM events
      )
      INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type, status, attempt_count,
        attempts, next_attempt_at, created_at, finished_at)
      SELECT ${webhookId}, id, number, event_id, type, CASE fate WHEN 'retried' THEN 'delivered' ELSE fate END,
        n, (SELECT coalesce(jsonb_agg(jsonb_build_object('at', created_at + k * interval '1 minute',
            'status_code', CASE WHEN fate IN ('delivered', 'retried') AND k = n THEN 200 WHEN k % 3 = 2 THEN NULL ELSE 503 END,
            'error', CASE WHEN fate IN ('delivered', 'retried') AND k = n THEN NULL WHEN k % 3 = 2
              THEN 'No answer within 10 seconds' ELSE 'The receiver answered with status 503' || ${mark}::text END,
            'latency_ms', 40 + id * 37 % 400 + CASE WHEN k % 3 = 2 THEN 9600 ELSE 0 END)), '[]')
          FROM generate_series(1, n) k),
        CASE WHEN fate = 'pending' THEN clock_timestamp() + interval '1 hour' END, created_at,
        CASE WHEN fate <> 'pending' THEN created_at + n * interval '1 minute' END
      FROM fated CROSS JOIN LATERAL (SELECT CASE fate WHEN 'delivered' THEN 1 WHEN 'retried' THEN 3
        WHEN 'failed' THEN 6 WHEN 'pending' THEN 2 ELSE 0 END AS n) attempts`;
    await transaction`DELETE FROM unnumbered_events WHERE organization_id = ${organizationId}`;
    await transaction`INSERT INTO event_queues (organization_id, last_sequence)
      VALUES (${organizationId}, ${count}) ON CONFLICT (organization_id)
      DO UPDATE SET last_sequence = event_queues.last_sequence + EXCLUDED.last_sequence`;
    await transaction`UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id)
      WHERE webhook_id = ${webhookId}`;
  });
}

/** In every state that is an end. */
async function addBatches(
  sql: Database,
  organizationId: string,
  keyIds: readonly string[],
  nowMs: number,
): Promise<void> {
  const states = ["completed", "completed", "completed", "failed", "expired", "cancelled"];
  for (const [at, status] of states.entries()) {
    const createdAt = new Date(nowMs - (states.length - at) * DAY_MS);
    const endedAt = new Date(createdAt.getTime() + 3_600_000);
    const total = status === "failed" ? 0 : 100 * (at + 1);
    const completed = status === "completed" ? total - at : Math.floor(total / 2);
    await sql`INSERT INTO batches (id, organization_id, key_id, endpoint, input_file, status, total, completed,
        failed, costed_lines, cost_nano, created_at, in_progress_at, ended_at, expires_at)
      VALUES (${newId("batch")}, ${organizationId}, ${keyIds[at % keyIds.length]!}, '/v1/chat/completions',
        ${newId("file")}, ${status}, ${total}, ${completed}, ${status === "completed" ? at : 0},
        ${completed + (status === "completed" ? at : 0)}, ${completed * 40_000}, ${createdAt},
        ${createdAt}, ${endedAt}, ${new Date(createdAt.getTime() + DAY_MS)})`;
  }
}

/** The second was refused by its provider. */
async function addProviderKeys(
  sql: Database,
  organizationId: string,
  { mark }: Filling,
  createdAtMs: number,
): Promise<void> {
  const keyring = await testKeyring(sql);
  for (const [name, providerId] of [
    ["Main account", "openai"],
    ["Old account", "anthropic"],
  ] as const) {
    const secret = (keyId: string) =>
      keyring.sealUnder(keyId, new TextEncoder().encode("sk-0123456789"));
    const id = newId("pk");
    const named = { id, organizationId, providerId, name: name + mark, keyPrefix: "sk-0123" };
    await insertProviderKey(sql, { ...named, secret, baseUrl: null, createdAtMs }, 100);
    if (name === "Old account")
      await sql`UPDATE provider_keys SET is_valid = false WHERE id = ${id}`;
  }
}
