import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { exchangeLedgerBatch } from "../../db/ledger/exchange-batch.ts";
import { settleDead } from "../../db/ledger/settle-dead.ts";
import { insertFailedRequests, removeOldFailedRequests } from "../../db/queries/failed-requests.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { checkpointOf, settlement } from "../ledger/books.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { addMember } from "../support/members.ts";
import { until } from "../support/until.ts";

interface Listed {
  readonly id: string;
  readonly key_id: string;
  readonly model: string | null;
  readonly provider: string | null;
  readonly status: number;
  readonly error_code: string | null;
  readonly user: string | null;
  readonly session_id: string | null;
  readonly usage: { readonly total_tokens: number } | null;
  readonly cost_usd: number;
  readonly latency_ms: number;
  readonly created_at: string;
}

interface Page {
  readonly data: Listed[];
  readonly last_id: string | null;
  readonly has_more: boolean;
}

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());

async function pageOf(query: string, key = gateway.secretKey): Promise<Page> {
  const response = await gateway.request("GET", `/v1/requests?${query}`, undefined, { key });
  expect(response.status).toBe(200);
  return (await response.json()) as Page;
}

async function idOf(answering: Promise<Response>): Promise<string> {
  const response = await answering;
  await response.text();
  return response.headers.get("x-gateway-request-id")!;
}

const written = (id: string) =>
  until(`${id} is written down`, async () => {
    const [row] = await gateway.sql`SELECT 1 FROM failed_requests WHERE id = ${id}`;
    return row !== undefined;
  });

/** All pages, from the newest on or behind a request. */
async function walk(query: string, key?: string, behind?: string | null): Promise<Listed[]> {
  const all: Listed[] = [];
  let after = behind ? `&after=${behind}` : "";
  for (;;) {
    const page = await pageOf(`${query}${after}`, key);
    all.push(...page.data);
    if (!page.has_more) return all;
    after = `&after=${page.last_id}`;
  }
}

describe("a failed request is listed once", () => {
  const noted = { user: "ada", session_id: "s1" };
  const failures: [name: string, status: number, code: string, send: () => Promise<Response>][] = [
    ["400", 400, "invalid_body", () => gateway.chat("x", { ...noted, messages: [] })],
    [
      "402",
      402,
      "budget_exhausted",
      async () => {
        const key = await addSecretKey(gateway, { dailyBudgetNano: 0n });
        return gateway.chat(gateway.modelThat({ do: "complete" }), noted, { key });
      },
    ],
    [
      "403",
      403,
      "model_not_allowed",
      async () => {
        const key = await addSecretKey(gateway, { allowedModels: ["test/other"] });
        return gateway.chat(gateway.modelThat({ do: "complete" }), noted, { key });
      },
    ],
    ["404", 404, "model_not_found", () => gateway.chat("no-such-model", noted)],
    [
      "408",
      408,
      "provider_timeout",
      () => gateway.chat(gateway.modelThat({ do: "error", status: 408 }), noted),
    ],
    [
      "429 of the key",
      429,
      "rate_limit_exceeded",
      async () => {
        const key = await addSecretKey(gateway, { rateLimitRpm: 1 });
        const slug = gateway.modelThat({ do: "complete" });
        await idOf(gateway.chat(slug, noted, { key }));
        return gateway.chat(slug, noted, { key });
      },
    ],
    [
      "429 of the provider",
      429,
      "rate_limit_exceeded",
      () =>
        gateway.chat(gateway.modelThat({ do: "rate-limited", retryAfter: { seconds: 60 } }), noted),
    ],
    [
      "502",
      502,
      "provider_error",
      () => gateway.chat(gateway.modelThat({ do: "error", status: 500 }), noted),
    ],
  ];

  test.each(failures)("%s", async (_, status, code, send) => {
    const response = await send();
    expect(response.status).toBe(status);
    const id = await idOf(Promise.resolve(response));
    await written(id);
    const one = await gateway.request("GET", `/v1/requests/${id}`);
    const shown = (await one.json()) as Listed;
    expect(shown).toMatchObject({
      id,
      status,
      error_code: code,
      ...noted,
      usage: null,
      cost_usd: 0,
    });
    expect(shown.model).toStartWith("test/");
    const listed = (await walk("limit=200")).filter((request) => request.id === id);
    expect(listed).toHaveLength(1);
    expect(shown).toMatchObject(listed[0]!);
  });

  test("a stream that breaks behind its first events: with its charge and its error", async () => {
    const slug = gateway.modelThat({
      do: "cut",
      content: "word".repeat(40),
      events: 8,
      afterEvents: 4,
    });
    const response = await gateway.chat(slug, { stream: true, ...noted });
    expect(response.status).toBe(200);
    const id = await idOf(Promise.resolve(response));
    await written(id);
    const listed = (await walk("limit=200")).filter((request) => request.id === id);
    expect(listed).toHaveLength(1);
    expect(listed[0]).toMatchObject({ status: 502, error_code: "provider_error", ...noted });
    expect(listed[0]!.cost_usd).toBeGreaterThan(0);
    expect(listed[0]!.usage!.total_tokens).toBeGreaterThan(0);
    const found = await walk("limit=200&error_code=provider_error&status=502");
    expect(found.filter((request) => request.id === id)).toEqual(listed);
  });

  test("a request whose client leaves before its answer", async () => {
    const slug = gateway.modelThat({ do: "complete", firstDelayMs: 60_000 });
    const abort = new AbortController();
    const user = "impatient";
    const asked = gateway.chat(slug, { user }, { signal: abort.signal }).catch(() => undefined);
    await until("the provider is asked", () => gateway.upstream.servedOf(slug).length > 0);
    abort.abort();
    await asked;
    const [listed] = await until("it is listed", async () => {
      const { data } = await pageOf(`user=${user}`);
      return data.length > 0 && data;
    });
    expect(listed).toMatchObject({ status: 499, error_code: "client_closed_request", user });
    expect((await pageOf(`user=${user}&status=499`)).data).toHaveLength(1);
  });

  test.each([
    ["single-node", true],
    ["clustered", false],
  ])(
    "a %s stream that was charged after a crash, as an error of the gateway",
    async (_, isAlone) => {
      const { sql, organizationId } = gateway;
      const [key] = await sql<{ id: string }[]>`
      SELECT id FROM api_keys WHERE organization_id = ${organizationId} AND kind = 'secret' LIMIT 1`;
      const [dead, reaper] = [1, 2].map(() => ({ id: newId("ins"), epoch: 1n }));
      await insertInstance(sql, dead!, isAlone);
      await insertInstance(sql, reaper!);
      const request = settlement({ organizationId, keyId: key!.id });
      const amounts = { fullNano: 10_000n, leastNano: 10_000n, mostNano: 10_000n };
      await exchangeLedgerBatch(sql, dead!, {
        checkpoints: [checkpointOf(request)],
        settlements: [],
        releases: [],
        holds: isAlone ? [] : [{ ...request, ...amounts, manner: "last" }],
        knownAccounts: new Set(),
        recheck: false,
      });
      await sql`UPDATE instances SET alive = false WHERE id = ${dead!.id}`;
      await settleDead(sql, reaper!);
      const listed = (await walk("limit=200")).find(({ id }) => id === request.requestId);
      expect(listed).toMatchObject({ status: 500, error_code: "internal", cost_usd: 0.000001 });
      const found = await walk("limit=200&error_code=internal&status=500");
      expect(found.map(({ id }) => id)).toContain(request.requestId);
    },
  );

  test("a charge that follows the failure takes its place", async () => {
    const id = await idOf(gateway.chat(gateway.modelThat({ do: "complete" })));
    await insertFailedRequests(gateway.sql, [failure(gateway.organizationId, id)]);
    await gateway.sql`UPDATE failed_requests SET is_charged = false WHERE id = ${id}`;
    const listed = (await walk("limit=3")).filter((request) => request.id === id);
    expect(listed).toHaveLength(1);
    expect(listed[0]!.cost_usd).toBeGreaterThan(0);
  });

  test("not of a route without a price, nor without a key", async () => {
    const unpriced = await idOf(gateway.request("GET", "/v1/keys/key_none"));
    const keyless = await idOf(gateway.chat("x", {}, { key: "gateway_sk_wrong" }));
    await written(await idOf(gateway.chat("no-such-model")));
    const ids = (await walk("limit=200")).map(({ id }) => id);
    expect(ids).not.toContain(unpriced);
    expect(ids).not.toContain(keyless);
  });
});

function failure(organizationId: string, id: string, changes: object = {}) {
  return {
    ...{ id, organizationId, keyId: "key_x", model: "test/x", provider: null, status: 402 },
    ...{ errorCode: "insufficient_credits", user: null, sessionId: null, latencyMs: 1, ageMs: 0 },
    ...changes,
  };
}

const hex = (n: number) => n.toString(16).padStart(32, "0");

/** Charges and failures in turns, as the random numbers have it; newest first. */
async function addMixed(sql: Database, organizationId: string, count: number): Promise<string[]> {
  const added: string[] = [];
  let seed = 7;
  let sequence = 0;
  for (let n = 0; n < count; n++) {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    // Ids that say nothing about the order.
    const id = `req_${hex(seed)}${n}`;
    if (seed % 3 === 0) {
      sequence++;
      await sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
          balance_after_nano, description, key_id, request_id, model, provider, status,
          prompt_tokens, completion_tokens, latency_ms, details)
        VALUES (${organizationId}, ${sequence}, ${`txn_${organizationId}_${n}`}, 'usage', -5, 0, 'Chat', 'key_a', ${id},
          'test/a', 'primary', 200, 1, 1, 1, ${sql.json({ user: n % 2 === 0 ? "even" : "odd" })})`;
    } else {
      await insertFailedRequests(sql, [
        failure(organizationId, id, {
          keyId: n % 5 === 0 ? "key_a" : "key_b",
          user: n % 2 === 0 ? "even" : "odd",
        }),
      ]);
    }
    added.unshift(id);
  }
  return added;
}

describe("pages of charged and failed requests", () => {
  let ids: string[];
  let managementKey: string;
  beforeAll(async () => {
    const prepared = await gateway.addOrganization({ creditUsd: 0 });
    managementKey = prepared.managementKey;
    const { id } = prepared.organization;
    await gateway.sql`DELETE FROM transactions WHERE organization_id = ${id}`;
    ids = await addMixed(gateway.sql, id, 90);
  });

  test.each([1, 2, 7, 89, 90, 200])("of %p show each once, newest first", async (limit) => {
    const listed = await walk(`limit=${limit}`, managementKey);
    expect([...listed.map(({ id }) => id)].sort()).toEqual([...ids].sort());
    const times = listed.map(({ created_at }) => created_at);
    expect(times).toEqual([...times].sort().reverse());
  });

  test("keep their place when more is added meanwhile", async () => {
    const first = await pageOf("limit=40", managementKey);
    const [row] = await gateway.sql<{ organization_id: string }[]>`
      SELECT organization_id FROM failed_requests WHERE id = ANY (${ids}) LIMIT 1`;
    const later = failure(row!.organization_id, "req_later");
    await insertFailedRequests(gateway.sql, [later]);
    const rest = await walk("limit=40", managementKey, first.last_id);
    const seen = [...first.data, ...rest].map(({ id }) => id);
    expect(seen.sort()).toEqual([...ids].sort());
    await gateway.sql`DELETE FROM failed_requests WHERE id = 'req_later'`;
  });

  test("are filtered by key, model, status, code, user and time", async () => {
    const all = await walk("limit=200", managementKey);
    const expectFound = async (query: string, matches: (request: Listed) => boolean) => {
      const wanted = all.filter(matches);
      expect(wanted.length).toBeGreaterThan(0);
      expect(await walk(`limit=4&${query}`, managementKey)).toEqual(wanted);
    };
    await expectFound("key_id=key_a", ({ key_id }) => key_id === "key_a");
    await expectFound("model=test/x", ({ model }) => model === "test/x");
    await expectFound("status=200", ({ status }) => status === 200);
    await expectFound("min_status=400", ({ status }) => status >= 400);
    await expectFound("min_status=200&key_id=key_a", ({ key_id }) => key_id === "key_a");
    expect(await walk("min_status=403", managementKey)).toEqual([]);
    await expectFound("error_code=insufficient_credits", ({ status }) => status === 402);
    await expectFound("user=even&status=402", (request) => {
      return request.user === "even" && request.status === 402;
    });
    const [owner] = await gateway.sql<{ organization_id: string }[]>`
      SELECT organization_id FROM failed_requests WHERE id = ANY (${ids}) LIMIT 1`;
    const organizationId = owner!.organization_id;
    const memberId = await addMember(gateway.sql, { organizationId });
    await gateway.sql`INSERT INTO teams (id, organization_id, name, created_at)
      VALUES ('team_listed', ${organizationId}, 'Listed', now())`;
    await gateway.sql`INSERT INTO api_keys (id, organization_id, kind, name, key_hash, key_prefix, scopes,
        team_id, owner_id)
      VALUES ('key_a', ${organizationId}, 'secret', 'a', 'a', 'a', '{}', 'team_listed', NULL),
        ('key_b', ${organizationId}, 'secret', 'b', 'b', 'b', '{}', NULL, ${memberId})`;
    await expectFound("team_id=team_listed", ({ key_id }) => key_id === "key_a");
    await expectFound(`member_id=${memberId}`, ({ key_id }) => key_id === "key_b");
    await expectFound("team_id=team_listed&model=test/a", ({ model }) => model === "test/a");
    expect(await walk(`team_id=team_listed&member_id=${memberId}`, managementKey)).toEqual([]);
    expect(await walk("team_id=team_none", managementKey)).toEqual([]);
    const other = await gateway.addOrganization();
    expect(await walk("team_id=team_listed", other.managementKey)).toEqual([]);
    expect(await walk(`member_id=${memberId}`, other.managementKey)).toEqual([]);
    const from = all[60]!.created_at;
    const to = all[20]!.created_at;
    await expectFound(`start_date=${from}&end_date=${to}`, ({ created_at }) => {
      return created_at >= from && created_at <= to;
    });
    expect(await walk("session_id=none", managementKey)).toEqual([]);
    expect(await walk("end_date=2020-01-01", managementKey)).toEqual([]);
  });

  test("are few rows to the database, however long the list is", async () => {
    const prepared = await gateway.addOrganization();
    const { id } = prepared.organization;
    await gateway.sql`DELETE FROM transactions WHERE organization_id = ${id}`;
    await gateway.sql`INSERT INTO transactions (organization_id, sequence, id, type, amount_nano,
        balance_after_nano, description, key_id, request_id, model, status, created_at)
      SELECT ${id}, n, 'txn_many_' || n, 'usage', -5, 0, 'Chat',
        CASE WHEN n = 6 THEN 'key_rare' ELSE 'key_a' END, 'req_many_' || n,
        CASE WHEN n = 5 THEN 'test/rare' ELSE 'test/a' END, CASE WHEN n = 5 THEN 499 ELSE 200 END, '2024-01-01'::timestamptz + n * interval '1 minute'
      FROM generate_series(1, 45000) n`;
    // One rare match behind all that one page looks at: pages without it say where to go on.
    const first = await pageOf("status=499", prepared.managementKey);
    expect(first).toMatchObject({ data: [], has_more: true, last_id: "req_many_40001" });
    const found = await walk("status=499", prepared.managementKey);
    expect(found.map((request) => request.id)).toEqual(["req_many_5"]);
    // Keys and models have indexes: the first page finds one.
    for (const [query, rare] of [
      ["model=test/rare", "req_many_5"],
      ["key_id=key_rare&model=test/a", "req_many_6"],
      ["key_id=key_rare", "req_many_6"],
    ] as const) {
      const page = await pageOf(query, prepared.managementKey);
      expect([query, page.data.map((request) => request.id)]).toEqual([query, [rare]]);
    }
    // Dates are found by halving: no page in between.
    const old = await pageOf("limit=2&end_date=2024-01-01T00:10:00Z", prepared.managementKey);
    expect(old.data.map((request) => request.id)).toEqual(["req_many_10", "req_many_9"]);
    const oldest = "start_date=2024-01-01T00:04:30Z&end_date=2024-01-01T00:05:30Z";
    const last = await pageOf(oldest, prepared.managementKey);
    expect(last).toMatchObject({ data: [{ id: "req_many_5" }], has_more: false });
  });
});

describe("what is not the caller's to see", () => {
  test("requests of another organization are 404, no cursor, and in no list", async () => {
    const failed = await idOf(gateway.chat("no-such-model"));
    const charged = await idOf(gateway.chat(gateway.modelThat({ do: "complete" })));
    await written(failed);
    const { managementKey } = await gateway.addOrganization();
    for (const id of [failed, charged, "req_none"]) {
      const one = await gateway.request("GET", `/v1/requests/${id}`, undefined, {
        key: managementKey,
      });
      expect(one.status).toBe(404);
      expect(((await one.json()) as { error: { code: string } }).error.code).toBe(
        "request_not_found",
      );
      const after = await gateway.request("GET", `/v1/requests?after=${id}`, undefined, {
        key: managementKey,
      });
      expect(after.status).toBe(400);
      expect(((await after.json()) as { error: { param: string } }).error.param).toBe("after");
    }
    expect((await pageOf("", managementKey)).data).toEqual([]);
  });

  test("a secret key with limits of its own sees its own requests alone", async () => {
    const key = await addSecretKey(gateway, { rateLimitRpm: 100 });
    const slug = gateway.modelThat({ do: "complete" });
    const other = await idOf(gateway.chat(slug));
    const own = [
      await idOf(gateway.chat(slug, {}, { key })),
      await idOf(gateway.chat("none", {}, { key })),
    ];
    await written(own[1]!);
    const listed = await walk("limit=2", key);
    expect(listed.map(({ id }) => id)).toEqual(own.reverse());
    const one = await gateway.request("GET", `/v1/requests/${other}`, undefined, { key });
    expect(one.status).toBe(404);
    const [theirs] = (await pageOf("limit=200")).data.filter(({ id }) => id === other);
    expect((await pageOf(`key_id=${theirs!.key_id}`, key)).data).toEqual([]);
  });

  test("no text of a prompt, of an answer or of a provider's error is written down", async () => {
    const slug = gateway.modelThat({ do: "error", status: 500, message: "secret cause" });
    const messages = [{ role: "user", content: "secret question" }];
    const id = await idOf(gateway.chat(slug, { messages }));
    await written(id);
    const [row] =
      await gateway.sql`SELECT to_json(f)::text AS text FROM failed_requests f WHERE id = ${id}`;
    expect(row!.text).not.toContain("secret");
  });
});

test("wrong queries are 400, and name what is wrong", async () => {
  for (const query of [
    "limit=0",
    "limit=201",
    "status=x",
    "start_date=soon",
    "other=1",
    "after=%00",
  ]) {
    expect((await gateway.request("GET", `/v1/requests?${query}`)).status).toBe(400);
  }
});

test("failures older than 30 days are removed, younger ones stay", async () => {
  const day = 86_400_000;
  const rows = [29, 31].map((days) =>
    failure(gateway.organizationId, `req_old_${days}`, { ageMs: days * day }),
  );
  await insertFailedRequests(gateway.sql, rows);
  expect(await removeOldFailedRequests(gateway.sql)).toBe(false);
  const left = await gateway.sql`SELECT id FROM failed_requests WHERE id LIKE 'req_old_%'`;
  expect(left.map(({ id }) => id)).toEqual(["req_old_29"]);
});
