import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { readConfig } from "../../src/platform/config.ts";
import { pdfOf } from "../support/documents.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import {
  readEvents,
  type SayingProvider,
  startSayingProvider,
} from "../support/saying-provider.ts";

/** Rules that a model decides, and guardrails on what is no chat. */

const EMAIL = "ada.lovelace@example.com";
const WAV = readFileSync(`${import.meta.dir}/../fixtures/audio/a.wav`);

let gateway: TestGateway;
let provider: SayingProvider;
let names = 0;

beforeAll(async () => {
  provider = startSayingProvider();
  const endpoints = (model: string) => [{ provider: "house", model }];
  const tokens = { input_cost_per_token: 1e-9, output_cost_per_token: 1e-6 };
  gateway = await startTestGateway({
    environment: {
      GATEWAY_MODERATION_MODEL: "house/moderator",
      GATEWAY_SEARCH_BACKEND: "searxng",
      GATEWAY_SEARCH_URL: "http://127.0.0.1:9/",
    },
    configuration: {
      providers: [{ id: "house", type: "openai", base_url: provider.baseUrl, api_key: "k" }],
      models: [
        {
          ...{ id: "test/chat", category: "chat", context_length: 1_000_000, ...tokens },
          ...{ max_output_tokens: 4096, capabilities: ["streaming", "function_calling"] },
          endpoints: endpoints("chat"),
        },
        {
          ...{ id: "test/image", category: "image", cost_per_image: 0.01 },
          endpoints: endpoints("dall-e-3"),
        },
        {
          ...{ id: "test/speech", category: "audio", capabilities: ["speech"] },
          ...{ cost_per_character: 1e-6, endpoints: endpoints("tts-1") },
        },
        {
          ...{ id: "test/whisper", category: "audio", capabilities: ["transcription"] },
          ...{ cost_per_second: 1e-4, endpoints: endpoints("whisper-1") },
        },
      ],
    },
  });
});
beforeEach(() => {
  provider.flags = "harm";
  provider.says = "Hello.";
  provider.moderated.length = 0;
  provider.calls.length = 0;
});
afterEach(() => expectBooksClosed(gateway));
afterAll(async () => {
  await gateway.stop();
  await provider.stop();
});

async function create(...rules: object[]): Promise<string> {
  const body = { name: `guardrail ${names++}`, rules };
  const key = gateway.managementKey;
  const response = await gateway.request("POST", "/v1/guardrails", body, { key });
  expect(response.status).toBe(201);
  return ((await response.json()) as { id: string }).id;
}

async function ask(path: string, body: object) {
  const response = await gateway.request("POST", path, body);
  return { status: response.status, text: await response.text() };
}

async function transactions(): Promise<number> {
  const [row] = await gateway.sql<{ n: number }[]>`SELECT count(*)::int AS n FROM transactions`;
  return row!.n;
}

const chats = (content: string): [path: string, body: Record<string, unknown>][] => [
  ["/v1/chat/completions", { model: "test/chat", messages: [{ role: "user", content }] }],
  ["/v1/messages", { model: "test/chat", max_tokens: 50, messages: [{ role: "user", content }] }],
  ["/v1/responses", { model: "test/chat", input: content }],
];
const LONG = "lorem ipsum dolor ".repeat(20_000);
const MODERATED = { type: "moderation" };

describe("a rule of type moderation", () => {
  test("blocks alone, and its model is one of a configured provider", async () => {
    const body = { name: "redacting", rules: [{ ...MODERATED, action: "redact" }] };
    const key = gateway.managementKey;
    const refused = await gateway.request("POST", "/v1/guardrails", body, { key });
    const { error } = await expectError(refused, 400, "invalid_body");
    expect(error.param).toBe("rules.0.action");
    const config = (model: string) =>
      readConfig({ GATEWAY_MODERATION_MODEL: model, OPENAI_API_KEY: "sk-0123456789" });
    expect(config("openai/omni-moderation-latest").moderationModel).toStartWith("openai/");
    for (const model of ["omni", "openai/", "nowhere/model", "sandbox/chat"]) {
      expect(() => config(model)).toThrow("GATEWAY_MODERATION_MODEL");
    }
  });

  test.each([
    ["short", ""],
    ["long", LONG],
  ])(
    "decides about the input of a %s body, which costs nothing where it is blocked",
    async (_, padding) => {
      const guardrail = await create({ ...MODERATED, on: ["input"] });
      const before = await transactions();
      for (const [path, body] of chats(`${padding}I wish harm.`)) {
        const { status, text } = await ask(path, { ...body, guardrail });
        expect([path, status]).toEqual([path, 400]);
        expect(text).toContain("content_policy_violation");
      }
      expect(provider.calls).toEqual([]);
      expect(await transactions()).toBe(before);
      for (const [path, body] of chats(`${padding}I wish well.`)) {
        expect([path, (await ask(path, { ...body, guardrail })).status]).toEqual([path, 200]);
      }
      expect(provider.moderated.every(({ model }) => model === "moderator")).toBe(true);
      const most = provider.moderated.flatMap(({ input }) => input.map(({ length }) => length));
      expect(Math.max(...most)).toBeLessThanOrEqual(8_000);
      expect(gateway.logLines.join("")).not.toContain("I wish");
    },
  );

  test("is given texts, and no files in base64", async () => {
    const guardrail = await create({ ...MODERATED, on: ["input"] });
    const url = "data:image/png;base64,harmharm";
    const content = [
      { type: "text", text: "What is this?" },
      { type: "image_url", image_url: { url } },
    ];
    const messages = [{ role: "user", content }];
    await ask("/v1/chat/completions", { model: "test/chat", messages, guardrail });
    expect(provider.moderated.map(({ input }) => input)).toEqual([["What is this?"]]);
  });

  test("decides about the output: blocked it is 400 and charged", async () => {
    const guardrail = await create({ ...MODERATED, on: ["output"] });
    provider.says = "I mean harm.";
    for (const [path, body] of chats("who?")) {
      const before = await transactions();
      const { status, text } = await ask(path, { ...body, guardrail });
      expect([path, status]).toEqual([path, 400]);
      expect(text).not.toContain("I mean");
      expect(await transactions()).toBe(before + 1);
    }
    provider.says = "I mean well.";
    for (const [path, body] of chats("who?")) {
      expect((await ask(path, { ...body, guardrail })).text).toContain("I mean well.");
    }
  });

  test("holds a stream to its end: then all of it leaves, or nothing", async () => {
    const guardrail = await create({ ...MODERATED, on: ["output"] });
    for (const size of [1, 3, 50]) {
      provider.size = size;
      for (const [path, body] of chats("who?")) {
        provider.says = "Quiet words, then harm.";
        const blocked = await ask(path, { ...body, guardrail, stream: true });
        expect(blocked.text).toContain("content_policy_violation");
        expect(readEvents(path, blocked.text)).toEqual({ said: "", failed: true });
        provider.says = "Quiet words, then peace.";
        const passed = await ask(path, { ...body, guardrail, stream: true });
        const said = provider.says;
        expect(readEvents(path, passed.text)).toEqual({ said, failed: false });
      }
    }
  });

  test("nothing of a stream leaves that breaks off before it is decided about", async () => {
    const guardrail = await create({ ...MODERATED, on: ["output"] });
    provider.says = "Quiet words, then harm.";
    provider.breaksOff = true;
    for (const [path, body] of chats("who?")) {
      const { text } = await ask(path, { ...body, guardrail, stream: true });
      expect(readEvents(path, text)).toEqual({ said: "", failed: true });
    }
    provider.breaksOff = false;
  });

  test("nothing passes where the model cannot decide", async () => {
    provider.flags = undefined;
    const [input, output] = [
      await create({ ...MODERATED, on: ["input"] }),
      await create({ ...MODERATED, on: ["output"] }),
    ];
    provider.says = "Words of the answer.";
    for (const [path, body] of chats("who?")) {
      const before = await transactions();
      for (const guardrail of [input, output]) {
        const { status, text } = await ask(path, { ...body, guardrail });
        expect([path, status]).toEqual([path, 503]);
        expect(text).toContain("could not decide");
        expect(text).not.toContain("Words");
      }
      expect(await transactions()).toBe(before);
      const streamed = await ask(path, { ...body, guardrail: output, stream: true });
      expect(streamed.text).toContain("could not decide");
      expect(streamed.text).not.toContain("content_block_delta");
      expect(readEvents(path, streamed.text).said).toBe("");
    }
    const tooLong = "words ".repeat(200_000);
    const [path, body] = chats(tooLong)[0]!;
    provider.flags = "harm";
    expect((await ask(path, { ...body, guardrail: input })).status).toBe(503);
  });
});

test("a response that may run tools, blocked, is 400 and charged, not one that failed", async () => {
  const rules = { email: { type: "pii" }, harm: MODERATED };
  for (const [word, rule] of Object.entries(rules)) {
    const guardrail = await create({ ...rule, on: ["output"] });
    provider.says = `Say ${word} to ${EMAIL}.`;
    const before = await transactions();
    const tools = [{ type: "web_search" }];
    const body = { model: "test/chat", input: "who?", tools, guardrail };
    const { status, text } = await ask("/v1/responses", body);
    expect([word, status, text.includes("content_policy_violation")]).toEqual([word, 400, true]);
    expect(text).not.toContain("lovelace");
    expect(await transactions()).toBe(before + 1);
  }
});

test("the text of a document that the gateway reads is looked through", async () => {
  const document = Buffer.from(pdfOf([`Write to ${EMAIL} soon.`])).toString("base64");
  const file = { filename: "a.pdf", file_data: `data:application/pdf;base64,${document}` };
  const messages = [{ role: "user", content: [{ type: "file", file }] }];
  const plugins = [{ id: "file-parser" }];
  const body = { model: "test/chat", messages, plugins };
  const [blocking, redacting] = [
    await create({ type: "pii", on: ["input"] }),
    await create({ type: "pii", on: ["input"], action: "redact" }),
  ];
  for (const padding of ["", " ".repeat(262_145)]) {
    const post = (guardrail: string) =>
      gateway.request(
        "POST",
        "/v1/chat/completions",
        JSON.stringify({ ...body, guardrail }) + padding,
      );
    await expectError(await post(blocking), 400, "content_policy_violation");
    expect((await post(redacting)).status).toBe(200);
    expect(JSON.stringify(provider.calls.at(-1))).toContain("Write to [EMAIL] soon.");
  }
});

describe("what is no chat", () => {
  const speak = { model: "test/speech", voice: "alloy", stream: false };
  const draw = { model: "test/image", response_format: "b64_json" };

  test("texts to be drawn and spoken are looked through", async () => {
    const asked = (text: string): [path: string, body: object][] => [
      ["/v1/images/generations", { ...draw, prompt: text }],
      ["/v1/audio/speech", { ...speak, input: text }],
    ];
    const redacting = await create({ type: "pii", on: ["input"], action: "redact" });
    const blocking = await create({ type: "pii" });
    for (const [path, body] of asked(`A card for ${EMAIL}`)) {
      const { status } = await ask(path, { ...body, guardrail: redacting });
      expect([path, status]).toEqual([path, 200]);
      const sent = JSON.stringify(provider.calls.at(-1));
      expect(sent).toContain("A card for [EMAIL]");
      expect(sent).not.toContain("guardrail");
      const calls = provider.calls.length;
      expect((await ask(path, { ...body, guardrail: blocking })).status).toBe(400);
      expect((await ask(path, { ...body, guardrail: "none" })).status).toBe(404);
      expect(provider.calls).toHaveLength(calls);
    }
  });

  test("a pattern that matches a choice of the request changes none", async () => {
    const pattern = { type: "pattern", pattern: "b64|mp3|alloy", on: ["input"], action: "redact" };
    const guardrail = await create(pattern);
    const image = await ask("/v1/images/generations", { ...draw, prompt: "mp3", guardrail });
    expect(image.status).toBe(200);
    expect(JSON.stringify(provider.calls.at(-1))).toContain("[REDACTED]");
    expect(image.text).toContain("b64_json");
  });

  test("the prompt that a model has made of another is left out where output is looked through", async () => {
    const guardrail = await create({ type: "pii", on: ["output"] });
    provider.says = `A portrait of ${EMAIL}`;
    const body = { ...draw, prompt: "A portrait" };
    expect((await ask("/v1/images/generations", body)).text).toContain("lovelace");
    const { status, text } = await ask("/v1/images/generations", { ...body, guardrail });
    expect([status, text.includes("lovelace")]).toEqual([200, false]);
  });

  async function transcribe(fields: Record<string, string>): Promise<Response> {
    const form = new FormData();
    form.append("model", "test/whisper");
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    form.append("file", new Blob([WAV]), "speech.wav");
    return fetch(`${gateway.baseUrl}/v1/audio/transcriptions`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.secretKey}` },
      body: form,
    });
  }

  test("the fields of a form are looked through", async () => {
    const redacting = await create({ type: "pii", on: ["input"], action: "redact" });
    const prompt = `Names: ${EMAIL}`;
    expect((await transcribe({ prompt, guardrail: redacting })).status).toBe(200);
    expect(provider.calls.at(-1)!.prompt).toBe("Names: [EMAIL]");
    expect(provider.calls.at(-1)).not.toHaveProperty("guardrail");
    const calls = provider.calls.length;
    const blocked = await transcribe({ prompt, guardrail: await create({ type: "pii" }) });
    await expectError(blocked, 400, "content_policy_violation");
    expect(provider.calls).toHaveLength(calls);
  });

  test("transcripts are output, across their segments too", async () => {
    provider.heard = {
      text: "The card is 4111 11\u200b11 1111 １111, he said.",
      segments: [
        { id: 0, start: 0, end: 1, text: " The card is 4111 11\u200b11", tokens: [7] },
        { id: 1, start: 1, end: 2, text: "1111 1111, he said.", tokens: [8] },
      ],
    };
    const redacting = await create({ type: "pii", on: ["output"], action: "redact" });
    for (const response_format of ["json", "text", "srt", "vtt", "verbose_json"]) {
      const response = await transcribe({ response_format, guardrail: redacting });
      const text = await response.text();
      expect([response_format, response.status]).toEqual([response_format, 200]);
      expect(text).toContain("The card is [CREDIT_CARD]");
      expect(text).toContain(", he said.");
      expect(text).not.toMatch(/1111|tokens/);
    }
    const before = await transactions();
    const blocking = await create({ type: "pii", on: ["output"] });
    const blocked = await transcribe({ guardrail: blocking });
    await expectError(blocked, 400, "content_policy_violation");
    expect(await transactions()).toBe(before + 1);
    for (const [fields, param] of [
      [{ stream: "true" }, "stream"],
      [{ include: "logprobs" }, "include"],
      [
        { response_format: "verbose_json", "timestamp_granularities[]": "word" },
        "timestamp_granularities",
      ],
    ] as [Record<string, string>, string][]) {
      const refused = await transcribe({ ...fields, guardrail: redacting });
      const { error } = await expectError(refused, 400, "unsupported_parameter");
      expect(error.param).toBe(param);
    }
  });
});
