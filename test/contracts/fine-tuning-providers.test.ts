import { expect, test } from "bun:test";
import { connectDatabase } from "../../db/client.ts";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";
import { createWorkThread } from "../../src/main/compose/endpoints.ts";
import { BrokenAnswer } from "../../src/providers/fine-tuning.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { OpenAiFineTuning } from "../../src/providers/openai/fine-tuning-provider.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import {
  SANDBOX_TRAINING_MS,
  SandboxFineTuning,
} from "../../src/sandbox/tuning/fine-tuning-provider.ts";
import { SandboxTunedModels } from "../../src/sandbox/tuning/tuned-models.ts";
import { createTestDatabase } from "../support/database.ts";
import { startUpstream } from "../upstream/server.ts";
import { describeFineTuningProvider, requestOf, textStream } from "./fine-tuning-providers.ts";

const KEY = "sk-trainer-secret";

function openAi(baseUrl: string): OpenAiFineTuning {
  const settings = {
    id: "p",
    type: "openai-compatible",
    baseUrl,
    apiKey: KEY,
    connectTimeoutMs: 5_000,
  };
  const clock = systemClock;
  return new OpenAiFineTuning(settings, { clock, httpClient: createHttpClient({ clock }) });
}

describeFineTuningProvider("OpenAI's API", async () => {
  const upstream = await startUpstream();
  return {
    provider: openAi(upstream.baseUrl),
    finish: async () => {},
    stop: () => upstream.stop(),
  };
});

describeFineTuningProvider("the sandbox", async () => {
  const database = await createTestDatabase();
  const sql = connectDatabase(database, { poolSize: 2, applicationName: "test" });
  const clock = new VirtualClock();
  const workThread = createWorkThread((error) => console.error(error));
  return {
    provider: new SandboxFineTuning({
      sql,
      workThread,
      clock,
      tunedModels: new SandboxTunedModels(sql),
    }),
    finish: async () => clock.advance(SANDBOX_TRAINING_MS),
    async stop() {
      workThread.close();
      await sql.end();
      await database.drop();
    },
  };
});

const signal = new AbortController().signal;

test("answers of OpenAI's API that make no sense are told from those that say no", async () => {
  const bodies: [string, typeof BrokenAnswer | undefined][] = [
    ["", BrokenAnswer],
    ["<html>", BrokenAnswer],
    ["null", BrokenAnswer],
    ["[]", BrokenAnswer],
    [`{"id":"j"}`, BrokenAnswer],
    [`{"id":5,"status":"running"}`, BrokenAnswer],
    [`{"id":"other","status":"running"}`, BrokenAnswer],
    [`{"id":"j","status":"succeeded"}`, BrokenAnswer],
    [`{"id":"j","status":"succeeded","fine_tuned_model":"${"x".repeat(300)}"}`, BrokenAnswer],
    [`{"id":"j","status":"succeeded","fine_tuned_model":"a\\u0000b"}`, BrokenAnswer],
    [`{"id":"j","status":"running","estimated_finish":9007199254740991}`, undefined],
    [`{"id":"j","status":"running","trained_tokens":-5,"estimated_finish":"soon"}`, undefined],
    [`{"id":"j","status":"something new"}`, undefined],
    [`{"id":"j","status":"failed","error":"no object"}`, undefined],
    ["x".repeat(5_000_000), BrokenAnswer],
  ];
  let body = "";
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Response(body) });
  const provider = openAi(`http://127.0.0.1:${server.port}/v1`);
  try {
    for (const [text, expected] of bodies) {
      body = text;
      const outcome = await provider.readJob("j", signal).catch((error: unknown) => error);
      if (expected === undefined) expect(outcome).toMatchObject({ id: "j" });
      else expect([text.slice(0, 60), outcome]).toEqual([text.slice(0, 60), expect.any(expected)]);
    }
    body = `{"data":[{"id":"e1","created_at":1,"level":"loud","message":"a\\u0000b","type":"x","data":5},5,{"id":""}]}`;
    expect(await provider.readEvents("j", signal)).toEqual([
      { id: "e1", createdAt: 1, level: "info", message: "ab", type: "message", data: {} },
    ]);
  } finally {
    await server.stop(true);
  }
});

test("an error of the provider never quotes our key, and an unreachable one is unavailable", async () => {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: (request) =>
      Response.json(
        { error: { message: `bad ${request.headers.get("authorization")}` } },
        { status: 400 },
      ),
  });
  const baseUrl = `http://127.0.0.1:${server.port}/v1`;
  const provider = openAi(baseUrl);
  const order = () => provider.createJob(requestOf("file-1", "tag"), signal);
  const refused = (await order().catch((error: unknown) => error)) as ProviderFailure;
  expect(refused).toMatchObject({ kind: "rejected", status: 400 });
  expect(refused.message).not.toContain(KEY);
  await server.stop(true);
  expect(await order().catch((error: unknown) => error)).toMatchObject({ kind: "unavailable" });
  const controller = new AbortController();
  controller.abort();
  const aborted = provider.readJob("j", controller.signal).catch((error: unknown) => error);
  expect(await aborted).toBeInstanceOf(ProviderFailure);
  expect(await aborted).toMatchObject({ kind: "aborted" });
});

test("a large file is streamed to the provider, and its reading ends where the upload is aborted", async () => {
  const PIECE = new Uint8Array(65_536).fill(97);
  const PIECES = 800;
  let received = 0;
  const controller = new AbortController();
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      for await (const piece of request.body ?? []) received += piece.length;
      return Response.json({ id: "file-1", object: "file" });
    },
  });
  const provider = openAi(`http://127.0.0.1:${server.port}/v1`);
  let read = 0;
  let isEnded = false;
  const content = (pieces: number) =>
    new ReadableStream<Uint8Array>({
      pull(stream) {
        if (read++ >= pieces) stream.close();
        else stream.enqueue(PIECE);
      },
      cancel() {
        isEnded = true;
      },
    });
  try {
    const id = await provider.uploadFile(
      { name: "large.jsonl", owner: "org_1", content: content(PIECES) },
      signal,
    );
    expect(id).toBe("file-1");
    expect(received).toBeGreaterThan(PIECE.length * PIECES);
    read = 0;
    setTimeout(() => controller.abort(), 50);
    const endless = provider.uploadFile(
      { name: "endless.jsonl", owner: "org_1", content: content(Number.POSITIVE_INFINITY) },
      controller.signal,
    );
    expect(await endless.catch((error: unknown) => error)).toMatchObject({ kind: "aborted" });
    for (let wait = 0; wait < 200 && !isEnded; wait++) await Bun.sleep(10);
    expect(isEnded).toBe(true);
  } finally {
    await server.stop(true);
  }
}, 60_000);

test("a file's name cannot break out of its form", async () => {
  const provider = openAi("http://127.0.0.1:9/v1");
  const upload = provider.uploadFile(
    { name: 'a"\r\nx', owner: "org_1", content: textStream("") },
    signal,
  );
  expect(await upload.catch((error: unknown) => error)).toBeInstanceOf(Error);
});
