import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import { createBatch, endedBatch, readBatch, requestLine } from "../support/batches.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";

type Fields = Record<string, unknown>;

let gateway: TestGateway;
let operator: string;
let first: StubProvider;
let second: StubProvider;

beforeAll(async () => {
  first = startStubProvider();
  second = startStubProvider();
  gateway = await startTestGateway({
    configuration: {
      providers: [
        {
          id: "filed",
          type: "openai-compatible",
          base_url: first.url,
          api_key: "sk-of-the-file-1234567890",
        },
      ],
      models: [
        {
          id: "acme/filed",
          input_cost_per_token: 1e-6,
          output_cost_per_token: 2e-6,
          context_length: 8192,
          endpoints: [{ provider: "filed", model: "filed" }],
        },
        {
          id: "acme/for-one",
          input_cost_per_token: 1e-6,
          output_cost_per_token: 2e-6,
          context_length: 8192,
          endpoints: [{ provider: "filed", model: "filed" }],
          organizations: ["org_of_one"],
        },
      ],
      aliases: [{ id: "usual", models: [{ id: "acme/filed" }] }],
    },
  });
  operator = await addOperator(gateway);
});
afterAll(async () => {
  await gateway?.stop();
  first.stop();
  second.stop();
});

const ANSWER = {
  ...{ id: "chatcmpl-1", object: "chat.completion", created: 1, model: "stub" },
  choices: [{ index: 0, message: { role: "assistant", content: "Hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
};

async function admin(method: string, path: string, body?: unknown, version?: number) {
  const headers: Record<string, string> =
    version === undefined ? {} : { "if-match": `"${version}"` };
  const response = await gateway.request(method, `/v1/admin/${path}`, body, {
    key: operator,
    headers,
  });
  return { status: response.status, body: (await response.json()) as Fields & { error: Fields } };
}

async function chat(model: string, key = gateway.secretKey, more: Fields = {}) {
  const body = { model, messages: [{ role: "user", content: "Hi" }], ...more };
  const response = await gateway.request("POST", "/v1/chat/completions", body, { key });
  return {
    status: response.status,
    model: response.headers.get("x-gateway-model"),
    body: (await response.json()) as Fields,
  };
}

const provider = (id: string, stub: StubProvider, more: Fields = {}) => ({
  id,
  type: "openai-compatible",
  base_url: stub.url,
  api_key: `sk-secret-of-${id}-1234567890`,
  ...more,
});
const model = (id: string, providers: readonly string[], more: Fields = {}) => ({
  id,
  context_length: 4096,
  input_cost_per_token: 1e-6,
  output_cost_per_token: 1e-6,
  endpoints: providers.map((name) => ({ provider: name, model: id.split("/").at(-1)! })),
  ...more,
});

test("a stored provider and model serve the next request, and a changed key is sent with the one after", async () => {
  const created = await admin("POST", "providers", provider("one", second));
  expect(created).toMatchObject({
    status: 201,
    body: { id: "one", type: "openai-compatible", source: "stored", version: 1, health: "ok" },
  });
  expect(JSON.stringify(created.body)).not.toContain("1234567890");
  expect(created.body.key_prefix).toBe("sk-sec");
  expect(created.body.updated_at).toMatch(/^\d{4}-/);
  expect((await admin("POST", "models", model("acme/one", ["one"]))).status).toBe(201);
  expect(await chat("acme/one")).toMatchObject({ status: 200, model: "acme/one" });
  expect(second.requests.at(-1)!.authorization).toBe("Bearer sk-secret-of-one-1234567890");

  const changed = await admin(
    "PATCH",
    "providers/one",
    { api_key: "sk-another-key-0987654321" },
    1,
  );
  expect(changed).toMatchObject({ status: 200, body: { version: 2, key_prefix: "sk-ano" } });
  await chat("acme/one");
  expect(second.requests.at(-1)!.authorization).toBe("Bearer sk-another-key-0987654321");
  const [row] = await gateway.sql`SELECT body, secret FROM configuration_entries WHERE id = 'one'`;
  expect(JSON.stringify(row!.body)).not.toContain("0987654321");
  expect(Buffer.from(row!.secret).toString("latin1")).not.toContain("0987654321");
});

test("a write that names another version, or none, is 409 and changes nothing", async () => {
  await admin("POST", "providers", provider("versioned", second));
  for (const version of [undefined, 7]) {
    const rejected = await admin(
      "PATCH",
      "providers/versioned",
      { max_parallel_requests: 3 },
      version,
    );
    expect(rejected).toMatchObject({ status: 409, body: { error: { code: "version_conflict" } } });
    expect((await admin("DELETE", "providers/versioned", undefined, version)).status).toBe(409);
  }
  const { body } = await admin("GET", "providers/versioned");
  expect(body).toMatchObject({ version: 1 });
  expect(body.max_parallel_requests).toBeUndefined();
  expect((await admin("DELETE", "providers/versioned", undefined, 1)).body as Fields).toEqual({
    id: "versioned",
    deleted: true,
  });
  expect((await admin("GET", "providers/versioned")).body.error.code).toBe("provider_not_found");
  // A later entry with the id cannot be changed by someone who has read the earlier one.
  const again = await admin("POST", "providers", provider("versioned", second));
  expect(again.body.version).toBe(3);
});

test("entries name their sources, and those of environment, file and lists are read-only", async () => {
  const { body } = await admin("GET", "providers");
  expect(body).toMatchObject({ object: "list", total: (body.data as unknown[]).length });
  const sources = Object.fromEntries((body.data as Fields[]).map(({ id, source }) => [id, source]));
  expect(sources).toMatchObject({ filed: "file", sandbox: "built_in", one: "stored" });
  const models = (await admin("GET", "models")).body.data as Fields[];
  const sourceOf = (id: string) => models.find((entry) => entry.id === id)?.source;
  expect([sourceOf("acme/filed"), sourceOf("acme/one"), sourceOf("sandbox/chat")]).toEqual([
    "file",
    "stored",
    "built_in",
  ]);
  for (const path of [
    "providers/filed",
    "models/acme/filed",
    "models/acme%2Ffiled",
    "aliases/usual",
  ]) {
    const rejected = await admin("DELETE", path, undefined, 0);
    expect(rejected).toMatchObject({ status: 409, body: { error: { code: "read_only" } } });
  }
});

test("a stored model has the members of its entry, and as effective those that clients see", async () => {
  await admin("POST", "models", model("acme/effective", ["one"], { name: "Effective" }));
  await admin("POST", "prices", {
    id: "of-effective",
    model: "acme/effective",
    pricing: { input_cost_per_token: 4e-6 },
  });
  const { body } = await admin("GET", "models/acme%2Feffective");
  expect(body).toMatchObject({ name: "Effective", input_cost_per_token: 1e-6 });
  expect(body.effective).toMatchObject({
    name: "Effective",
    category: "chat",
    pricing: { prompt: "0.000004", completion: "0.000001" },
    endpoints: [{ provider: "one", pricing: { prompt: "0.000004" } }],
  });
  expect((await admin("GET", "models/sandbox%2Fchat")).body.effective).toBeUndefined();
});

test("a model of the file names the organizations that see it", async () => {
  const { body } = await admin("GET", "models/acme%2Ffor-one");
  expect(body).toMatchObject({ source: "file", organizations: ["org_of_one"] });
  expect((await admin("GET", "models/acme%2Ffiled")).body.organizations).toBeUndefined();
});

test("an invalid entry is 400 with its field, and nothing is stored", async () => {
  const faults: [string, Fields, string | null][] = [
    ["providers", { ...provider("bad", second), type: "nonsense" }, "type"],
    ["providers", { ...provider("bad", second), base_url: "ftp://example.com" }, "base_url"],
    ["providers", { ...provider("bad", second), api_key_env: "SOME_VARIABLE" }, "api_key_env"],
    [
      "providers",
      { ...provider("bad", second), api_keys: [{ key_env: "SOME_VARIABLE" }] },
      "api_keys.0.key_env",
    ],
    ["models", model("acme/bad", ["one"], { input_cost_per_token: -1e-6 }), "input_cost_per_token"],
    [
      "models",
      model("acme/bad", ["one"], { input_cost_per_token: 1.23456789e-9 }),
      "input_cost_per_token",
    ],
    ["models", model("acme/bad", ["nobody"]), "endpoints.0.provider"],
    ["models", model("bad", ["one"]), "id"],
    ["aliases", { id: "bad", models: [{ id: "acme/absent" }] }, "models.0.id"],
    ["aliases", { id: "bad", models: [{ id: "usual" }] }, "models.0.id"],
    ["aliases", { id: "bad", models: [] }, "models"],
    [
      "prices",
      { id: "bad", model: "acme/one", pricing: { input_cost_per_token: -1 } },
      "pricing.input_cost_per_token",
    ],
    ["prices", { id: "bad", model: "acme/one", pricing: {} }, "pricing"],
  ];
  for (const [path, body, param] of faults) {
    const rejected = await admin("POST", path, body);
    expect([path, body, rejected.status, rejected.body.error?.param]).toEqual([
      path,
      body,
      400,
      param,
    ]);
  }
  const [left] =
    await gateway.sql`SELECT count(*)::int AS count FROM configuration_entries WHERE id LIKE '%bad'`;
  expect(left!.count).toBe(0);
});

test("an alias shares out first choices by weight, falls back in order, and names the model that served", async () => {
  await admin("POST", "models", model("acme/two", ["one"]));
  const alias = {
    id: "acme/bot",
    models: [
      { id: "acme/one", weight: 95 },
      { id: "acme/two", weight: 5 },
    ],
  };
  expect((await admin("POST", "aliases", alias)).status).toBe(201);
  const served = await Promise.all(
    Array.from({ length: 400 }, async () => (await chat("acme/bot")).model),
  );
  const canary = served.filter((name) => name === "acme/two").length;
  expect(new Set(served)).toEqual(new Set(["acme/one", "acme/two"]));
  expect(canary).toBeGreaterThan(2);
  expect(canary).toBeLessThan(60);

  await admin(
    "PATCH",
    "aliases/acme/bot",
    { models: [{ id: "acme/filed" }, { id: "acme/one" }] },
    1,
  );
  expect((await chat("acme/bot")).model).toBe("acme/filed");
  first.status = 500;
  try {
    expect(await chat("acme/bot")).toMatchObject({ status: 200, model: "acme/one" });
  } finally {
    first.status = 200;
  }
  const hidden = await admin("POST", "aliases", { id: "acme/one", models: [{ id: "acme/two" }] });
  expect(hidden).toMatchObject({ status: 409, body: { error: { code: "name_taken" } } });
});

test("an alias of one organization does not exist for others", async () => {
  const other = await gateway.addOrganization();
  const alias = {
    id: "private-alias",
    models: [{ id: "acme/one" }],
    organization_id: gateway.organizationId,
  };
  await admin("POST", "aliases", alias);
  expect((await chat("private-alias")).model).toBe("acme/one");
  expect((await chat("private-alias", other.secretKey)).body).toMatchObject({
    error: { code: "model_not_found" },
  });
});

test("a model or provider for other organizations does not exist: not by name, list, search, fallback or alias", async () => {
  const other = await gateway.addOrganization();
  const only = { organizations: [other.organization.id] };
  await admin("POST", "providers", provider("theirs", second, only));
  await admin("POST", "models", model("acme/theirs", ["one"], only));
  await admin("POST", "models", model("acme/at-theirs", ["theirs"]));
  await admin("POST", "models", model("acme/at-both", ["theirs", "one"]));
  await admin("POST", "aliases", { id: "to-theirs", models: [{ id: "acme/theirs" }] });
  for (const name of ["acme/theirs", "theirs", "acme/at-theirs", "to-theirs"]) {
    expect([name, (await chat(name)).status]).toEqual([name, 404]);
    expect([name, (await chat(name, other.secretKey)).status]).toEqual([name, 200]);
    expect([name, (await gateway.request("GET", `/v1/models/${name}`)).status]).toEqual([
      name,
      404,
    ]);
    expect((await chat("acme/one", gateway.secretKey, { models: ["acme/one", name] })).status).toBe(
      404,
    );
  }
  const lists = async (key: string) => {
    const all = (await (await gateway.request("GET", "/v1/models", undefined, { key })).json()) as {
      data: Fields[];
    };
    const search = await gateway.request("GET", "/v1/models/search?q=theirs", undefined, { key });
    return [all, await search.json()].map(({ data }) =>
      data
        .map(({ id }: Fields) => id)
        .filter((id: string) => id.includes("theirs"))
        .sort(),
    );
  };
  expect(await lists(gateway.secretKey)).toEqual([[], []]);
  expect(await lists(other.secretKey)).toEqual([
    ["acme/at-theirs", "acme/theirs"],
    ["acme/at-theirs", "acme/theirs"],
  ]);
  const both = (await (await gateway.request("GET", "/v1/models/acme/at-both")).json()) as {
    endpoints: Fields[];
  };
  expect(both.endpoints.map(({ provider: id }) => id)).toEqual(["one"]);
});

test("a price applies from its time, to the endpoint that it names, and the transaction names its source", async () => {
  await admin("POST", "models", model("acme/priced", ["one", "filed"]));
  const chargeOf = async () => {
    const answer = await chat("acme/priced");
    expect(answer.status).toBe(200);
    const [row] = await gateway.sql`
      SELECT amount_nano, details FROM transactions WHERE model = 'acme/priced' ORDER BY created_at DESC LIMIT 1`;
    return [-Number(row!.amount_nano), row!.details.price_source];
  };
  const [before] = await chargeOf();
  expect(await chargeOf()).toEqual([before, "stored"]);
  const price = {
    model: "acme/priced",
    pricing: { input_cost_per_token: 1e-5, output_cost_per_token: 1e-5 },
  };
  await admin("POST", "prices", {
    id: "later",
    ...price,
    valid_from: new Date(Date.now() + 3_600_000).toISOString(),
  });
  await admin("POST", "prices", { id: "elsewhere", ...price, provider: "filed" });
  expect(await chargeOf()).toEqual([before, "stored"]);
  const now = await admin("POST", "prices", {
    id: "now",
    ...price,
    valid_from: new Date(Date.now() - 1000).toISOString(),
  });
  expect(now.status).toBe(201);
  expect(await chargeOf()).toEqual([Number(before) * 10, "stored"]);
  const soon = new Date(Date.now() + 400).toISOString();
  await admin("POST", "prices", {
    id: "soon",
    model: "acme/priced",
    valid_from: soon,
    pricing: { input_cost_per_token: 2e-5, output_cost_per_token: 2e-5 },
  });
  await Bun.sleep(700);
  expect(await chargeOf()).toEqual([Number(before) * 20, "stored"]);
  await chat("acme/filed");
  await chat("sandbox/chat");
  const rows = await gateway.sql`
    SELECT model, details->>'price_source' AS source FROM transactions WHERE model IN ('acme/filed', 'sandbox/chat')`;
  expect(new Set(rows.map((row) => `${row.model} ${row.source}`))).toEqual(
    new Set(["acme/filed file", "sandbox/chat built_in"]),
  );
});

test("what others need is not deleted, and the error lists the users", async () => {
  const rejected = await admin("DELETE", "providers/one", undefined, 2);
  expect(rejected).toMatchObject({ status: 409, body: { error: { code: "in_use" } } });
  expect(rejected.body.error.used_by).toContainEqual({ type: "model", id: "acme/one" });
  expect((await chat("acme/one")).status).toBe(200);
  await admin("POST", "models", model("acme/used", ["one"]));
  await admin("POST", "aliases", { id: "of-used", models: [{ id: "acme/used" }] });
  const used = await admin("DELETE", "models/acme/used", undefined, 1);
  expect(used.body.error).toMatchObject({
    code: "in_use",
    used_by: [{ type: "alias", id: "of-used" }],
  });
});

test("a model that lines of an open batch name is neither deleted nor changed so that it is lost", async () => {
  await admin("POST", "models", {
    ...model("acme/slow", []),
    endpoints: [{ provider: "sandbox", model: "slow-first-token" }],
  });
  await admin("POST", "aliases", { id: "batch-name", models: [{ id: "acme/slow" }] });
  const body = { messages: [{ role: "user", content: "Hi" }], max_tokens: 4 };
  const lines = ["acme/slow", "batch-name"]
    .map((name, at) => requestLine(String(at), { ...body, model: name }))
    .join("");
  const { id } = await createBatch(gateway, lines);
  await until("its lines are read", async () => (await readBatch(gateway, id)).in_progress_at > 0);
  const use = { type: "batch", id };
  const deleted = await admin("DELETE", "aliases/batch-name", undefined, 1);
  expect(deleted).toMatchObject({ status: 409, body: { error: { used_by: [use] } } });
  const hidden = await admin("PATCH", "models/acme/slow", { endpoints: [] }, 1);
  expect(hidden.status).toBe(400);
  const lost = await admin("DELETE", "models/acme/slow", undefined, 1);
  expect(lost.body.error.used_by).toContainEqual(use);
  await endedBatch(gateway, id);
  expect((await admin("DELETE", "aliases/batch-name", undefined, 1)).status).toBe(200);
  expect((await admin("DELETE", "models/acme/slow", undefined, 1)).status).toBe(200);
});

test("headers of a provider reach it through its proxy, and are not shown", async () => {
  const seen: { url: string | undefined; headers: IncomingHttpHeaders }[] = [];
  const proxy = createServer((request, response) => {
    seen.push({ url: request.url, headers: request.headers });
    request.resume();
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(request.method === "GET" ? { data: [] } : ANSWER));
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port } = proxy.address() as AddressInfo;
  const entry = {
    ...{ id: "proxied", type: "openai-compatible", base_url: "http://models.example/v1" },
    headers: { "X-Team": "secret-of-header", Authorization: "Token of-header" },
    proxy: `http://user:secret-of-proxy@127.0.0.1:${port}`,
  };
  const refused = await admin("POST", "providers", { ...entry, headers: { Host: "evil" } });
  expect(refused.body.error).toMatchObject({ code: "invalid_body", param: "headers" });
  const created = await admin("POST", "providers", entry);
  expect(created).toMatchObject({ status: 201, body: { health: "ok" } });
  const shown = JSON.stringify((await admin("GET", "providers/proxied")).body);
  expect(shown).toContain("X-Team");
  expect(shown).not.toContain("secret-of");
  await admin("POST", "models", model("acme/proxied", ["proxied"]));
  expect((await chat("acme/proxied")).status).toBe(200);
  const { url, headers } = seen.at(-1)!;
  expect(url).toBe("http://models.example/v1/chat/completions");
  expect(headers).toMatchObject({ "x-team": "secret-of-header", authorization: "Token of-header" });
  expect(headers["proxy-authorization"]).toBe(`Basic ${btoa("user:secret-of-proxy")}`);
  // A change of another member keeps both.
  await admin("PATCH", "providers/proxied", { max_parallel_requests: 5 }, 1);
  expect((await chat("acme/proxied")).status).toBe(200);
  expect(seen.at(-1)!.headers["x-team"]).toBe("secret-of-header");
  proxy.close();
});

test("a price entry sets the prices of tuned models", async () => {
  const trained = "sandbox/chat-2026-01-01";
  const entry = { id: "tuned", model: trained, pricing: { tuned_input_cost_per_token: 5e-6 } };
  expect((await admin("POST", "prices", entry)).status).toBe(201);
  const tuned = "ft:priced";
  await gateway.sql`
    INSERT INTO tuned_models (id, organization_id, job_id, base_model, provider_id, provider_model, created_at)
    SELECT ${tuned}, id, 'ftjob-priced', ${trained}, 'sandbox', 'chat-2026-01-01', now() FROM organizations LIMIT 1`;
  await chat(tuned);
  await chat(trained);
  const rows = await gateway.sql`
    SELECT model, details->>'price_source' AS source FROM transactions WHERE model IN (${tuned}, ${trained})`;
  expect(new Map(rows.map((row) => [row.model, row.source]))).toEqual(
    new Map([
      [tuned, "stored"],
      [trained, "built_in"],
    ]),
  );
});

test("a provider that does not answer is stored, marked and not used", async () => {
  const dead = startStubProvider();
  dead.stop();
  const created = await admin("POST", "providers", provider("dead", dead));
  expect(created).toMatchObject({ status: 201, body: { health: "unreachable" } });
  await admin("POST", "models", model("acme/with-dead", ["dead", "one"]));
  const answer = await chat("acme/with-dead", gateway.secretKey, { route_explain: true });
  expect(answer.status).toBe(200);
  const test = await admin("POST", "providers/dead/test");
  expect(test).toMatchObject({ status: 200, body: { ok: false, status: null } });
  expect(test.body.message).toBeString();
});

test("a test lists the provider's models, chats with one, and says why a wrong key fails", async () => {
  const good = await admin("POST", "providers/one/test", { model: "one" });
  expect(good.body).toMatchObject({ ok: true, status: 200, models: ["stub-1"] });
  expect(good.body.sent).toHaveLength(2);
  expect(second.requests.at(-1)!.body).toMatchObject({ model: "one", max_tokens: 1 });
  second.rejectsKeys = true;
  try {
    const bad = await admin("POST", "providers/one/test");
    expect(bad.body).toMatchObject({ ok: false, status: 401 });
    expect(bad.body.message).toEndWith("with status 401: Incorrect API key provided.");
    expect((await admin("POST", "models/acme/one/test")).body.ok).toBe(false);
  } finally {
    second.rejectsKeys = false;
  }
  expect((await admin("POST", "models/acme%2Fone/test")).body.ok).toBe(true);
  expect((await admin("POST", "aliases/acme/bot/test")).body.ok).toBe(true);
});

test("each change is an act of the operator in the audit log, without secrets", async () => {
  const log = (await (
    await gateway.request("GET", "/v1/admin/audit_log?object_id=one&limit=50", undefined, {
      key: operator,
    })
  ).json()) as { data: Fields[] };
  const acts = log.data.map(({ action }) => action);
  expect(acts).toEqual(["provider.updated", "provider.created"]);
  expect(JSON.stringify(log)).not.toContain("0987654321");
  expect(log.data[0]).toMatchObject({
    actor: { kind: "operator" },
    before: { key_prefix: "sk-sec" },
    after: { key_prefix: "sk-ano" },
  });
});

test("keys of organizations cannot see or change the configuration", async () => {
  for (const key of [gateway.secretKey, gateway.managementKey]) {
    const response = await gateway.request("POST", "/v1/admin/providers", provider("x", second), {
      key,
    });
    expect(response.status).toBe(403);
  }
});

test("a model of an alias that is inactive or that an organization does not see is left out", async () => {
  const only = { organizations: ["org_of_others"] };
  await admin("POST", "models", model("acme/hidden", ["one"], only));
  await admin("POST", "models", model("acme/resting", ["one"], { is_active: false }));
  const models = ["acme/hidden", "acme/resting", "acme/one"].map((id) => ({ id, weight: 1 }));
  await admin("POST", "aliases", { id: "partly", models });
  for (let at = 0; at < 5; at++) {
    expect(await chat("partly")).toMatchObject({ status: 200, model: "acme/one" });
  }
  await admin("POST", "aliases", { id: "nothing", models: [{ id: "acme/hidden" }] });
  const { status, body } = await chat("nothing");
  expect(status).toBe(404);
  expect(JSON.stringify(body)).not.toContain("acme/hidden");
});

test("a provider that replaces a working one is used while it is checked", async () => {
  const slow = startStubProvider();
  slow.listDelayMs = 500;
  try {
    const storing = admin("POST", "providers", { ...provider("filed", slow) });
    const served: number[] = [];
    while ((await Promise.race([storing, Bun.sleep(20)])) === undefined) {
      served.push((await chat("acme/filed")).status);
    }
    expect(served.length).toBeGreaterThan(5);
    expect(served.filter((status) => status !== 200)).toEqual([]);
    expect(slow.requests.length).toBeGreaterThan(0);
    const removed = await admin("DELETE", "providers/filed", undefined, 1);
    expect(removed.status).toBe(200);
    expect((await chat("acme/filed")).status).toBe(200);
    expect(first.requests.at(-1)!.authorization).toBe("Bearer sk-of-the-file-1234567890");
  } finally {
    slow.stop();
  }
});

test("a change never loses a secret that this instance cannot open", async () => {
  await admin("POST", "providers", provider("locked", second));
  const foreign = Buffer.alloc(64, 1);
  await gateway.sql`UPDATE configuration_entries SET secret = ${foreign} WHERE id = 'locked'`;
  const changed = await admin("PATCH", "providers/locked", { max_parallel_requests: 2 }, 1);
  expect(changed.status).toBe(500);
  const [row] = await gateway.sql`SELECT secret FROM configuration_entries WHERE id = 'locked'`;
  expect(Buffer.from(row!.secret).equals(foreign)).toBe(true);
  await gateway.sql`DELETE FROM configuration_entries WHERE id = 'locked'`;
});

test("an organization cannot add a key for a provider of others", async () => {
  const stated = { provider: "theirs", key: "sk-a-key-of-ours-12345" };
  const key = gateway.managementKey;
  const rejected = await gateway.request("POST", "/v1/provider_keys", stated, { key });
  const { error } = (await rejected.json()) as { error: Fields };
  expect(rejected.status).toBe(400);
  expect(error.message).not.toContain("theirs");
});
