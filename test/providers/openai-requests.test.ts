import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { PROVIDER_TYPES } from "../../src/platform/config/provider-types.ts";
import type { ProviderSettings } from "../../src/providers/interface.ts";
import { keyHeaders } from "../../src/providers/model-list-request.ts";
import { requestHeaders } from "../../src/providers/openai/chat/chat-provider.ts";
import { openAiBody } from "../../src/providers/openai/chat/shape-body.ts";
import {
  type OpenAiVariant,
  openAiKeyHeader,
  openAiVariant,
} from "../../src/providers/openai/openai-variants.ts";
import { createProviders } from "../../src/providers/registry.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { endpointUrl } from "../../src/providers/transport/request-head.ts";
import { startUpstream } from "../upstream/server.ts";
import { API_KEY, adapter, callOf } from "./openai-adapter.ts";

const upstream = await startUpstream();
afterAll(() => upstream.stop());
beforeEach(() => upstream.reset());

function shaped(type: string, body: Record<string, unknown>, model = "m", plainDeltas = false) {
  const rendered = openAiBody.render(body, { type, plainDeltas, model, modelId: undefined });
  return JSON.parse(rendered.body as string);
}

test("a call is one POST of the body to chat/completions with the key as a bearer token", async () => {
  const body = { temperature: 0.5, unheard_of: { a: [1] } };
  await adapter(upstream.baseUrl).chat(callOf("m", { body }));
  expect(upstream.served).toHaveLength(1);
  const [served] = upstream.served;
  expect(served?.path).toBe("/v1/chat/completions");
  expect(served?.requestBody).toEqual({
    model: "m",
    messages: [{ role: "user", content: "hello" }],
    ...body,
  });
  expect(served?.headers).toMatchObject({
    "content-type": "application/json",
    "accept-encoding": "identity",
    authorization: `Bearer ${API_KEY}`,
  });
});

test("without a key no Authorization header is sent", async () => {
  await adapter(upstream.baseUrl, { apiKey: null }).chat(callOf("m"));
  expect(upstream.served[0]?.headers.authorization).toBeUndefined();
});

test("Azure gets its key as api-key, and the path goes before the query of the base URL", async () => {
  const urls: string[] = [];
  const provider = adapter("http://azure.test/openai/deployments/d?api-version=2024-10-21", {
    type: "azure",
    answer: (url, { headers }) => {
      urls.push(url);
      expect(headers["api-key"]).toBe(API_KEY);
      expect(headers.authorization).toBeUndefined();
      return Response.json({ choices: [{}] });
    },
  });
  await provider.chat(callOf("m"));
  expect(urls).toEqual([
    "http://azure.test/openai/deployments/d/chat/completions?api-version=2024-10-21",
  ]);
});

test.each([
  ["http://h/v1", "http://h/v1/x"],
  ["http://h/v1//", "http://h/v1/x"],
  ["http://h", "http://h/x"],
  ["http://h/v1/?a=/b", "http://h/v1/x?a=/b"],
  ["http://h/v1#part", "http://h/v1/x"],
])("the endpoint of %s is %s", (baseUrl, expected) => {
  expect(endpointUrl(baseUrl, "/x")).toBe(expected);
});

test("a key that no header can carry is refused when the provider is made, without telling it", () => {
  const make = () => adapter(upstream.baseUrl, { apiKey: "sk-\r\nx-evil: 1" });
  expect(make).toThrow(/^the key of provider "p" has characters that no header can carry$/);
});

test.each([
  "o1",
  "o3-mini",
  "o4-mini-2025-04-16",
  "gpt-5",
  "gpt-5.4-mini",
  "gpt-10",
  "ft:o4-mini:a",
  "openai/gpt-5",
])("openai's %s gets its limit as max_completion_tokens", (model) => {
  expect(shaped("openai", { model, max_tokens: 5 }, model)).toEqual({
    model,
    max_completion_tokens: 5,
  });
});

test.each([
  "gpt-4o-mini",
  "gpt-4.1",
  "gpt-3.5-turbo",
  "chatgpt-4o-latest",
  "ft:gpt-4o:a",
  "gpt-oss-20b",
])("openai's %s gets its limit as max_tokens", (model) => {
  expect(shaped("openai", { model, max_tokens: 5 }, model)).toEqual({ model, max_tokens: 5 });
});

test("other providers get max_tokens whatever the model is called", () => {
  expect(shaped("openrouter", { max_tokens: 5 }, "o3")).toEqual({ max_tokens: 5 });
  expect(shaped("openai-compatible", { max_tokens: 5 }, "gpt-5")).toEqual({ max_tokens: 5 });
});

test("a body that needs no change is sent unchanged", () => {
  const body = { model: "gpt-4o", max_tokens: 5, stream: true, stream_options: {} };
  expect(shaped("openai", body, "gpt-4o")).toEqual(body);
  const any = { top_k: 1, reasoning: { effort: "low" }, stream_options: {}, user: "u" };
  expect(shaped("openai-compatible", any)).toEqual(any);
});

test("Mistral gets random_seed, and no stream_options, which it forbids", () => {
  const body = {
    seed: 1,
    stream: true,
    stream_options: { include_usage: true },
    reasoning: { effort: "low" },
    temperature: 1,
  };
  expect(shaped("mistral", body)).toEqual({ random_seed: 1, stream: true, temperature: 1 });
});

test("reasoning.effort becomes reasoning_effort where that is its name, and gives way to one", () => {
  const reasoning = { effort: "high" };
  expect(shaped("openai", { reasoning })).toEqual({ reasoning_effort: "high" });
  expect(shaped("groq", { reasoning, reasoning_effort: "low" })).toEqual({
    reasoning_effort: "low",
  });
  expect(shaped("openai", { reasoning: "high" })).toEqual({});
  expect(shaped("cerebras", { reasoning })).toEqual({ reasoning_effort: "high" });
  expect(shaped("openrouter", { reasoning })).toEqual({ reasoning });
});

test("OpenRouter is asked to have files read by the model itself, at no price for each page", () => {
  const asking = (type: string) => ({
    messages: [{ role: "user", content: [{ type, file: {} }] }],
  });
  const plugins = [{ id: "file-parser", pdf: { engine: "native" } }];
  expect(shaped("openrouter", asking("file"))).toEqual({ ...asking("file"), plugins });
  for (const [type, part] of [
    ["openrouter", "text"],
    ["openai", "file"],
  ] as const) {
    const body = asking(part);
    expect(shaped(type, body)).toEqual(body);
  }
});

test("OpenAI itself is asked for plain deltas unless the caller wants them padded; nobody else is", async () => {
  const body = { stream_options: { include_usage: true } };
  expect(shaped("openai", body, "m", true)).toEqual({
    stream_options: { include_obfuscation: false, include_usage: true },
  });
  const padded = { stream_options: { include_obfuscation: true } };
  expect(shaped("openai", padded, "m", true)).toEqual(padded);
  const bodies: unknown[] = [];
  for (const baseUrl of ["https://api.openai.com/v1", "https://openai.com.test/v1"]) {
    const provider = adapter(baseUrl, {
      type: "openai",
      answer: (_url, { body: sent }) => {
        bodies.push(JSON.parse(String(sent)).stream_options);
        return new Response("", { headers: { "content-type": "text/event-stream" } });
      },
    });
    await provider.chat(callOf("m", { stream: true }));
  }
  expect(bodies).toEqual([
    { include_obfuscation: false, include_usage: true },
    { include_usage: true },
  ]);
});

test("every configured type has an adapter, and an unknown type or a taken id is named", () => {
  const settings = Object.keys(PROVIDER_TYPES).map((type) => ({
    id: type,
    type,
    baseUrl: "http://127.0.0.1:1/v1",
    apiKey: undefined,
    connectTimeoutMs: 5_000,
  }));
  const clock = systemClock;
  const httpClient = createHttpClient({ clock });
  // Building a provider asks the database and the work thread nothing.
  const none = undefined as never;
  const providerFactories = { sandbox: () => ({}) };
  const dependencies = { clock, httpClient, workThread: none, providerFactories };
  expect([...createProviders(settings, dependencies).keys()]).toEqual(Object.keys(PROVIDER_TYPES));
  expect(() => createProviders([{ ...settings[0]!, type: "toString" }], dependencies)).toThrow(
    'provider "openai" has the unknown type "toString"',
  );
  expect(() => createProviders([settings[0]!, settings[0]!], dependencies)).toThrow(
    'two providers have the id "openai"',
  );
});

describe("an answer that is sent back as it came", () => {
  const calls = [{ id: "call_1", type: "function", function: { name: "f", arguments: "{}" } }];
  const answer = { role: "assistant", content: null, tool_calls: calls };
  const told = { reasoning: "hm", annotations: [] };
  /** As openai-python writes down what it has read. */
  const nothing = { refusal: null, audio: null, function_call: null };
  const asked = { role: "user", content: "hi" };
  const body = { messages: [asked, { ...answer, ...told, ...nothing }] };

  test("reaches OpenAI without reasoning, which its messages do not have", () => {
    const own = { messages: [asked, { ...answer, annotations: [] }] };
    for (const type of ["openai", "azure"]) {
      expect(shaped(type, body)).toEqual(own);
      expect(shaped(type, own)).toEqual(own);
    }
    const refused = { messages: [{ role: "assistant", content: null, refusal: "No." }] };
    expect(shaped("openai", refused)).toEqual(refused);
  });

  test("reaches others whole, without the members that are null", () => {
    const said = { messages: [asked, { ...answer, ...told }] };
    expect(shaped("openai-compatible", body)).toEqual(said);
    expect(shaped("openai-compatible", said)).toEqual(said);
  });

  test("reaches those who forbid unknown members without any of them", () => {
    const more = { ...told, refusal: "No.", reasoning_details: [{}], audio: { id: "a" } };
    const messages = [asked, { ...answer, ...more, ...nothing, refusal: "No." }];
    expect(shaped("mistral", { messages })).toEqual({ messages: [asked, answer] });
    for (const type of ["groq", "cerebras"]) {
      expect(shaped(type, { messages }).messages).toEqual([asked, { ...answer, reasoning: "hm" }]);
    }
    expect(shaped("fireworks", { messages }).messages).toEqual([
      asked,
      { ...answer, reasoning_content: "hm" },
    ]);
  });
});

test("the role developer is system for those that know only the older name", () => {
  const named = (role: string) => ({ messages: [{ role, content: "Be brief." }] });
  for (const type of ["openai", "azure", "openrouter", "openai-compatible"]) {
    expect(shaped(type, named("developer"))).toEqual(named("developer"));
  }
  for (const type of ["mistral", "deepseek", "zai"]) {
    expect(shaped(type, named("developer"))).toEqual(named("system"));
  }
});

test("Mistral gets the names of tools only, the others' are forbidden there", () => {
  const tool = { role: "tool", tool_call_id: "call_1", name: "f", content: "1" };
  const others = ["system", "developer", "user", "assistant"].map((role) => ({
    role,
    name: "ada",
  }));
  expect(shaped("mistral", { messages: [tool, ...others] })).toEqual({
    messages: [tool, ...["system", "system", "user", "assistant"].map((role) => ({ role }))],
  });
  expect(shaped("openai", { messages: others })).toEqual({ messages: others });
});

test("reasoning goes back under the name by which the provider gave it", () => {
  const answer = (member: string) => ({ role: "assistant", content: null, [member]: "hm" });
  const members = ["reasoning", "reasoning_content"];
  const sent = { messages: [...members.map(answer), { role: "user", reasoning: "mine" }] };
  for (const [type, member] of [
    ["deepseek", "reasoning_content"],
    ["moonshot", "reasoning_content"],
    ["zai", "reasoning_content"],
    ["groq", "reasoning"],
    ["cerebras", "reasoning"],
    ["fireworks", "reasoning_content"],
  ] as const) {
    expect(shaped(type, sent)).toEqual({
      messages: [answer(member), answer(member), sent.messages[2]],
    });
    const both = { ...answer(member), [member === "reasoning" ? members[1]! : members[0]!]: "hm" };
    expect(shaped(type, { messages: [both] })).toEqual({ messages: [answer(member)] });
  }
  for (const type of ["openrouter", "openai-compatible"]) expect(shaped(type, sent)).toEqual(sent);
});

test("calls and the model list send the key in the same header, for any header name", () => {
  for (const keyHeader of ["authorization", "api-key", "x-third-key"] as const) {
    const variant = { ...openAiVariant("openai"), keyHeader } as OpenAiVariant;
    const value = keyHeader === "authorization" ? "Bearer k" : "k";
    const settings = { id: "p", apiKey: "k" } as ProviderSettings;
    const {
      "content-type": _,
      "accept-encoding": __,
      ...shown
    } = requestHeaders(settings, variant);
    expect(shown).toEqual({ [keyHeader]: value });
    expect(openAiKeyHeader(variant, "k")).toEqual(shown);
  }
  for (const type of ["openai", "azure"]) {
    const { keyHeader } = openAiVariant(type);
    expect(Object.keys(keyHeaders(type, "k"))).toEqual([keyHeader]);
  }
});
