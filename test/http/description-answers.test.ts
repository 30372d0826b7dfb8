import { afterAll, beforeAll, expect, test } from "bun:test";
import { Compile } from "typebox/schema";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { fetchResolvedDocument } from "../support/openapi-document.ts";

interface Schema {
  readonly properties?: Record<string, Schema>;
  readonly items?: Schema;
  readonly additionalProperties?: unknown;
  readonly anyOf?: readonly Schema[];
}
interface Described {
  readonly content: Record<string, { readonly schema: Schema }>;
}
interface Document {
  readonly paths: Record<
    string,
    Record<
      string,
      {
        readonly security: readonly Record<string, readonly string[]>[];
        readonly responses: Record<string, Described & { readonly $ref?: string }>;
      }
    >
  >;
  readonly components: {
    readonly securitySchemes: Record<string, { readonly type: string; readonly name?: string }>;
    readonly responses: Record<string, Described>;
    readonly schemas: { readonly Error: Schema };
  };
}

let gateway: ChatGateway;
let document: Document;
beforeAll(async () => {
  gateway = await startChatGateway();
  document = await fetchResolvedDocument(gateway.baseUrl);
});
afterAll(() => gateway.stop());

/** The schema of an answer as the description has it. */
function schemaOf(method: string, path: string, status: number, type: string): Schema {
  const { responses } = document.paths[path]![method.toLowerCase()]!;
  const response = responses[status];
  if (response === undefined) throw new Error(`${method} ${path} does not tell of ${status}`);
  if (status >= 400) return document.components.schemas.Error;
  return response.content[type]!.schema;
}

/** Members that the schema does not tell of, with the way to them. */
function untold(schema: Schema, value: unknown, path = ""): string[] {
  const { properties, items, anyOf } = schema;
  if (Array.isArray(value)) {
    return items === undefined ? [] : value.flatMap((item) => untold(items, item, `${path}[]`));
  }
  if (typeof value !== "object" || value === null || properties === undefined) return [];
  if (anyOf !== undefined || schema.additionalProperties !== undefined) return [];
  return Object.entries(value).flatMap(([name, member]) =>
    Object.hasOwn(properties, name)
      ? untold(properties[name]!, member, `${path}.${name}`)
      : [`${path}.${name}`],
  );
}

async function expectAsDescribed(
  response: Response,
  method: string,
  path: string,
): Promise<unknown> {
  const body: unknown = await response.json();
  const schema = schemaOf(method, path, response.status, "application/json");
  expect(Compile(schema as never).Errors(body)[1]).toEqual([]);
  if (path !== "/v1/chat/completions") expect(untold(schema, body)).toEqual([]);
  return body;
}

test("a key is taken in each header that is described, on calls and on administration", async () => {
  const schemes = document.components.securitySchemes;
  const headersOf = (name: string): Record<string, string> => {
    const { type, name: header } = schemes[name]!;
    return type === "http"
      ? { authorization: `Bearer ${gateway.secretKey}` }
      : { [header!]: gateway.secretKey };
  };
  expect(Object.keys(schemes).map((name) => Object.keys(headersOf(name))[0]!)).toEqual([
    "authorization",
    "x-api-key",
  ]);
  for (const [method, path] of [
    ["POST", "/v1/messages"],
    ["POST", "/v1/messages/count_tokens"],
    ["POST", "/v1/chat/completions"],
    ["GET", "/v1/models"],
    ["GET", "/v1/key"],
  ] as const) {
    const { security } = document.paths[path]![method.toLowerCase()]!;
    expect(security.flatMap((one) => Object.keys(one))).toEqual(Object.keys(schemes));
    const ask = async (headers: Record<string, string>) => {
      const init = { method, headers, ...(method === "POST" && { body: "{}" }) };
      const response = await fetch(`${gateway.baseUrl}${path}`, init);
      await response.text();
      return response.status;
    };
    expect(await ask({})).toBe(401);
    for (const name of Object.keys(schemes)) {
      expect(await ask({ "content-type": "application/json", ...headersOf(name) })).toBe(
        // An empty body lacks its model.
        method === "POST" ? 400 : 200,
      );
    }
  }
});

test("keys are answered as they are described", async () => {
  const ask = async (method: string, path: string, template: string, body?: object) =>
    expectAsDescribed(await gateway.request(method, path, body), method, template);
  const key = { name: "a", daily_budget_usd: 1, allowed_models: ["x"] };
  const { id } = (await ask("POST", "/v1/keys", "/v1/keys", key)) as { id: string };
  await ask("POST", "/v1/keys", "/v1/keys", key);
  await ask("POST", "/v1/keys", "/v1/keys", {});
  await ask("GET", "/v1/keys", "/v1/keys");
  await ask("GET", `/v1/keys/${id}?x=1`, "/v1/keys/{id}");
  await ask("GET", "/healthz?x=1", "/healthz");
  await ask("POST", "/v1/keys", "/v1/keys", { name: "b" });
  await ask("PATCH", `/v1/keys/${id}`, "/v1/keys/{id}", { name: "b" });
  for (const method of ["GET", "PATCH", "DELETE", "GET", "PATCH", "DELETE"]) {
    await ask(method, `/v1/keys/${id}`, "/v1/keys/{id}", method === "PATCH" ? {} : undefined);
  }
});

test("models and credits are answered as they are described", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await gateway.chat(slug);
  const asked: [path: string, template: string][] = [
    ["/v1/models", "/v1/models"],
    ["/v1/models?active=1", "/v1/models"],
    [`/v1/models/test/${slug}`, "/v1/models/{id}"],
    ["/v1/models/none", "/v1/models/{id}"],
    ["/v1/models/count", "/v1/models/count"],
    ["/v1/models/search?q=test", "/v1/models/search"],
    [`/v1/models/compare?models=test/${slug}`, "/v1/models/compare"],
    ["/v1/models/compare?models=none", "/v1/models/compare"],
    ["/v1/credits", "/v1/credits"],
    ["/v1/organization", "/v1/organization"],
    ["/v1/credits/transactions", "/v1/credits/transactions"],
    ["/v1/credits/transactions?limit=0", "/v1/credits/transactions"],
    ["/v1/usage", "/v1/usage"],
    ["/v1/usage/latency", "/v1/usage/latency"],
    ["/v1/usage?group_by=model,key,provider,user", "/v1/usage"],
    ["/v1/usage?group_by=none", "/v1/usage"],
    ["/v1/requests", "/v1/requests"],
    ["/v1/requests?after=none", "/v1/requests"],
    ["/v1/requests/none", "/v1/requests/{id}"],
    ["/v1/credits/transactions?key_id=none&model=none", "/v1/credits/transactions"],
  ];
  for (const [path, template] of asked) {
    await expectAsDescribed(await gateway.request("GET", path), "GET", template);
  }
});

test("chat completions are answered as they are described, whatever becomes of them", async () => {
  const path = "/v1/chat/completions";
  const good = gateway.modelThat({ do: "complete" });
  const send = (headers: Record<string, string>, body: string) =>
    fetch(`${gateway.baseUrl}${path}`, { method: "POST", headers, body });
  const answers = [
    await gateway.chat(good),
    await gateway.chat(good, { messages: [] }),
    await send({}, "{}"),
    await gateway.chat(good, {}, { key: await addSecretKey(gateway, { dailyBudgetNano: 0n }) }),
    await gateway.chat(good, {}, { key: await addSecretKey(gateway, { scopes: ["embeddings"] }) }),
    await gateway.chat("none"),
    await gateway.chat(gateway.modelThat({ do: "error", status: 408 })),
    await send({ authorization: `Bearer ${gateway.secretKey}`, "content-type": "text/plain" }, "x"),
    await gateway.chat(gateway.modelThat({ do: "rate-limited", retryAfter: { seconds: 60 } })),
    await gateway.chat(gateway.modelThat({ do: "error", status: 500 })),
  ];
  expect(answers.map(({ status }) => status)).toEqual([
    200, 400, 401, 402, 403, 404, 408, 415, 429, 502,
  ]);
  for (const answer of answers) await expectAsDescribed(answer, "POST", path);
});

test("each frame of a stream is a chunk as it is described", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const body = chatBody(slug, { stream: true, stream_options: { include_usage: true } });
  const text = await (await gateway.request("POST", "/v1/chat/completions", body)).text();
  const frames = text.split("\n\n").filter((frame) => frame.startsWith("data: {"));
  const schema = schemaOf("POST", "/v1/chat/completions", 200, "text/event-stream");
  const check = Compile(schema as never);
  expect(frames.length).toBeGreaterThan(2);
  for (const frame of frames) {
    expect(check.Errors(JSON.parse(frame.slice("data: ".length)))[1]).toEqual([]);
  }
});
