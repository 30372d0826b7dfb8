import { describe, expect, test } from "bun:test";
import { createBedrockProvider } from "../../src/providers/bedrock/bedrock-provider.ts";
import { failureOfStatus } from "../../src/providers/bedrock/failure-mapping.ts";
import type { EmbedCall } from "../../src/providers/interface.ts";
import type { HttpClient } from "../../src/providers/transport/provider-response.ts";

const KEY =
  "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY:FwoGZXIvYXdzEXAMPLETOKEN==";
const [ID, SECRET, TOKEN] = KEY.split(":") as [string, string, string];
const CONTEXT = { nowMs: 0, apiKey: KEY, secrets: [SECRET, TOKEN, ID] };

function failure(status: number, type: string | undefined, message: string, more: object = {}) {
  const headers = new Headers({ ...(type && { "x-amzn-errortype": type }), ...more });
  return failureOfStatus(status, headers, JSON.stringify({ message }), CONTEXT);
}

describe("a refusal", () => {
  test.each([
    [400, "ValidationException", "1 validation error detected", "rejected", 400],
    [400, "ValidationException:http://internal.amazon.com/coral/", "Wrong.", "rejected", 400],
    [400, "ValidationException", "The provided model identifier is invalid.", "misconfigured", 400],
    [
      400,
      "ValidationException",
      "Invocation of model ID x with on-demand throughput isn’t supported. Retry with an inference profile",
      "misconfigured",
      400,
    ],
    [400, "ServiceQuotaExceededException", "Too many.", "rate_limited", 429],
    [400, "ExpiredTokenException", "It expired.", "misconfigured", 401],
    [403, "AccessDeniedException", "You don't have access to the model.", "misconfigured", 403],
    [
      403,
      "AccessDeniedException",
      "Authentication failed: Please make sure your API Key is valid.",
      "misconfigured",
      401,
    ],
    [403, "UnrecognizedClientException", "The security token is invalid.", "misconfigured", 401],
    [403, "InvalidSignatureException", "Signature expired.", "misconfigured", 401],
    [404, "ResourceNotFoundException", "No such model.", "misconfigured", 404],
    [408, "ModelTimeoutException", "Slow.", "timeout", 408],
    [424, "ModelErrorException", "The model failed.", "unavailable", 500],
    [424, undefined, "The model failed.", "unavailable", 424],
    [429, "ThrottlingException", "Too many tokens, please wait.", "rate_limited", 429],
    [429, "ModelNotReadyException", "It is loaded.", "rate_limited", 429],
    [500, "InternalServerException", "Broken.", "unavailable", 500],
    [503, "ServiceUnavailableException", "Later.", "unavailable", 503],
  ])("%i %s %s is %s", (status, type, message, kind, told) => {
    expect(failure(status, type, message)).toMatchObject({ kind, status: told, message });
  });

  test("says how long to wait", () => {
    expect(failure(429, "ThrottlingException", "Wait.", { "retry-after": "7" }).retryAfterMs).toBe(
      7_000,
    );
  });

  test("is of a prompt that is too long where it says so", () => {
    expect(
      failure(400, "ValidationException", "Input is too long for requested model.").isTooLong,
    ).toBeTrue();
    expect(failure(400, "ValidationException", "Wrong.").isTooLong).toBeFalse();
  });

  test("has its name in the body where no header has it; what is no JSON is not shown", () => {
    const body = JSON.stringify({
      __type: "com.amazon.coral#ThrottlingException",
      Message: "Wait.",
    });
    expect(failureOfStatus(400, new Headers(), body, CONTEXT)).toMatchObject({
      kind: "rate_limited",
      message: "Wait.",
    });
    expect(
      failureOfStatus(502, new Headers(), "<html>secret</html>", CONTEXT).message,
    ).not.toContain("secret");
  });

  test("shows no part of the key", () => {
    const { message } = failure(
      400,
      "ValidationException",
      `${KEY} ${TOKEN} ${SECRET} ${ID} wrong`,
    );
    for (const secret of [ID, SECRET, TOKEN]) expect(message).not.toContain(secret);
    expect(message).toEndWith("wrong");
  });
});

const BASE = "https://bedrock-runtime.us-east-1.amazonaws.com";
type Asked = { url: string; body: Record<string, unknown> };

/** A provider whose client answers as told; what it was asked is kept. */
function provider(answer: (asked: Asked) => Response) {
  const asked: Asked[] = [];
  const httpClient: HttpClient = {
    send(url, { body }, receiver) {
      const one = { url, body: JSON.parse(String(body)) };
      asked.push(one);
      receiver.responded(answer(one));
    },
  };
  const settings = {
    id: "bedrock",
    type: "bedrock",
    baseUrl: BASE,
    apiKey: KEY,
    connectTimeoutMs: 1,
  };
  const clock = { nowMs: () => 0, after: () => () => undefined } as never;
  return { asked, made: createBedrockProvider(settings, { clock, httpClient }) };
}

describe("the check of a key", () => {
  const refusal = (status: number, type: string) =>
    Response.json({ message: "No." }, { status, headers: { "x-amzn-errortype": type } });

  test.each([
    [400, "ValidationException"],
    [403, "AccessDeniedException"],
    [404, "ResourceNotFoundException"],
    [429, "ThrottlingException"],
  ])("takes %i %s as an accepted key", async (status, type) => {
    const { made, asked } = provider(() => refusal(status, type));
    await made.checkKey!();
    expect(asked).toEqual([
      { url: `${BASE}/model/amazon.nova-micro-v1%3A0/converse`, body: { messages: [] } },
    ]);
  });

  test.each([
    [403, "UnrecognizedClientException", "misconfigured"],
    [403, "InvalidSignatureException", "misconfigured"],
    [503, "ServiceUnavailableException", "unavailable"],
  ])("rejects with %i %s", async (status, type, kind) => {
    const { made } = provider(() => refusal(status, type));
    expect(await made.checkKey!().catch((error: unknown) => error)).toMatchObject({ kind });
  });
});

describe("embeddings", () => {
  const call = (
    model: string,
    inputs: EmbedCall["inputs"],
    more: Partial<EmbedCall> = {},
  ): EmbedCall => ({
    model,
    inputs,
    fields: {},
    requestId: "r",
    signal: new AbortController().signal,
    ...more,
  });

  test("Titan embeds one text a call, in order, and its tokens are added", async () => {
    const { made, asked } = provider(({ body }) => {
      const at = Number(body.inputText);
      return Response.json({ embedding: [at, 1], inputTextTokenCount: at + 1 });
    });
    const texts = Array.from({ length: 10 }, (_, at) => String(at));
    const { vectors, usage } = await made.embed!(
      call("amazon.titan-embed-text-v2:0", texts, { dimensions: 256 }),
    );
    expect(vectors).toEqual(texts.map((_, at) => Float64Array.of(at, 1)));
    expect(usage).toMatchObject({ promptTokens: 55, completionTokens: 0, estimated: false });
    expect(asked).toContainEqual({
      url: `${BASE}/model/amazon.titan-embed-text-v2%3A0/invoke`,
      body: { inputText: "0", dimensions: 256 },
    });
  });

  test("Cohere embeds batches, and a header tells the tokens", async () => {
    const { made, asked } = provider(({ body }) =>
      Response.json(
        { embeddings: (body.texts as string[]).map((text) => [Number(text)]) },
        { headers: { "x-amzn-bedrock-input-token-count": "100" } },
      ),
    );
    const texts = Array.from({ length: 100 }, (_, at) => String(at));
    const { vectors, usage } = await made.embed!(
      call("cohere.embed-english-v3", texts, { fields: { input_type: "search_query" } }),
    );
    expect(vectors).toEqual(texts.map((_, at) => Float64Array.of(at)));
    expect(usage).toMatchObject({ promptTokens: 200 });
    expect(asked.map(({ body }) => (body.texts as string[]).length)).toEqual([96, 4]);
    expect(asked[0]!.body.input_type).toBe("search_query");
  });

  test("what is no list of numbers is no embedding; lists of tokens are refused; no usage is none", async () => {
    const { made } = provider(() => Response.json({ embedding: [1, null] }));
    const titan = "amazon.titan-embed-text-v1";
    const failed = (inputs: EmbedCall["inputs"]) =>
      made.embed!(call(titan, inputs)).catch((error: unknown) => error);
    expect(await failed(["a"])).toMatchObject({ kind: "unavailable" });
    expect(await failed([[1, 2]])).toMatchObject({ kind: "rejected", param: "input" });
    const silent = provider(() => Response.json({ embedding: [1] }));
    expect((await silent.made.embed!(call(titan, ["a"]))).usage).toBeUndefined();
  });
});
