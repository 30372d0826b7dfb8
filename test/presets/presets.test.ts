import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";

const LONG = "x".repeat(70_000);
const TOOL = { type: "function", function: { name: "look", parameters: { type: "object" } } };

let gateway: ChatGateway;
let slug: string;
let names = 0;

beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());

const PRESETS = "/v1/presets";

async function create(body: Record<string, unknown>, key = gateway.managementKey) {
  const name = `preset ${names++}`;
  const response = await gateway.request("POST", PRESETS, { name, ...body }, { key });
  expect(response.status).toBe(201);
  return (await response.json()) as { id: string; name: string } & Record<string, unknown>;
}

/** What the provider was sent for a request that was served. */
async function sentFor(path: string, body: Record<string, unknown>) {
  const response = await gateway.request("POST", path, body);
  const text = await response.text();
  expect([response.status, response.status === 200 ? "" : text]).toEqual([200, ""]);
  return {
    text,
    headers: response.headers,
    sent: gateway.upstream.served.at(-1)!.requestBody as Record<string, unknown>,
  };
}

const hello = [{ role: "user", content: "hello" }];

describe("the collection", () => {
  test("a preset is made, found, listed, changed and deleted, and null takes away", async () => {
    const made = await create({ model: "test/x", system: "Be brief.", parameters: { top_p: 0.5 } });
    const path = `${PRESETS}/${made.id}`;
    const key = gateway.managementKey;
    const found = await gateway.request("GET", path, undefined, { key });
    expect(await found.json()).toEqual(made);
    const changed = await gateway.request("PATCH", path, { system: null, name: "other" }, { key });
    expect(await changed.json()).toMatchObject({
      ...{ id: made.id, name: "other", model: "test/x", system: null },
      parameters: { top_p: 0.5 },
    });
    const listed = await gateway.request("GET", PRESETS, undefined, { key });
    const { data } = (await listed.json()) as { data: { id: string }[] };
    expect(data[0]).toMatchObject({ id: made.id, name: "other" });
    const deleted = await gateway.request("DELETE", path, undefined, { key });
    expect(await deleted.json()).toEqual({ id: made.id, deleted: true });
    await expectError(
      await gateway.request("GET", path, undefined, { key }),
      404,
      "preset_not_found",
    );
    await expectError(
      await gateway.request("DELETE", path, undefined, { key }),
      404,
      "preset_not_found",
    );
  });

  test("a name is taken once in an organization, and another organization's preset is 404", async () => {
    const { id, name } = await create({});
    const key = gateway.managementKey;
    const taken = await gateway.request("POST", PRESETS, { name }, { key });
    await expectError(taken, 409, "name_taken");
    const second = await create({});
    const renamed = await gateway.request("PATCH", `${PRESETS}/${second.id}`, { name }, { key });
    await expectError(renamed, 409, "name_taken");
    const foreign = await gateway.addOrganization();
    await create({ name }, foreign.managementKey);
    for (const method of ["GET", "PATCH", "DELETE"]) {
      const body = method === "PATCH" ? { name: "mine" } : undefined;
      const refused = await gateway.request(method, `${PRESETS}/${id}`, body, {
        key: foreign.managementKey,
      });
      await expectError(refused, 404, "preset_not_found");
    }
    const used = await gateway.request(
      "POST",
      "/v1/chat/completions",
      { model: "sandbox/chat", preset: id, messages: hello },
      { key: foreign.secretKey },
    );
    await expectError(used, 404, "preset_not_found");
  });

  test.each([
    ["a field of another type", { parameters: { temperature: "hot" } }, "parameters.temperature"],
    ["a field beyond its bound", { parameters: { top_p: 2 } }, "parameters.top_p"],
    ["an unknown field", { parameters: { heat: 1 } }, "parameters.heat"],
    ["messages", { parameters: { messages: hello } }, "parameters.messages"],
    ["a preset", { parameters: { preset: "x" } }, "parameters.preset"],
    [
      "an idempotency key",
      { parameters: { metadata: { idempotency_key: "k" } } },
      "parameters.metadata.idempotency_key",
    ],
    [
      "a tool that the provider runs",
      { parameters: { tools: [{ type: "code" }] } },
      "parameters.tools.0.type",
    ],
    [
      "parameters that are too long",
      { parameters: { user: "u", metadata: { a: LONG } } },
      "parameters",
    ],
    ["a system text of another type", { system: 5 }, "system"],
    ["an unknown member", { sytem: "x" }, "sytem"],
    ["no name", { name: null }, "name"],
  ])("%s is refused when a preset is made", async (_, body, param) => {
    const response = await gateway.request(
      "POST",
      PRESETS,
      { name: `preset ${names++}`, ...body },
      { key: gateway.managementKey },
    );
    expect(response.status).toBe(400);
    const { error } = (await response.json()) as { error: { param: string } };
    expect(error.param).toBe(param);
  });

  test("an organization has at most 200 presets", async () => {
    const { managementKey: key } = await gateway.addOrganization();
    const statuses: number[] = [];
    for (let n = 0; n < 201; n++) {
      const response = await gateway.request("POST", PRESETS, { name: `p${n}` }, { key });
      statuses.push(response.status);
      await response.text();
    }
    expect(statuses.filter((status) => status === 201)).toHaveLength(200);
    expect(statuses.at(-1)).toBe(403);
  }, 60_000);
});

describe.each([
  ["short", "hello"],
  ["long", LONG],
])("requests with a %s body", (_, content) => {
  const messages = [{ role: "user", content }];

  test("a chat gets what it leaves open, and its own fields win", async () => {
    const preset = await create({
      model: `test/${slug}`,
      system: "Be brief.",
      parameters: { temperature: 0.25, max_tokens: 77, stop: ["END"], tools: [TOOL] },
    });
    for (const named of [preset.name, preset.id]) {
      const { sent } = await sentFor("/v1/chat/completions", {
        ...{ preset: named, messages, temperature: null, max_completion_tokens: 33 },
      });
      expect(sent).toMatchObject({ temperature: 0.25, max_tokens: 33, stop: ["END"] });
      expect(sent.tools).toEqual([TOOL]);
      expect(sent.messages).toEqual([{ role: "system", content: "Be brief." }, ...messages]);
      expect(sent).not.toHaveProperty("preset");
    }
    const own = [{ role: "developer", content: "Be long." }, ...messages];
    const { sent } = await sentFor("/v1/chat/completions", {
      ...{ preset: preset.id, messages: own, temperature: 0, tools: [] },
    });
    expect(sent.messages).toEqual(own);
    expect(sent).toMatchObject({ temperature: 0, max_tokens: 77 });
  });

  test("a model of the request stands against a list of the preset", async () => {
    const preset = await create({ model: "test/none", parameters: { models: ["test/nowhere"] } });
    const body = { model: `test/${slug}`, preset: preset.id, messages };
    await sentFor("/v1/chat/completions", body);
  });

  test("a message gets it in the words of its API", async () => {
    const preset = await create({
      model: `test/${slug}`,
      system: "Be brief.",
      parameters: {
        ...{ temperature: 0.5, stop: "END", tools: [TOOL], tool_choice: "required", user: "ada" },
        seed: 7,
      },
    });
    const { sent, headers } = await sentFor("/v1/messages", {
      ...{ preset: preset.name, max_tokens: 20, messages },
    });
    expect(sent).toMatchObject({ temperature: 0.5, stop: ["END"], tool_choice: "required" });
    expect(sent.user).toBe("ada");
    expect((sent.tools as unknown[])[0]).toMatchObject(TOOL);
    expect(sent.messages).toEqual([{ role: "system", content: "Be brief." }, ...messages]);
    expect(headers.get("x-gateway-dropped-parameters")).toContain("seed");
  });

  test("a response gets it in the words of its API", async () => {
    const preset = await create({
      model: `test/${slug}`,
      system: "Be brief.",
      parameters: { temperature: 0.5, max_tokens: 44, tools: [TOOL], reasoning: { effort: "low" } },
    });
    const { sent, text } = await sentFor("/v1/responses", { preset: preset.id, input: content });
    expect(sent).toMatchObject({ temperature: 0.5, max_tokens: 44 });
    expect((sent.tools as unknown[])[0]).toMatchObject(TOOL);
    expect(sent.messages).toEqual([{ role: "system", content: "Be brief." }, ...messages]);
    expect(JSON.parse(text)).toMatchObject({
      ...{ instructions: "Be brief.", temperature: 0.5, max_output_tokens: 44 },
    });
    const own = await sentFor("/v1/responses", {
      ...{ preset: preset.id, input: content, instructions: "Be long.", temperature: 1 },
    });
    expect(own.sent.messages).toEqual([{ role: "system", content: "Be long." }, ...messages]);
    expect(own.sent.temperature).toBe(1);
  });

  test("an unknown preset is 404, and what is checked is the request with its preset", async () => {
    const paths = [
      ["/v1/chat/completions", { messages }],
      ["/v1/messages", { messages, max_tokens: 5 }],
      ["/v1/messages/count_tokens", { messages }],
      ["/v1/responses", { input: content }],
      ["/v1/responses/input_tokens", { input: content }],
    ] as const;
    for (const [path, body] of paths) {
      const named = { model: `test/${slug}`, preset: "none", ...body };
      const response = await gateway.request("POST", path, named);
      expect([path, response.status]).toEqual([path, 404]);
      expect(await response.text()).toContain("no preset with that name");
    }
    const preset = await create({ model: `test/${slug}`, parameters: { logprobs: true } });
    const half = { model: `test/${slug}`, messages, top_logprobs: 2 };
    await expectError(
      await gateway.request("POST", "/v1/chat/completions", half),
      400,
      "invalid_body",
    );
    await sentFor("/v1/chat/completions", { ...half, preset: preset.id });
  });

  test("counts of tokens include what the preset adds", async () => {
    const preset = await create({ model: `test/${slug}`, system: "word ".repeat(500) });
    for (const [path, body] of [
      ["/v1/messages/count_tokens", { messages }],
      ["/v1/responses/input_tokens", { input: content }],
    ] as const) {
      const count = async (fields: object) => {
        const response = await gateway.request("POST", path, { ...body, ...fields });
        expect(response.status).toBe(200);
        return ((await response.json()) as { input_tokens: number }).input_tokens;
      };
      const without = await count({ model: `test/${slug}` });
      expect((await count({ preset: preset.id })) - without).toBeGreaterThan(400);
    }
  });
});

test("a preset names the model of embeddings, and what it says of chats is no matter of theirs", async () => {
  const preset = await create({
    model: "sandbox/embed",
    system: "Be brief.",
    parameters: { temperature: 0.5, user: "ada" },
  });
  const body = { preset: preset.name, input: "hello" };
  const response = await gateway.request("POST", "/v1/embeddings", body);
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({ model: "sandbox/embed" });
  const unknown = await gateway.request("POST", "/v1/embeddings", { ...body, preset: "none" });
  await expectError(unknown, 404, "preset_not_found");
});

test("a preset leads to no model that the key may not call", async () => {
  const preset = await create({ model: "sandbox/chat" });
  const key = await addSecretKey(gateway, { allowedModels: [`test/${slug}`] });
  const body = { preset: preset.id, messages: hello };
  const response = await gateway.request("POST", "/v1/chat/completions", body, { key });
  await expectError(response, 403, "model_not_allowed");
});
