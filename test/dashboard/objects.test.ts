import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { AUTHORITY } from "../http/authority.ts";
import { type IsolationGateway, MARK, startIsolationGateway } from "../http/isolation-objects.ts";
import { joined, manage, type SignedInPerson } from "../people/people.ts";
import { addKeyOf, addSecretKey } from "../support/api-keys.ts";
import { chatLine, createBatch, endedBatch, type Json } from "../support/batches.ts";
import { type DashboardBrowser, signIn } from "../support/dashboard-session.ts";
import { uploaded } from "../support/files-gateway.ts";
import { lessonsText } from "../support/tuning-gateway.ts";
import { until } from "../support/until.ts";

/*
 * The objects of sessions: which roles see, read and change them, and whose they are.
 */

const TIMEOUT_MS = 90_000;
const ROLES = ["owner", "admin", "developer", "billing", "viewer"] as const;
type RoleName = (typeof ROLES)[number];

let gateway: IsolationGateway;
let here: Record<RoleName, SignedInPerson>;
let elsewhere: SignedInPerson;
/** Objects that a key of the developer has created. */
let own: Record<string, string>;

beforeAll(async () => {
  gateway = await startIsolationGateway({
    ...{ GATEWAY_TRUSTED_PROXIES: "127.0.0.0/8", GATEWAY_TEST_PAYMENTS: "true" },
  });
  const { body: team } = await manage(gateway, "POST", "teams", { name: "builders" });
  const people: Partial<Record<RoleName, SignedInPerson>> = {};
  for (const role of ROLES) people[role] = await joined(gateway, role, { team_ids: [team.id] });
  here = people as Record<RoleName, SignedInPerson>;
  elsewhere = await joined(gateway, "owner", { key: gateway.stranger.managementKey });
  const created = await here.developer.call("POST", "v1/keys", { name: "mine", team_id: team.id });
  const { key } = (await created.json()) as Json;
  own = await objectsOf(key);
}, TIMEOUT_MS);
afterAll(() => gateway.stop());

async function objectsOf(key: string): Promise<Record<string, string>> {
  const made = async (path: string, body: object) => {
    const response = await gateway.request("POST", path, body, { key });
    if (!response.ok) throw new Error(`${path}: ${await response.text()}`);
    return ((await response.json()) as { id: string }).id;
  };
  const file = (await uploaded(gateway, "assistants", "my text", { key })).id;
  const lessons = (await uploaded(gateway, "fine-tune", lessonsText(), { key })).id;
  const requests = (await uploaded(gateway, "batch", chatLine("mine"), { key })).id;
  const batch = await made("/v1/batches", {
    ...{ input_file_id: requests, endpoint: "/v1/chat/completions", completion_window: "24h" },
  });
  const objects = {
    files: file,
    batches: batch,
    vector_stores: await made("/v1/vector_stores", { name: "mine", file_ids: [file] }),
    responses: await made("/v1/responses", { model: "sandbox/chat", input: "mine" }),
    conversations: await made("/v1/conversations", {}),
    fine_tuning_jobs: await made("/v1/fine_tuning/jobs", {
      ...{ model: "sandbox/chat-2026-01-01", training_file: lessons },
    }),
  };
  return objects;
}

const OTHERS = () => {
  const { file, requestBatch, store, response, conversation, job } = gateway.objects;
  return {
    files: file,
    batches: requestBatch,
    vector_stores: store,
    responses: response,
    conversations: conversation,
    fine_tuning_jobs: job,
  } as Record<string, string>;
};

const KINDS = [
  "files",
  "batches",
  "vector_stores",
  "responses",
  "conversations",
  "fine_tuning_jobs",
];

async function json(browser: DashboardBrowser, method: string, path: string): Promise<Json> {
  const response = await browser.call(method, `objects/${path}`);
  return { ...((await response.json()) as Json), http: response.status };
}

/** Returns all ids of a list, over its pages. */
async function idsOf(browser: DashboardBrowser, kind: string, limit = 2): Promise<string[]> {
  const ids: string[] = [];
  for (let after = ""; ; after = `&after=${ids.at(-1)}`) {
    const page = await json(browser, "GET", `${kind}?limit=${limit}${after}`);
    expect(page.http).toBe(200);
    ids.push(...page.data.map(({ id }: Json) => id));
    if (!page.has_more) return ids;
  }
}

describe.each(KINDS)("%s", (kind) => {
  test("are listed for roles that see all, newest first, each once over the pages", async () => {
    for (const role of ["owner", "admin", "viewer"] as const) {
      const ids = await idsOf(here[role], kind);
      expect(ids).toContain(OTHERS()[kind]!);
      expect(ids).toContain(own[kind]!);
      expect(ids).toEqual([...ids].toSorted().reverse());
      expect(new Set(ids).size).toBe(ids.length);
    }
  });

  test("of other keys do not exist for a developer", async () => {
    const ids = await idsOf(here.developer, kind);
    expect(ids).toContain(own[kind]!);
    expect(ids).not.toContain(OTHERS()[kind]!);
    for (const [method, path] of callsOn(kind, OTHERS()[kind]!)) {
      expect([path, (await json(here.developer, method, path)).http]).toEqual([path, 404]);
    }
  });

  test("are closed to the role billing", async () => {
    for (const [method, path] of [["GET", kind] as const, ...callsOn(kind, own[kind]!)]) {
      const { http, error } = await json(here.billing, method, path);
      expect([path, http, error.code]).toEqual([path, 403, "role_not_permitted"]);
    }
  });

  test("of another organization do not exist, whatever the role", async () => {
    expect(JSON.stringify(await json(elsewhere, "GET", kind))).not.toContain(MARK);
    for (const [method, path] of callsOn(kind, OTHERS()[kind]!)) {
      expect([path, (await json(elsewhere, method, path)).http]).toEqual([path, 404]);
    }
  });

  test("are only read by a viewer, without their contents", async () => {
    for (const [method, path] of callsOn(kind, OTHERS()[kind]!)) {
      const { http } = await json(here.viewer, method, path);
      expect([method, path, http]).toEqual([method, path, method === "GET" ? 200 : 403]);
    }
  });
});

/** The calls on one object. */
function callsOn(kind: string, id: string): (readonly [method: string, path: string])[] {
  const object = `${kind}/${id}`;
  switch (kind) {
    case "files":
      return [
        ["POST", `${object}/download_url`],
        ["DELETE", object],
      ];
    case "batches":
      return [
        ["GET", object],
        ["GET", `${object}/failed_lines`],
        ["POST", `${object}/cancel`],
      ];
    case "vector_stores":
      return [
        ["GET", object],
        ["GET", `${object}/files`],
        ["DELETE", `${object}/files/${gateway.objects.file}`],
        ["DELETE", object],
      ];
    case "fine_tuning_jobs":
      return [
        ["GET", object],
        ["GET", `${object}/events`],
        ["POST", `${object}/cancel`],
      ];
    default:
      return [
        ["POST", `${object}/content`],
        ["DELETE", object],
      ];
  }
}

test("a session still reaches no route that calls a model or that only secret keys call", async () => {
  for (const [route, authority] of Object.entries(AUTHORITY)) {
    if (typeof authority === "string" || !("secret" in authority)) continue;
    const [method, path] = route.split(" ") as [string, string];
    const response = await here.owner.call(method, path.slice(1).replaceAll(/\{\w+\}/g, "none_1"));
    expect([route, [404, 405].includes(response.status)]).toEqual([route, true]);
  }
});

test("a management key without the scope sees no objects", async () => {
  const key = await addKeyOf("management", gateway, { scopes: ["keys:manage"] });
  const browser = await signIn(gateway, key);
  for (const kind of KINDS) {
    const { http, error } = await json(browser, "GET", kind);
    expect([kind, http, error.code]).toEqual([kind, 403, "missing_scope"]);
  }
});

test(
  "a batch of which every line failed shows the errors and no cost, and a partly failed one its charges",
  async () => {
    const key = await addSecretKey(gateway, { allowedModels: ["no/other"] });
    const lines = Array.from({ length: 80 }, (_, at) => chatLine(`line-${at + 1}`)).join("");
    const failing = await createBatch(gateway, lines, { key });
    await endedBatch(gateway, failing.id);
    const shown = await json(here.viewer, "GET", `batches/${failing.id}`);
    expect(shown).toMatchObject({ total: 80, completed: 0, failed: 80, cost_usd: 0 });
    const failures = await json(here.viewer, "GET", `batches/${failing.id}/failed_lines`);
    expect(failures).toMatchObject({
      errors: [{ code: "model_not_allowed", count: 80 }],
      counted: 80,
      is_deleted: false,
    });
    expect(failures.data[0]).toMatchObject({
      custom_id: expect.stringMatching(/^line-/),
      status: 403,
    });
    const ids = (await json(here.viewer, "GET", "batches?state=failing")).data.map(
      ({ id }: Json) => id,
    );
    expect(ids).toContain(failing.id);

    const mixed = await createBatch(
      gateway,
      chatLine("good") + chatLine("bad", { model: "no/such" }) + chatLine("fine"),
    );
    const ended = await endedBatch(gateway, mixed.id);
    const { cost_usd: cost } = await json(here.owner, "GET", `batches/${mixed.id}`);
    const content = await gateway.request("GET", `/v1/files/${ended.output_file_id}/content`);
    const requests = (await content.text())
      .trim()
      .split("\n")
      .map((line) => (JSON.parse(line) as Json).response.request_id as string);
    const [charged] = await gateway.sql<{ nano: string }[]>`
    SELECT (-sum(amount_nano))::text AS nano FROM transactions
    WHERE request_id = ANY (${gateway.sql.array(requests)}::text[])`;
    expect(requests).toHaveLength(2);
    expect(Math.round(cost * 1e9)).toBe(Number(charged!.nano));
    expect(cost).toBeGreaterThan(0);

    // An instance of an earlier version counts lines without their charges: the sum would be too low.
    await gateway.sql`UPDATE batches SET costed_lines = costed_lines - 1 WHERE id = ${mixed.id}`;
    expect(await json(here.owner, "GET", `batches/${mixed.id}`)).toMatchObject({ cost_usd: null });

    const errorFile = ended.error_file_id as string;
    expect((await json(here.owner, "DELETE", `files/${errorFile}`)).http).toBe(200);
    const after = await json(here.owner, "GET", `batches/${mixed.id}/failed_lines`);
    expect(after).toMatchObject({ is_deleted: true, data: [] });
  },
  TIMEOUT_MS,
);

test("reads of contents and changes are in the audit log with the person, and reads of lists are not", async () => {
  const entries = async (id: string) => {
    const { body } = await manage(gateway, "GET", `audit_log?object_id=${id}`);
    return body.data.map(({ action, actor }: Json) => [action, actor.name]);
  };
  const { email } = here.developer;
  const opened = await json(here.developer, "POST", `responses/${own.responses}/content`);
  expect(opened.response.id).toBe(own.responses);
  expect(JSON.stringify(opened.input)).toContain("mine");
  expect(await entries(own.responses!)).toEqual([["response.read", email]]);

  const items = await json(
    here.owner,
    "POST",
    `conversations/${gateway.objects.conversation}/content`,
  );
  expect(JSON.stringify(items.data)).toContain(MARK);
  expect(await entries(gateway.objects.conversation)).toEqual([
    ["conversation.read", here.owner.email],
  ]);

  const { url } = await json(here.developer, "POST", `files/${own.files}/download_url`);
  expect(await (await fetch(url)).text()).toBe("my text");
  expect((await entries(own.files!))[0]).toEqual(["file.downloaded", email]);

  const file = gateway.objects.file;
  const removed = await json(
    here.owner,
    "DELETE",
    `vector_stores/${gateway.objects.store}/files/${file}`,
  );
  expect(removed.http).toBe(200);
  expect(await entries(gateway.objects.store)).toEqual([
    ["vector_store.file_removed", here.owner.email],
  ]);

  for (const [kind, action] of [
    ["files", "file.deleted"],
    ["vector_stores", "vector_store.deleted"],
    ["responses", "response.deleted"],
    ["conversations", "conversation.deleted"],
  ] as const) {
    const id = own[kind]!;
    expect([kind, (await json(here.developer, "DELETE", `${kind}/${id}`)).http]).toEqual([
      kind,
      200,
    ]);
    expect((await entries(id))[0]).toEqual([action, email]);
    expect((await json(here.developer, "DELETE", `${kind}/${id}`)).http).toBe(404);
    expect((await entries(id)).filter(([one]: string[]) => one === action)).toHaveLength(1);
  }
});

test("a fine-tuning job shows its curve and its messages, is cancelled once, and then has a final state", async () => {
  const { job } = gateway.objects;
  const ended = await json(here.viewer, "GET", `fine_tuning_jobs/${job}`);
  expect(ended.status).toBe("succeeded");
  const [charge] = await gateway.sql<{ nano: string }[]>`
    SELECT (-t.amount_nano)::text AS nano FROM fine_tuning_jobs j
    JOIN transactions t ON t.request_id = j.request_id WHERE j.id = ${job}`;
  expect(Math.round(ended.cost_usd * 1e9)).toBe(Number(charge!.nano));
  const { data, curve } = await json(here.viewer, "GET", `fine_tuning_jobs/${job}/events`);
  expect(data.length).toBeGreaterThan(0);
  expect(curve.length).toBeGreaterThan(0);
  expect(curve.map(({ step }: Json) => step)).toEqual(
    curve.map(({ step }: Json) => step).toSorted((one: number, other: number) => one - other),
  );
  const again = await json(here.owner, "POST", `fine_tuning_jobs/${job}/cancel`);
  expect(again.http).toBe(409);
  const audited = await manage(gateway, "GET", `audit_log?object_id=${job}`);
  expect(audited.body.data).toEqual([]);
});

test(
  "a running job and a running batch are cancelled with an entry in the audit log",
  async () => {
    const job = await gateway.tune(undefined, {});
    expect((await json(here.owner, "POST", `fine_tuning_jobs/${job.id}/cancel`)).http).toBe(200);
    const cancelled = await json(here.owner, "GET", `fine_tuning_jobs/${job.id}`);
    expect(cancelled).toMatchObject({ status: "cancelled", held_usd: 0, cost_usd: null });
    const entry = async (id: string) =>
      (await manage(gateway, "GET", `audit_log?object_id=${id}`)).body.data;
    expect(await entry(job.id)).toMatchObject([
      { action: "fine_tuning_job.cancelled", actor: { name: here.owner.email } },
    ]);

    const lines = Array.from({ length: 300 }, (_, at) => chatLine(`line-${at}`)).join("");
    const batch = await createBatch(gateway, lines);
    const answer = await json(here.owner, "POST", `batches/${batch.id}/cancel`);
    expect(answer.http).toBe(200);
    expect(await entry(batch.id)).toMatchObject([
      { action: "batch.cancelled", actor: { name: here.owner.email } },
    ]);
    await endedBatch(gateway, batch.id);
    // The batch is cancelled already, so nothing changes.
    expect((await json(here.owner, "POST", `batches/${batch.id}/cancel`)).http).toBe(200);
    expect(await entry(batch.id)).toHaveLength(1);
  },
  TIMEOUT_MS,
);

test("the response cache shows its answers by model, its hits and what they saved", async () => {
  const cached = { model: "sandbox/chat", messages: [{ role: "user", content: "cache me" }] };
  const ask = async () => {
    const response = await gateway.request("POST", "/v1/chat/completions", cached, {
      headers: { "x-gateway-cache": "on" },
    });
    await response.text();
    return response.headers;
  };
  const before = await json(here.admin, "GET", "cache");
  await ask();
  const saved = (await ask()).get("x-gateway-cache-savings");
  const state = await until("the hit is counted", async () => {
    const now = await json(here.admin, "GET", "cache");
    return now.hits > before.hits ? now : undefined;
  });
  expect(state.hits).toBe(before.hits + 1);
  expect(Math.round((state.saved_usd - before.saved_usd) * 1e9)).toBe(
    Math.round(Number(saved) * 1e9),
  );
  expect(state.models[0]).toMatchObject({ model: "sandbox/chat" });
  expect((await json(here.developer, "GET", "cache")).http).toBe(403);
  expect((await json(elsewhere, "GET", "cache")).entries).toBe(0);
});

test("the overview lists what failed, for roles that see it, and not after a day", async () => {
  const { sql, organizationId } = gateway;
  const { store, file } = gateway.objects;
  await sql`UPDATE fine_tuning_jobs SET status = 'failed', finished_at = now() WHERE id = ${gateway.objects.job}`;
  await sql`INSERT INTO vector_store_files (id, organization_id, vector_store_id, file_id, status, attributes,
      max_chunk_tokens, overlap_tokens, created_at)
    VALUES ('vsf_failed', ${organizationId}, ${store}, ${file}, 'failed', '{}', 800, 400, now())`;
  const key = await addSecretKey(gateway, { dailyBudgetNano: 1_000n, name: "almost empty" });
  const spent = { model: "sandbox/chat", messages: [{ role: "user", content: "hi" }] };
  expect((await gateway.request("POST", "/v1/chat/completions", spent, { key })).status).toBe(402);
  const [row] = await sql<{ id: string }[]>`SELECT id FROM api_keys WHERE name = 'almost empty'`;
  const today = new Date().toISOString().slice(0, 10);
  await sql`INSERT INTO accounts (id, kind, organization_id, key_id, period_start, posted_nano)
    VALUES (${`day:${row!.id}:${today}`}, 'day', ${organizationId}, ${row!.id}, ${today}, 990)
    ON CONFLICT (id) DO UPDATE SET posted_nano = 990`;
  const issuesOf = async (browser: DashboardBrowser): Promise<Json[]> =>
    ((await (await browser.call("GET", "overview")).json()) as Json).object_issues;
  const issues = await until("the rejected request is recorded", async () => {
    const found = await issuesOf(here.owner);
    return found.some(({ kind }) => kind === "budget") ? found : undefined;
  });
  expect(issues).toContainEqual({
    kind: "fine_tuning_job",
    id: gateway.objects.job,
    model: expect.any(String),
  });
  expect(issues).toContainEqual({ kind: "vector_store", id: store, name: MARK, failed: 1 });
  expect(issues).toContainEqual({ kind: "budget", subject: "key", name: "almost empty" });
  expect(issues).toContainEqual(expect.objectContaining({ kind: "batch", failed: 80, total: 80 }));
  expect((await issuesOf(here.billing)).map(({ kind }) => kind)).not.toContain("batch");
  expect(await issuesOf(elsewhere)).toEqual([]);
  await sql`UPDATE batches SET ended_at = ended_at - interval '25 hours' WHERE ended_at IS NOT NULL`;
  expect((await issuesOf(here.owner)).map(({ kind }) => kind)).not.toContain("batch");
});
