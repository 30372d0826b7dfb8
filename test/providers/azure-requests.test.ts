import { afterAll, beforeEach, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/lib/clock.ts";
import { credentialText } from "../../src/lib/credential-document.ts";
import { createAzureProvider } from "../../src/providers/azure/azure-provider.ts";
import { ShortBody } from "../../src/providers/chat-body.ts";
import {
  type ChatCall,
  type EmbedCall,
  ProviderFailure,
  type ProviderSettings,
} from "../../src/providers/interface.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { startCloudUpstream } from "../support/cloud-upstream.ts";

/** Where Azure is called, and with which credentials. The server also answers as Entra ID does. */

const azure = startCloudUpstream();
afterAll(() => azure.stop());
const httpClient = createHttpClient({ clock: systemClock });

const ANSWER = {
  object: "chat.completion",
  choices: [{ index: 0, message: { role: "assistant", content: "hi" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 },
};

beforeEach(() => {
  azure.asked.length = 0;
  azure.tokenRequests = 0;
  azure.tokenAnswer = undefined;
  azure.answer = ({ path }) =>
    path.includes("/embeddings")
      ? Response.json({ data: [{ index: 0, embedding: [1] }], usage: { prompt_tokens: 1 } })
      : Response.json(ANSWER);
});

function provider(more: Partial<ProviderSettings> = {}) {
  const settings = {
    id: "azure",
    type: "azure",
    baseUrl: azure.origin,
    apiKey: "key-of-the-resource-0123456789",
    connectTimeoutMs: 1_000,
    ...more,
  };
  return createAzureProvider(settings, { clock: systemClock, httpClient });
}

function callOf(model: string): ChatCall {
  return {
    model,
    requestId: "req_1",
    signal: new AbortController().signal,
    stream: false,
    body: new ShortBody({ model, messages: [{ role: "user", content: "hello" }] }),
  };
}

function embedOf(model: string): EmbedCall {
  const { signal } = new AbortController();
  return { model, requestId: "req_1", signal, inputs: ["a"], fields: {} };
}

const failure = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => (error instanceof ProviderFailure ? error : undefined),
  );

const VERSION = "2024-10-21";
const IN_VERSION = `?api-version=${VERSION}`;

describe("addresses", () => {
  test.each([
    ["", undefined, "/openai/v1/chat/completions"],
    ["/openai/v1", undefined, "/openai/v1/chat/completions"],
    ["/openai/v1", "preview", "/openai/v1/chat/completions?api-version=preview"],
    ["/gate/v1", undefined, "/gate/v1/chat/completions"],
    ["", VERSION, `/openai/deployments/prod%204o/chat/completions${IN_VERSION}`],
    ["/openai", VERSION, `/openai/deployments/prod%204o/chat/completions${IN_VERSION}`],
    ["/openai/v1", VERSION, `/openai/deployments/prod%204o/chat/completions${IN_VERSION}`],
    ["/gate/openai", VERSION, `/gate/openai/deployments/prod%204o/chat/completions${IN_VERSION}`],
  ])("%p in version %p: %s", async (path, apiVersion, expected) => {
    const made = provider({ baseUrl: azure.origin + path, apiVersion });
    await made.chat!(callOf("prod 4o"));
    await made.embed!(embedOf("prod 4o"));
    const embeddings = expected.replace("chat/completions", "embeddings");
    expect(azure.asked.map((one) => one.path)).toEqual([expected, embeddings]);
    expect(azure.asked.map(({ body }) => body.model)).toEqual(["prod 4o", "prod 4o"]);
  });

  test("each deployment has its own, however often they alternate", async () => {
    const made = provider({ apiVersion: VERSION });
    for (const name of ["one", "two", "one", "two"]) await made.chat!(callOf(name));
    expect(azure.asked.map(({ path }) => path.split("/")[3])).toEqual(["one", "two", "one", "two"]);
  });

  test("the resource's list of models tells whether it takes a key", async () => {
    azure.answer = () => Response.json({ data: [] });
    await provider().checkKey!();
    await provider({ apiVersion: VERSION }).checkKey!();
    expect(azure.asked.map(({ path }) => path)).toEqual([
      "/openai/v1/models",
      `/openai/models${IN_VERSION}`,
    ]);
    azure.answer = () => new Response("", { status: 401 });
    expect(await failure(provider().checkKey!())).toMatchObject({ kind: "misconfigured" });
  });
});

describe("credentials", () => {
  const application = (more: object = {}) =>
    credentialText({
      tenant_id: "contoso.example",
      client_id: "client",
      client_secret: "s3cret-of-the-application",
      authority: azure.origin,
      ...more,
    });

  test("a key goes in its own header", async () => {
    await provider().chat!(callOf("a"));
    expect(azure.asked[0]!.headers.get("api-key")).toBe("key-of-the-resource-0123456789");
    expect(azure.asked[0]!.headers.get("authorization")).toBeNull();
    expect(() => provider({ apiKey: "a\u00e9" })).toThrow("no header can carry");
  });

  test("an application gets a token from Entra ID, which all deployments share", async () => {
    let form = new URLSearchParams();
    azure.tokenAnswer = (sent) => {
      form = sent;
      return Response.json({ access_token: "eyJ.of.entra", expires_in: 3_599 });
    };
    const made = provider({ apiKey: application(), apiVersion: VERSION });
    await Promise.all(["a", "b", "c", "a"].map((name) => made.chat!(callOf(name))));
    expect(azure.tokenRequests).toBe(1);
    expect(Object.fromEntries(form)).toEqual({
      grant_type: "client_credentials",
      client_id: "client",
      client_secret: "s3cret-of-the-application",
      scope: "https://cognitiveservices.azure.com/.default",
    });
    for (const { headers } of azure.asked) {
      expect(headers.get("authorization")).toBe("Bearer eyJ.of.entra");
      expect(headers.get("api-key")).toBeNull();
    }
  });

  test("a token that Azure refuses is replaced once, and is in no failure", async () => {
    azure.answer = ({ headers }) => {
      const shown = headers.get("authorization");
      if (shown === "Bearer ya29.token-2") return Response.json(ANSWER);
      return Response.json({ error: { message: `bad ${shown}` } }, { status: 401 });
    };
    expect((await provider({ apiKey: application() }).chat!(callOf("a"))).kind).toBe("whole");
    azure.answer = ({ headers }) => {
      const message = `bad ${headers.get("authorization")}`;
      return Response.json({ error: { message } }, { status: 400 });
    };
    const failed = await failure(provider({ apiKey: application() }).chat!(callOf("a")));
    expect(failed!.message).not.toContain("ya29");
  });

  test("an application that is refused fails the call without its secret", async () => {
    azure.tokenAnswer = () =>
      Response.json(
        { error: "invalid_client", error_description: "s3cret-of-the-application" },
        { status: 401 },
      );
    const failed = await failure(provider({ apiKey: application() }).chat!(callOf("a")));
    expect(failed).toMatchObject({ kind: "misconfigured", status: 401 });
    expect(Bun.inspect(failed)).not.toContain("s3cret");
    expect(azure.asked).toHaveLength(0);
  });

  test.each([
    ["have no tenant_id", { tenant_id: "" }],
    ["have an invalid tenant_id", { tenant_id: "a/../b" }],
    ["have no client_secret", { client_secret: 7 }],
  ])("credentials that %s are refused at the start", (what, more) => {
    const make = () => provider({ apiKey: application(more) });
    expect(make).toThrow(`the credentials of provider "azure" ${what}`);
  });

  test("an organization's own are sent to Entra ID itself, whatever they say", async () => {
    const urls: string[] = [];
    const byokKey = { atOperatorsAddress: true };
    const settings = {
      id: "azure",
      type: "azure",
      baseUrl: azure.origin,
      apiKey: application(),
      byokKey,
      connectTimeoutMs: 1_000,
    };
    const client = {
      send(url: string, _request: unknown, { failed }: { failed(error: unknown): void }) {
        urls.push(url);
        failed(new Error("not sent"));
      },
    };
    const made = createAzureProvider(settings, { clock: systemClock, httpClient: client });
    await failure(made.chat!(callOf("a")));
    expect(urls).toEqual(["https://login.microsoftonline.com/contoso.example/oauth2/v2.0/token"]);
  });
});

test("a prompt that the filters refuse is refused for its content", async () => {
  const results = { hate: { filtered: true, severity: "high" } };
  const error = {
    message: "The response was filtered due to the prompt triggering Azure's content policy.",
    type: null,
    param: "prompt",
    code: "content_filter",
    status: 400,
    innererror: { code: "ResponsibleAIPolicyViolation", content_filter_result: results },
  };
  for (const told of [error, { ...error, code: null }, { ...error, innererror: undefined }]) {
    azure.answer = () => Response.json({ error: told }, { status: 400 });
    const failed = await failure(provider().chat!(callOf("a")));
    expect(failed).toMatchObject({ kind: "content_policy", status: 400 });
  }
});
