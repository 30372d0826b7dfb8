import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { systemClock } from "../../src/lib/clock.ts";
import { credentialText } from "../../src/lib/credential-document.ts";
import { ShortBody } from "../../src/providers/chat-body.ts";
import {
  type ChatCall,
  type EmbedCall,
  type Provider,
  ProviderFailure,
  type ProviderSettings,
} from "../../src/providers/interface.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import type { HttpClient } from "../../src/providers/transport/provider-response.ts";
import { createVertexProvider } from "../../src/providers/vertex/vertex-provider.ts";
import {
  KEY_LINE,
  PROJECT,
  serviceAccount,
  startCloudUpstream,
} from "../support/cloud-upstream.ts";

/** What Vertex AI is asked, by each of its interfaces, and with which credentials. */

const google = startCloudUpstream();
afterAll(() => google.stop());
const httpClient = createHttpClient({ clock: systemClock });

const GEMINI_ANSWER = {
  candidates: [{ content: { role: "model", parts: [{ text: "hi" }] }, finishReason: "STOP" }],
  usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 2, trafficType: "ON_DEMAND" },
};
const CLAUDE_ANSWER = {
  type: "message",
  role: "assistant",
  content: [{ type: "text", text: "hi" }],
  stop_reason: "end_turn",
  usage: { input_tokens: 3, output_tokens: 2 },
};
const OPENAI_ANSWER = {
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
};

beforeEach(() => {
  google.asked.length = 0;
  google.assertions.length = 0;
  google.tokenRequests = 0;
  google.tokenAnswer = undefined;
  google.answer = ({ path }) => {
    if (path.includes("/anthropic/")) return Response.json(CLAUDE_ANSWER);
    return Response.json(path.includes("/openapi/") ? OPENAI_ANSWER : GEMINI_ANSWER);
  };
});

function vertex(more: Partial<ProviderSettings> = {}, client: HttpClient = httpClient): Provider {
  const settings = {
    id: "vertex",
    type: "vertex",
    baseUrl: google.baseUrl,
    apiKey: serviceAccount(google.origin),
    connectTimeoutMs: 1_000,
    ...more,
  };
  return createVertexProvider(settings, { clock: systemClock, httpClient: client });
}

const MESSAGES = [{ role: "user", content: "hello" }];

function callOf(model: string, body: Record<string, unknown> = {}, stream = false): ChatCall {
  return {
    model,
    requestId: "req_0123456789abcdef",
    signal: new AbortController().signal,
    stream,
    body: new ShortBody({ model, messages: MESSAGES, max_tokens: 50, ...body }),
  };
}

const failure = (promise: Promise<unknown> | undefined) =>
  Promise.resolve(promise).then(
    () => undefined,
    (error: unknown) => (error instanceof ProviderFailure ? error : undefined),
  );

const PROJECT_PATH = `/v1/projects/${PROJECT}/locations/us-central1`;

describe("models", () => {
  test.each([
    ["gemini-2.5-pro", `${PROJECT_PATH}/publishers/google/models/gemini-2.5-pro:generateContent`],
    ["endpoints/123", `${PROJECT_PATH}/endpoints/123:generateContent`],
    [
      "claude-sonnet-4-5@20250929",
      `${PROJECT_PATH}/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict`,
    ],
    ["meta/llama-3.3-70b-instruct-maas", `${PROJECT_PATH}/endpoints/openapi/chat/completions`],
  ])("%s is called at %s", async (model, path) => {
    const answer = await vertex().chat!(callOf(model));
    expect("passThrough" in answer).toBe(model.startsWith("meta/"));
    expect(google.asked.map((one) => one.path)).toEqual([path]);
    expect(google.asked[0]!.headers.get("authorization")).toBe("Bearer ya29.token-1");
  });

  test("streams have their own methods", async () => {
    google.answer = () => new Response("", { headers: { "content-type": "text/event-stream" } });
    await vertex().chat!(callOf("gemini-2.5-pro", {}, true));
    await vertex().chat!(callOf("claude-opus-4-6", {}, true));
    expect(google.asked.map(({ path }) => path.slice(path.lastIndexOf("/")))).toEqual([
      "/gemini-2.5-pro:streamGenerateContent?alt=sse",
      "/claude-opus-4-6:streamRawPredict",
    ]);
    expect(google.asked[1]!.body).toEqual({
      anthropic_version: "vertex-2023-10-16",
      max_tokens: 50,
      messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
      stream: true,
    });
  });

  test("Claude's body has the version in place of the model, and no header of Anthropic's", async () => {
    await vertex().chat!(callOf("claude-opus-4-6"));
    const [{ body, headers }] = google.asked as [(typeof google.asked)[number]];
    expect(Object.keys(body)).toEqual(["anthropic_version", "max_tokens", "messages"]);
    expect(headers.get("anthropic-version")).toBeNull();
    expect(headers.get("x-api-key")).toBeNull();
  });

  test("breakpoints of Claude's cache are put into the body, and betas into a header", async () => {
    const cache_control = { type: "ephemeral" };
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
    const body = { cache_control, tools, interleaved_thinking: true, max_tokens: 5_000 };
    const thinking = { reasoning: { max_tokens: 2_000 } };
    await vertex().chat!(callOf("claude-sonnet-4-5@20250929", { ...body, ...thinking }));
    const [{ body: sent, headers }] = google.asked as [(typeof google.asked)[number]];
    expect(sent.cache_control).toBeUndefined();
    expect(sent.messages).toEqual([
      { role: "user", content: [{ type: "text", text: "hello", cache_control }] },
    ]);
    expect(headers.get("anthropic-beta")).toBe("interleaved-thinking-2025-05-14");
    expect(headers.get("authorization")).toBe("Bearer ya29.token-1");
  });

  test("calls and results go to Gemini without ids, and files with a type", async () => {
    const messages = [
      {
        role: "user",
        content: [
          { type: "text", text: "look" },
          { type: "image_url", image_url: { url: "https://a.test/picture?id=1" } },
          { type: "image_url", image_url: { url: "https://bucket.test/b.png" } },
        ],
      },
      {
        role: "assistant",
        tool_calls: [
          { id: "c1", type: "function", function: { name: "f", arguments: '{"id":7}' } },
        ],
      },
      {
        role: "tool",
        tool_call_id: "c1",
        content: [
          { type: "text", text: '{"id": 8}' },
          { type: "image_url", image_url: { url: "https://a.test/other" } },
        ],
      },
    ];
    await vertex().chat!(callOf("gemini-3.8-flash", { messages }));
    const { contents } = google.asked[0]!.body as { contents: { parts: unknown[] }[] };
    expect(contents.map(({ parts }) => parts)).toEqual([
      [
        { text: "look" },
        { fileData: { mimeType: "image/jpeg", fileUri: "https://a.test/picture?id=1" } },
        { fileData: { mimeType: "image/png", fileUri: "https://bucket.test/b.png" } },
      ],
      [
        {
          functionCall: { name: "f", args: { id: 7 } },
          thoughtSignature: "skip_thought_signature_validator",
        },
      ],
      [
        {
          functionResponse: {
            name: "f",
            response: { id: 8 },
            parts: [{ fileData: { mimeType: "image/jpeg", fileUri: "https://a.test/other" } }],
          },
        },
      ],
    ]);
  });

  test("each has the fields of its publisher", () => {
    const { fields, needsOutputLimit } = vertex();
    const missing = (field: string, value: unknown, model: string) =>
      fields!.unsupported(field, value, { model, modelId: model }, true, { [field]: value });
    const cached = { type: "ephemeral" };
    expect(missing("logprobs", true, "claude-opus-4-6")).toEqual(["logprobs"]);
    expect(missing("logprobs", true, "meta/llama-4")).toEqual([]);
    expect(missing("safety_settings", [], "gemini-2.5-pro")).toEqual([]);
    expect(missing("safety_settings", [], "claude-opus-4-6")).toEqual(["safety_settings"]);
    expect(missing("cache_control", cached, "claude-opus-4-6")).toEqual([]);
    expect(missing("cache_control", cached, "gemini-2.5-pro")).toEqual(["cache_control"]);
    expect(missing("service_tier", "standard_only", "claude-opus-4-6")).toEqual(["service_tier"]);
    expect(fields!.takesPart("audio", { model: "gemini-2.5-pro", modelId: "" })).toBeTrue();
    expect(fields!.takesPart("audio", { model: "claude-opus-5", modelId: "" })).toBeFalse();
    const inline = ["claude-opus-5", "gemini-2.5-pro", "meta/llama-4"].map((model) =>
      fields!.rejectsWebUrls!({ model, modelId: "" }),
    );
    expect(inline).toEqual([true, false, false]);
    const limited = ["claude-opus-5", "gemini-2.5-pro", "meta/llama-4"].map((model) =>
      needsOutputLimit!(model),
    );
    expect(limited).toEqual([true, false, false]);
  });
});

describe("embeddings", () => {
  const recorded = Bun.file(
    join(import.meta.dir, "../fixtures/vercel-ai/google-vertex/google-vertex-embedding.json"),
  );
  const embed = (inputs: EmbedCall["inputs"], model: string, more: Partial<EmbedCall> = {}) =>
    vertex().embed!({
      model,
      requestId: "req_1",
      signal: new AbortController().signal,
      inputs,
      fields: {},
      ...more,
    });

  test("the recorded answer gives each text its vector, and the tokens of both", async () => {
    const body = await recorded.json();
    google.answer = () => Response.json(body);
    const { vectors, usage } = await embed(["one", "two"], "text-embedding-005", {
      dimensions: 5,
      fields: { task_type: "RETRIEVAL_QUERY", other: 1 },
    });
    expect(vectors.map((vector) => vector[0])).toEqual([
      -0.017999587580561638, -0.06007182598114014,
    ]);
    expect(usage).toMatchObject({ promptTokens: 11, completionTokens: 0, estimated: false });
    expect(google.asked).toHaveLength(1);
    expect(google.asked[0]!.path).toEndWith("/publishers/google/models/text-embedding-005:predict");
    const taskType = { task_type: "RETRIEVAL_QUERY" };
    expect(google.asked[0]!.body).toEqual({
      instances: [
        { content: "one", ...taskType },
        { content: "two", ...taskType },
      ],
      parameters: { autoTruncate: false, outputDimensionality: 5 },
    });
  });

  /** Each text is a number, which is its vector. */
  const numbered: typeof google.answer = ({ body }) =>
    Response.json({
      predictions: (body.instances as { content: string }[]).map(({ content }) => ({
        embeddings: { values: [Number(content)], statistics: { token_count: 2 } },
      })),
    });

  test("Gemini's model gets one text in each call, others as many as fit", async () => {
    google.answer = numbered;
    const inputs = Array.from({ length: 11 }, (_, at) => String(at));
    for (const [model, calls] of [
      ["gemini-embedding-001", 11],
      ["text-embedding-005", 1],
    ] as const) {
      google.asked.length = 0;
      const { vectors, usage } = await embed(inputs, model);
      expect(google.asked).toHaveLength(calls);
      expect(vectors.map((vector) => vector[0])).toEqual(inputs.map(Number));
      expect(usage?.promptTokens).toBe(22);
    }
    google.asked.length = 0;
    const long = Array.from({ length: 5 }, (_, at) => String(at).padStart(9_000, "0"));
    await embed(long, "text-embedding-005");
    expect(google.asked.map(({ body }) => (body.instances as unknown[]).length)).toEqual([2, 2, 1]);
  });

  test("newer models of Gemini are asked by their own method", async () => {
    google.answer = () =>
      Response.json({ embedding: { values: [1] }, usageMetadata: { promptTokenCount: 4 } });
    const { vectors, usage } = await embed(["a", "b"], "gemini-embedding-2", { dimensions: 1 });
    expect([vectors.length, usage?.promptTokens]).toEqual([2, 8]);
    expect(google.asked[0]!.path).toEndWith(":embedContent");
    expect(google.asked[0]!.body).toEqual({
      content: { role: "user", parts: [{ text: "a" }] },
      autoTruncate: false,
      outputDimensionality: 1,
    });
  });

  test.each([
    ["too few", { predictions: [] }],
    ["no list", {}],
    ["a text", { predictions: [{ embeddings: { values: "AAAA" } }] }],
    ["nothing in it", { predictions: [{ embeddings: { values: [] } }] }],
    ["an error under 200", { error: { code: 500, message: "m" } }],
  ])("an answer with %s is a broken one", async (_, body) => {
    google.answer = () => Response.json(body);
    expect(await failure(embed(["a"], "text-embedding-005"))).toMatchObject({
      kind: "unavailable",
    });
  });

  test("usage that one answer does not report is counted by the gateway; tokens are refused", async () => {
    google.answer = () => Response.json({ predictions: [{ embeddings: { values: [1] } }] });
    expect((await embed(["a"], "text-embedding-005")).usage).toBeUndefined();
    const refused = await failure(embed([[1, 2]], "text-embedding-005"));
    expect(refused).toMatchObject({ kind: "rejected", param: "input" });
  });
});

describe("credentials", () => {
  test("a service account signs an assertion for its token, which many calls share", async () => {
    const provider = vertex();
    const models = ["gemini-2.5-pro", "claude-opus-4-6", "meta/llama-4"];
    await Promise.all(
      Array.from({ length: 60 }, (_, at) => provider.chat!(callOf(models[at % models.length]!))),
    );
    expect(google.tokenRequests).toBe(1);
    const [{ iss, scope, iat, exp }] = google.assertions as [(typeof google.assertions)[number]];
    expect(iss).toBe("gateway@project-of-the-test.iam.gserviceaccount.com");
    expect(scope).toBe("https://www.googleapis.com/auth/cloud-platform");
    expect(exp! - iat!).toBe(3_600);
    const sent = google.asked.map(({ headers, body }) => JSON.stringify([...headers]) + body);
    expect(sent.join("")).not.toContain(KEY_LINE);
  });

  test("a token that the provider refuses is replaced once, and the call repeated", async () => {
    google.answer = ({ headers }) =>
      headers.get("authorization") === "Bearer ya29.token-1"
        ? Response.json({ error: { code: 401, message: "expired" } }, { status: 401 })
        : Response.json(GEMINI_ANSWER);
    expect((await vertex().chat!(callOf("gemini-2.5-pro"))).kind).toBe("whole");
    expect(google.tokenRequests).toBe(2);
    google.answer = () => Response.json({ error: { code: 401 } }, { status: 401 });
    google.asked.length = 0;
    const refused = await failure(vertex().chat!(callOf("gemini-2.5-pro")));
    expect(refused).toMatchObject({ kind: "misconfigured", status: 401 });
    expect(google.asked).toHaveLength(2);
  });

  test("an API key goes in its header, to the address of express mode", async () => {
    const apiKey = "AQ.KeyOfExpressMode0123456789";
    await vertex({ apiKey, baseUrl: `${google.origin}/v1` }).chat!(callOf("gemini-2.5-flash"));
    expect(google.asked[0]!.path).toBe(
      "/v1/publishers/google/models/gemini-2.5-flash:generateContent",
    );
    expect(google.asked[0]!.headers.get("x-goog-api-key")).toBe(apiKey);
    expect(google.asked[0]!.headers.get("authorization")).toBeNull();
    expect(google.tokenRequests).toBe(0);
  });

  test("a user's login is refreshed, and without credentials the machine's server is asked", async () => {
    let form = new URLSearchParams();
    google.tokenAnswer = (sent) => {
      form = sent;
      return Response.json({ access_token: "ya29.user", expires_in: "3599" });
    };
    const login = credentialText({
      type: "authorized_user",
      client_id: "c",
      client_secret: "s",
      refresh_token: "r",
      token_uri: `${google.origin}/token`,
    });
    await vertex({ apiKey: login }).chat!(callOf("gemini-2.5-pro"));
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "refresh_token",
      client_id: "c",
      client_secret: "s",
      refresh_token: "r",
    });
    google.tokenAnswer = undefined;
    const metadataHost = new URL(google.origin).host;
    await vertex({ apiKey: undefined, metadataHost }).chat!(callOf("gemini-2.5-pro"));
    expect(google.asked.map(({ headers }) => headers.get("authorization"))).toEqual([
      "Bearer ya29.user",
      "Bearer ya29.token-2",
    ]);
  });

  test.each([
    ["have no client_email", { client_email: undefined }],
    ["have no private_key", { private_key: "" }],
    [
      "have a private_key that is not an RSA key in PEM format",
      { private_key: "-----BEGIN X-----\nabc" },
    ],
    ["have an unsupported type", { type: "external_account" }],
  ])("credentials that %s are refused at the start, without a word of them", (what, more) => {
    const make = () => vertex({ apiKey: serviceAccount(google.origin, more) });
    expect(make).toThrow(`the credentials of provider "vertex" ${what}`);
    expect(make).not.toThrow(KEY_LINE);
  });

  const failures: [string, () => Response, object][] = [
    [
      "refuses the credentials",
      () =>
        Response.json(
          { error: "invalid_grant", error_description: `Not ${KEY_LINE}` },
          { status: 400 },
        ),
      {
        kind: "misconfigured",
        status: 401,
        message: "the token endpoint refused the credentials with status 400 (invalid_grant)",
      },
    ],
    ["is down", () => new Response(KEY_LINE, { status: 503 }), { kind: "unavailable" }],
    [
      "is limited",
      () => new Response("", { status: 429, headers: { "retry-after": "7" } }),
      { kind: "rate_limited", retryAfterMs: 7_000 },
    ],
    ["answers nonsense", () => new Response(KEY_LINE), { kind: "unavailable" }],
    ["answers no token", () => Response.json({ expires_in: 9 }), { kind: "unavailable" }],
    [
      "answers what no header can carry",
      () => Response.json({ access_token: "a\r\nb" }),
      { kind: "unavailable" },
    ],
  ];
  test.each(failures)(
    "a token endpoint that %s fails the call and tells nothing",
    async (...of) => {
      const [, answer, expected] = of;
      google.tokenAnswer = answer;
      const provider = vertex();
      const failed = await failure(provider.chat!(callOf("gemini-2.5-pro")));
      expect(failed).toMatchObject(expected);
      const told = `${failed!.message} ${Bun.inspect(failed)}`;
      for (const secret of [KEY_LINE, "assertion", "eyJ"]) expect(told).not.toContain(secret);
      // It has a health of its own: within the pause it is not asked again.
      await failure(provider.chat!(callOf("claude-opus-4-6")));
      expect(google.tokenRequests).toBe(1);
      expect(google.asked).toHaveLength(0);
    },
  );

  test("what Vertex AI says of a token is redacted", async () => {
    google.answer = ({ headers }) =>
      Response.json(
        { error: { code: 400, message: `bad ${headers.get("authorization")}` } },
        { status: 400 },
      );
    const models = ["gemini-2.5-pro", "claude-opus-4-6", "meta/llama-4"];
    for (const model of models) {
      const failed = await failure(vertex().chat!(callOf(model)));
      expect(failed).toMatchObject({ kind: "rejected" });
      expect(failed!.message).toContain("[redacted]");
      expect(failed!.message).not.toContain("ya29");
    }
  });
});

describe("a key is checked", () => {
  test("by counting tokens, which is free", async () => {
    google.answer = () => Response.json({ totalTokens: 1 });
    await vertex().checkKey!();
    expect(google.asked[0]!.path).toEndWith(
      "/publishers/google/models/gemini-2.5-flash:countTokens",
    );
  });

  test.each([
    [401, "misconfigured"],
    [403, "misconfigured"],
    [500, "unavailable"],
    [404, undefined],
  ])("a status of %d means %p", async (status, kind) => {
    google.answer = () => Response.json({ error: { code: status } }, { status });
    expect((await failure(vertex().checkKey!()))?.kind).toBe(kind as never);
  });
});

describe("an organization's own credentials", () => {
  /** Notes where it was called, and calls nothing. */
  function noted() {
    const urls: string[] = [];
    const client: HttpClient = {
      send(url, _request, { failed }) {
        urls.push(url);
        failed(new Error("not sent"));
      },
    };
    return { urls, client };
  }

  test("are sent to Google's own token endpoint, whatever they say", async () => {
    const { urls, client } = noted();
    const byokKey = { atOperatorsAddress: false };
    await failure(vertex({ byokKey }, client).checkKey!());
    expect(urls).toEqual(["https://oauth2.googleapis.com/token"]);
  });

  test("are used with their project where they come without an address", async () => {
    const byokKey = { atOperatorsAddress: true };
    const client: HttpClient = {
      send: (url, request, receiver) =>
        httpClient.send(
          url.replace("https://oauth2.googleapis.com", google.origin),
          request,
          receiver,
        ),
    };
    const apiKey = credentialText({
      type: "authorized_user",
      client_id: "c",
      client_secret: "s",
      refresh_token: "r",
      project_id: "theirs",
    });
    await vertex({ byokKey, apiKey }, client).chat!(callOf("gemini-2.5-pro"));
    expect(google.asked[0]!.path).toStartWith("/v1/projects/theirs/locations/us-central1/");
    await vertex({ byokKey, apiKey: "AQ.TheirKey0123456789" }).chat!(callOf("gemini-2.5-pro"));
    expect(google.asked[1]!.path).toStartWith("/v1/publishers/google/models/");
  });

  test.each([undefined, "..", "their/../mine", ""])(
    "are refused with the project %j",
    (project) => {
      const apiKey = credentialText({
        type: "authorized_user",
        client_id: "c",
        client_secret: "s",
        refresh_token: "r",
        project_id: project,
      });
      const byokKey = { atOperatorsAddress: true };
      expect(() => vertex({ byokKey, apiKey })).toThrow("contain no Google Cloud project");
    },
  );
});
