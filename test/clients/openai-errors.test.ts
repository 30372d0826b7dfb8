import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { addSecretKey } from "../support/api-keys.ts";
import { type BuiltInGateway, startBuiltInGateway } from "../support/built-in-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

const MESSAGES: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "hello" }];
/** Models of OpenAI's catalogue, one for each test, so that the health of one endpoint decides nothing elsewhere. */
const MODELS = [
  "gpt-4o",
  "gpt-4o-mini",
  "gpt-4.1",
  "gpt-4.1-mini",
  "gpt-4.1-nano",
  "gpt-5",
  "gpt-5-mini",
  "gpt-5-nano",
];

let gateway: BuiltInGateway;
let usedModels = 0;
beforeAll(async () => {
  gateway = await startBuiltInGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** An SDK that counts what it sends. */
function client(options: { apiKey?: string; maxRetries?: number } = {}) {
  const sent: string[] = [];
  const openai = new OpenAI({
    apiKey: options.apiKey ?? gateway.secretKey,
    baseURL: gateway.apiUrl,
    maxRetries: options.maxRetries ?? 0,
    fetch: (url, init) => {
      sent.push(String(url));
      return fetch(url as string, init as RequestInit);
    },
  });
  return { openai, sent };
}

function modelThat(...behaviours: Behaviour[]): string {
  const model = MODELS[usedModels++];
  if (model === undefined) throw new Error("no model is left");
  const last = behaviours.pop();
  gateway.upstream.enqueue(model, ...behaviours);
  if (last) gateway.upstream.behave(model, last);
  return `openai/${model}`;
}

async function failureOf(asked: Promise<unknown>) {
  try {
    await asked;
  } catch (error) {
    if (error instanceof OpenAI.APIError) return error;
    throw error;
  }
  throw new Error("the call did not fail");
}

type Ask = Partial<OpenAI.ChatCompletionCreateParamsNonStreaming>;
const ask = (openai: OpenAI, body: Ask = {}) =>
  openai.chat.completions.create({ model: "sandbox/chat", messages: MESSAGES, ...body });

describe("each status is the SDK's error class, with code, type, param and request id", () => {
  const poor = async () => (await gateway.addOrganization({ creditUsd: 0 })).secretKey;
  const limited = async () => {
    const key = await addSecretKey(gateway, { rateLimitRpm: 1 });
    await ask(client({ apiKey: key }).openai);
    return key;
  };
  const restricted = () => addSecretKey(gateway, { allowedModels: ["openai/gpt-4o"] });

  const CASES: {
    name: string;
    as: new (...args: never[]) => Error;
    status: number;
    code: string;
    body?: Ask;
    key?: () => Promise<string> | string;
  }[] = [
    {
      name: "no valid key",
      as: OpenAI.AuthenticationError,
      status: 401,
      code: "invalid_api_key",
      key: () => "sk-wrong",
    },
    {
      name: "a management key",
      as: OpenAI.PermissionDeniedError,
      status: 403,
      code: "wrong_key_kind",
      key: () => gateway.managementKey,
    },
    {
      name: "a model that is not allowed",
      as: OpenAI.PermissionDeniedError,
      status: 403,
      code: "model_not_allowed",
      key: restricted,
    },
    {
      name: "an unknown model",
      as: OpenAI.NotFoundError,
      status: 404,
      code: "model_not_found",
      body: { model: "openai/gpt-0" },
    },
    {
      name: "a bad parameter",
      as: OpenAI.BadRequestError,
      status: 400,
      code: "invalid_body",
      body: { temperature: 3 },
    },
    {
      name: "no credit",
      as: OpenAI.APIError,
      status: 402,
      code: "insufficient_credits",
      key: poor,
    },
    {
      name: "a rate limit",
      as: OpenAI.RateLimitError,
      status: 429,
      code: "rate_limit_exceeded",
      key: limited,
    },
    {
      name: "the sandbox's broken provider",
      as: OpenAI.InternalServerError,
      status: 502,
      code: "provider_error",
      body: { model: "sandbox/error-500" },
    },
  ];
  test.each(CASES)("$name: $status $code", async ({ as, status, code, body, key }) => {
    const error = await failureOf(ask(client({ apiKey: await key?.() }).openai, body));
    expect(error).toBeInstanceOf(as);
    expect([error.status, error.code]).toEqual([status, code]);
    expect(error.type).toMatch(/_error$/);
    expect(error.message).toStartWith(`${status} `);
    expect(error.requestID).toMatch(/^req_[0-9a-f]{32}$/);
    expect(error.headers!.get("x-gateway-request-id")).toBe(error.requestID!);
  });

  test("the field at fault is its param", async () => {
    const error = await failureOf(ask(client().openai, { temperature: 3 }));
    expect(error.param).toBe("temperature");
  });
});

describe("an error in the middle of a stream", () => {
  test.each([{ do: "cut" }, { do: "garbage-chunk" }, { do: "error-in-stream" }] as const)(
    "after $do is thrown behind the pieces that came",
    async (behaviour) => {
      const model = "openai/o3-mini";
      gateway.upstream.enqueue("o3-mini", { ...behaviour, events: 8, afterEvents: 5 });
      const stream = await client().openai.chat.completions.create({
        model,
        messages: MESSAGES,
        stream: true,
      });
      let content = "";
      const read = async () => {
        for await (const chunk of stream) content += chunk.choices[0]?.delta.content ?? "";
      };
      const error = await failureOf(read());
      expect(content).toBe("w000000 w000001 w000002 w000003 ");
      expect(error).toMatchObject({ code: "provider_error", type: "provider_error" });
    },
  );
});

describe("retries", () => {
  test("maxRetries 0 sends once, however it ends", async () => {
    const { openai, sent } = client();
    const model = modelThat({ do: "error", status: 500 });
    expect(await failureOf(ask(openai, { model }))).toBeInstanceOf(OpenAI.InternalServerError);
    expect(sent).toHaveLength(1);
  });

  test("maxRetries 2 has the answer where the provider recovers", async () => {
    const { openai, sent } = client({ maxRetries: 2 });
    const broken = { do: "error", status: 500 } as const;
    // The gateway itself tries three times before it says 502.
    const model = modelThat(broken, broken, broken, { do: "complete", content: "recovered" });
    const completion = await ask(openai, { model });
    expect(completion.choices[0]!.message.content).toBe("recovered");
    expect(sent).toHaveLength(2);
  });

  const POINTLESS: [name: string, behaviours: Behaviour[], status: number][] = [
    ["400 of the provider", [{ do: "error", status: 400 }], 400],
    ["408, which was waited for long enough", [{ do: "error", status: 408 }], 408],
  ];
  test.each(POINTLESS)("maxRetries 2 sends once for %s", async (_, behaviours, status) => {
    const { openai, sent } = client({ maxRetries: 2 });
    const error = await failureOf(ask(openai, { model: modelThat(...behaviours) }));
    expect(error.status).toBe(status);
    expect(sent).toHaveLength(1);
  });

  test("maxRetries 2 sends once for a conflict of idempotency keys, 401, 402 and 404", async () => {
    const { openai, sent } = client({ maxRetries: 2 });
    const under = { headers: { "idempotency-key": "same" } };
    const create = (content: string) =>
      openai.chat.completions.create(
        { model: "sandbox/chat", messages: [{ role: "user", content }] },
        under,
      );
    await create("a");
    const conflict = await failureOf(create("b"));
    expect(conflict).toBeInstanceOf(OpenAI.ConflictError);
    expect(sent).toHaveLength(2);
    expect((await failureOf(ask(openai, { model: "none" }))).status).toBe(404);
    expect(sent).toHaveLength(3);
    const stranger = client({ apiKey: "sk-wrong", maxRetries: 2 });
    expect((await failureOf(ask(stranger.openai))).status).toBe(401);
    expect(stranger.sent).toHaveLength(1);
    const { secretKey } = await gateway.addOrganization({ creditUsd: 0 });
    const poor = client({ apiKey: secretKey, maxRetries: 2 });
    expect((await failureOf(ask(poor.openai))).status).toBe(402);
    expect(poor.sent).toHaveLength(1);
  });
});
