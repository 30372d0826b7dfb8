import { afterAll, expect, test } from "bun:test";
import { connectDatabase, type Database, type SqlFragment } from "../../db/client.ts";
import { listUsage, type UsageListing, type UsageRow } from "../../db/queries/usage.ts";
import { addUsageTotals, rollUpUsage } from "../../db/queries/usage-roll-up.ts";
import { USAGE_METRICS, type UsageMetric } from "../../db/queries/usage-top.ts";
import { openTestDatabase, type TestDatabase } from "../support/database.ts";
import { addMember } from "../support/members.ts";
import { until } from "../support/until.ts";
import { usageFaults } from "../support/usage-faults.ts";

const DAYS = 20;
const KEYS = 100;
const USERS = 200;
const TAGS = 5;
const FIRST_DAY = "2026-03-01";

const databases: TestDatabase[] = [];
afterAll(() => Promise.all(databases.map((database) => database.drop())));

/** Charges of five days, each from a user with tags, and at times one that is given back. */
async function charge(sql: Database, organizationId: string, from: number, count: number) {
  await sql`
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description,
      key_id, request_id, refunded_request_id, model, provider, status, prompt_tokens, details, created_at)
    SELECT ${organizationId}, i, ${organizationId} || i, CASE WHEN is_refund THEN 'refund' ELSE 'usage' END,
      CASE WHEN is_refund THEN i - 5 ELSE -i END, 0, '', 'key_' || i % 7,
      CASE WHEN NOT is_refund THEN ${organizationId} || '_' || i END,
      CASE WHEN is_refund THEN ${organizationId} || '_' || i - 5 END, 'test/' || i % 3, 'test', 200, i,
      jsonb_build_object('user', 'user ' || i % 11, 'metadata', jsonb_build_object('tags',
        jsonb_build_array('tag ' || i % 2, 'tag ' || i % 5))),
      ${FIRST_DAY}::date + i * 17 % 7200 * interval '1 minute'
    FROM (SELECT i, i % 10 = 0 AS is_refund
      FROM generate_series(${from}::bigint, ${from + count - 1}::bigint) i) numbered`;
}

test("the totals of a backlog are complete, while transactions are added to it at the same time", async () => {
  const database = await openTestDatabase(3);
  databases.push(database);
  const { sql } = database;
  const opened: Database[] = [];
  const connect = () => {
    const own = connectDatabase(database, { poolSize: 1, applicationName: "totals" });
    opened.push(own);
    return own;
  };
  const organizationId = "org_backlog";
  await sql`INSERT INTO organizations (id, name, plan) VALUES (${organizationId}, ${organizationId}, 'free')`;
  await charge(sql, organizationId, 1, 600);
  let isRunning = true;
  const gateways = [13, 31].map(async (most) => {
    const own = connect();
    while (isRunning) await rollUpUsage(own, organizationId, most);
  });
  await until("some transactions are added", async () => {
    const [cursor] = await sql<{ sequence: bigint }[]>`SELECT sequence FROM usage_cursors`;
    return cursor !== undefined && cursor.sequence > 200n;
  });
  await sql.begin(async (transaction) => {
    await transaction`UPDATE usage_cursors SET totals_since = 'infinity'`;
    await transaction`DELETE FROM usage_totals`;
  });
  const adding = [1, 2].map(async () => {
    const own = connect();
    while (await addUsageTotals(own, organizationId));
  });
  await charge(sql, organizationId, 601, 200);
  await Promise.all(adding);
  isRunning = false;
  await Promise.all(gateways);
  while (await rollUpUsage(sql, organizationId, 1_000));
  expect(await usageFaults(sql)).toEqual([]);
  const [totals] = await sql<{ nano: string }[]>`
    SELECT sum(cost_nano) AS nano FROM usage_totals WHERE kind = 'day'`;
  const [ledger] = await sql<
    { nano: string }[]
  >`SELECT -sum(amount_nano) AS nano FROM transactions`;
  expect(totals).toEqual(ledger!);
  await Promise.all(opened.map((one) => one.end()));
}, 60_000);

/** Sums of many keys, models and users, which the totals are then made of. */
async function fillSums(sql: Database, organizationId: string): Promise<void> {
  const figures = (requests: SqlFragment) => sql`${requests}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0`;
  const days = sql`(SELECT ${FIRST_DAY}::date + day AS day FROM generate_series(0, ${DAYS - 1}::integer) day) days`;
  await sql`INSERT INTO usage_cursors (organization_id, totals_since) VALUES (${organizationId}, 'infinity')`;
  await sql`
    INSERT INTO usage_rollups (organization_id, grain, key_id, starts_at, model, provider, requests, errors,
      prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms,
      search_units, cost_nano)
    SELECT ${organizationId}, grain, key_id, day::timestamp AT TIME ZONE 'UTC' + hour * interval '1 hour',
      'test/' || i, 'test', ${figures(sql`CASE grain WHEN 'day' THEN ${USERS}::integer ELSE 1 END`)}
    FROM ${days} CROSS JOIN generate_series(1, 10) i CROSS JOIN (
      SELECT 'key_day' AS grain, 'key_' || n AS key_id, 0 AS hour FROM generate_series(1, ${KEYS}::integer) n
      UNION ALL SELECT 'day', '', 0
      UNION ALL SELECT 'hour', '', n FROM generate_series(0, 23) n
    ) grains`;
  await sql`
    INSERT INTO usage_subjects (organization_id, kind, day, value, key_id, model, provider, requests, errors,
      prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, images, characters, duration_ms,
      search_units, cost_nano)
    SELECT ${organizationId}, kind, day, kind || n, 'key_' || i, 'test/' || i, 'test', ${figures(sql`1`)}
    FROM ${days} CROSS JOIN generate_series(1, 10) i CROSS JOIN (
      SELECT 'user' AS kind, n FROM generate_series(1, ${USERS}::integer) n
      UNION ALL SELECT 'tag', n FROM generate_series(1, ${TAGS}::integer) n
    ) subjects`;
  while (await addUsageTotals(sql, organizationId));
  await sql`ANALYZE usage_rollups, usage_subjects, usage_totals`;
}

const MONTHS = ["2026-03-30", "2026-04-02"];

/** Four days of two months, with more users and tags a day than are listed, and one user of the name of the others. */
async function chargeMany(sql: Database, organizationId: string): Promise<void> {
  await sql`INSERT INTO organizations (id, name, plan) VALUES (${organizationId}, ${organizationId}, 'free')`;
  await sql`
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description,
      key_id, request_id, model, provider, status, prompt_tokens, details, created_at)
    SELECT ${organizationId}, i, 'many' || i, 'usage', -(i % 100), 0, '', 'key_' || i % 7, 'many_' || i,
      'test/' || i % 3, 'test', 200 + i % 300, i,
      CASE WHEN i % 10 > 0 THEN jsonb_build_object(
        'user', CASE WHEN i % 11 = 0 THEN 'other' ELSE 'user ' || i % 3001 END,
        'metadata', jsonb_build_object('tags', jsonb_build_array('tag ' || i % 3011, 'tag ' || i % 13))) END,
      ${MONTHS[0]!}::date + i % 96 * interval '1 hour'
    FROM generate_series(1, 6000) i`;
}

const TEAMS = ["team_a", "team_b"];

/** Gives the first keys of `chargeMany` teams and an owner. Of the others, one has neither, and two have no row. */
async function addKeys(sql: Database, organizationId: string): Promise<string> {
  const member = await addMember(sql, { organizationId });
  await sql`INSERT INTO teams (id, organization_id, name, created_at)
    SELECT id, ${organizationId}, id, now() FROM unnest(${sql.array(TEAMS)}::text[]) id`;
  await sql`INSERT INTO api_keys (id, organization_id, kind, name, key_hash, key_prefix, scopes, team_id, owner_id)
    SELECT 'key_' || i, ${organizationId}, 'secret', i, i, i, '{}',
      (${sql.array(TEAMS)}::text[])[i / 2 + 1], CASE WHEN i % 3 = 0 THEN ${member} END
    FROM generate_series(0, 4) i`;
  return member;
}

test("the totals answer what the detailed sums answer, whatever they are asked", async () => {
  const database = await openTestDatabase(2);
  databases.push(database);
  const { sql } = database;
  const organizationId = "org_both";
  await chargeMany(sql, organizationId);
  const memberId = await addKeys(sql, organizationId);
  expect(await usageFaults(sql)).toEqual([]);
  const queries: Pick<UsageListing, "groups" | "teamId" | "memberId">[] = [
    { groups: [] },
    { groups: ["key"] },
    { groups: ["user"] },
    { groups: ["tag"] },
    { groups: ["team"] },
    { groups: ["member", "key"] },
    { groups: [], teamId: TEAMS[0] },
    { groups: ["team"], memberId },
  ];
  const answers = async () => {
    const answered = [];
    for (const interval of ["hour", "day", "month"] as const) {
      for (const { groups, ...filters } of queries) {
        for (const [from, before] of [
          [],
          MONTHS,
          ["2026-03-31T07:00:00Z", "2026-04-01T20:00:00Z"],
        ]) {
          const isOfSubjects = groups[0] === "user" || groups[0] === "tag";
          if (interval === "hour" && isOfSubjects) continue;
          const none = { keyId: undefined, model: undefined };
          const asked = { organizationId, interval, groups, ...none, ...filters };
          const ms = (time: string | undefined) =>
            time === undefined ? undefined : Date.parse(time);
          const span = { fromMs: ms(from), beforeMs: ms(before) };
          const page = { limit: 1_000, offset: interval === "day" && isOfSubjects ? 500 : 0 };
          const found = await listUsage(sql, { ...asked, ...span, ...page });
          answered.push({ interval, groups, ...filters, from, before, ...found });
        }
      }
    }
    return answered;
  };
  const ofTotals = await answers();
  await sql`UPDATE usage_cursors SET totals_since = 'infinity'`;
  expect(ofTotals).toEqual(await answers());
  for (const group of ["user", "tag"] as const) {
    const names = ofTotals.flatMap(({ rows }) => rows.map((row) => row.names[group]));
    expect(names).toContain("other");
  }
  const [ofTeams] = ofTotals.filter(
    ({ interval, groups }) => interval === "month" && groups[0] === "team",
  );
  expect(ofTeams!.rows.map(({ names }) => names.team)).toEqual([null, ...TEAMS, null, ...TEAMS]);
}, 60_000);

test("the largest names and the rest are those of the complete list, by each figure", async () => {
  const database = await openTestDatabase(2);
  databases.push(database);
  const { sql } = database;
  const organizationId = "org_top";
  await chargeMany(sql, organizationId);
  await addKeys(sql, organizationId);
  expect(await usageFaults(sql)).toEqual([]);
  const span = { fromMs: Date.parse(MONTHS[0]!), beforeMs: Date.parse("2026-04-04T00:00:00Z") };
  const none = { keyId: undefined, model: undefined };
  const figureOf = {
    cost_usd: ({ costNano }) => Number(costNano),
    requests: ({ requests }) => requests,
    errors: ({ errors }) => errors,
    tokens: ({ promptTokens, completionTokens }) => promptTokens + completionTokens,
  } satisfies Record<UsageMetric, (row: UsageRow) => number>;
  for (const group of ["model", "key", "user", "tag", "team", "member"] as const) {
    const listed = { organizationId, ...none, groups: [group], ...span };
    const all: UsageRow[] = [];
    for (let offset = 0; ; offset += 1_000) {
      const page = { interval: "day", limit: 1_000, offset } as const;
      const { rows, hasMore } = await listUsage(sql, { ...listed, ...page });
      all.push(...rows);
      if (!hasMore) break;
    }
    for (const by of USAGE_METRICS) {
      const sums = new Map<string | null, number>();
      for (const row of all) {
        const name = row.names[group]!;
        if ((group === "user" || group === "tag") && name === "other") continue;
        sums.set(name, (sums.get(name) ?? 0) + figureOf[by](row));
      }
      const top = [...sums].toSorted(([a, x], [b, y]) => y - x || ((a ?? "") < (b ?? "") ? -1 : 1));
      const names = new Set(top.slice(0, 2).map(([name]) => name));
      const expected = new Map<string, number>();
      for (const row of all) {
        const name = row.names[group]!;
        const key = `${row.startMs} ${names.has(name) ? name : "rest"}`;
        expected.set(key, (expected.get(key) ?? 0) + figureOf[by](row));
      }
      const page = { interval: "day", limit: 1_000, offset: 0, top: { count: 2, by } } as const;
      const { rows } = await listUsage(sql, { ...listed, ...page });
      const found = new Map(
        rows.map((row) => [
          `${row.startMs} ${row.isRest ? "rest" : row.names[group]}`,
          figureOf[by](row),
        ]),
      );
      expect({ group, by, found }).toEqual({ group, by, found: expected });
    }
  }
}, 60_000);

test("a page of usage reads few rows more than it shows, however many models, keys and users there are", async () => {
  const database = await openTestDatabase(2);
  databases.push(database);
  const { sql } = database;
  const organizationId = "org_many";
  await fillSums(sql, organizationId);
  const rowsRead = async (asked: Partial<UsageListing>) =>
    sql.begin(async (transaction) => {
      const one = transaction as unknown as Database;
      const read = async () => {
        const [row] = await one<{ read: number }[]>`
          SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int AS read
          FROM pg_stat_xact_user_tables WHERE relname LIKE 'usage_%'`;
        return row!.read;
      };
      const before = await read();
      const { rows } = await listUsage(one, {
        ...{ organizationId, interval: "day", groups: [], keyId: undefined, model: undefined },
        ...{ fromMs: Date.parse(FIRST_DAY), beforeMs: undefined, limit: 1_000, offset: 0 },
        ...asked,
      });
      return { shown: rows.length, read: (await read()) - before };
    });
  const month = { interval: "month" } as const;
  const allTotals = DAYS * (24 + 1 + KEYS + USERS + TAGS);
  for (const [asked, shown, most] of [
    [{}, DAYS, DAYS],
    [{ interval: "hour" }, 24 * DAYS, 24 * DAYS],
    [{ groups: ["key"] }, 1_000, 1_000 + KEYS],
    [{ groups: ["key"], limit: 50 }, 50, KEYS],
    [{ groups: ["user"] }, 1_000, 1_000 + 2 * USERS],
    [{ groups: ["tag"] }, TAGS * DAYS, 3 * TAGS * DAYS],
    [{ interval: "hour", groups: ["model"], limit: 50 }, 50, 100],
    [{ groups: ["key", "model"], limit: 50 }, 50, 10 * KEYS],
    [{ groups: ["team"], limit: 1 }, 1, 3 * KEYS],
    [{ ...month, groups: ["key"] }, KEYS, allTotals],
    [{ ...month, groups: ["member", "team"] }, 1, allTotals],
    [{ ...month, groups: ["user"] }, USERS, allTotals],
  ] as const) {
    const found = await rowsRead(asked);
    expect([asked, found.shown]).toEqual([asked, shown]);
    // What says since when there are totals, their first and last day, and the whole of a day, are rows too.
    expect(found.read).toBeLessThanOrEqual(most + DAYS);
  }
}, 60_000);
