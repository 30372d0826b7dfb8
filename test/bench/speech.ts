/*
 * How much later than its provider's the first byte of a speech leaves, and what a long one takes of memory:
 * one instance in a process of its own on a real Postgres, and a provider of speech in this one.
 *
 *   bun test/bench/speech.ts
 */
import "../support/preload.ts";
import { join } from "node:path";
import { connectDatabase } from "../../db/client.ts";
import { firstKeys, Grounds } from "../crash/gateway-process.ts";
import { createTestDatabase } from "../support/database.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { commitLatencyMs } from "./commit-latency.ts";
import { readUsage, resetPeak } from "./process-usage.ts";

const SAMPLES = 200;
const FIRST_BYTE_AFTER_MS = 20;
const PIECE = new Uint8Array(4_096).fill(255);
const LARGE_PIECES = 25_600;
/** In which the client of the long speech reads nothing, and its provider cannot go on. */
const PAUSE_MS = 1_000;

/** When the provider handed over the first byte of each speech, by its text. */
const beganMs = new Map<string, number>();
let takenPieces = 0;

const provider = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  idleTimeout: 0,
  async fetch(request) {
    if (request.method !== "POST") return new Response(null, { status: 404 });
    const { input, model } = (await request.json()) as { input: string; model: string };
    const body = model === "long" ? longSpeech() : shortSpeech(input);
    return new Response(body, { headers: { "content-type": "audio/mpeg" } });
  },
});

function shortSpeech(input: string): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>({
    async start(controller) {
      await Bun.sleep(FIRST_BYTE_AFTER_MS);
      beganMs.set(input, performance.now());
      controller.enqueue(PIECE);
      await Bun.sleep(FIRST_BYTE_AFTER_MS);
      controller.close();
    },
  });
}

function longSpeech(): ReadableStream<Uint8Array> {
  takenPieces = 0;
  return new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        if (takenPieces++ < LARGE_PIECES) controller.enqueue(PIECE);
        else controller.close();
      },
    },
    { highWaterMark: 0 },
  );
}

type Speak = (model: string, input: string) => Promise<Response>;

/** Milliseconds from the provider's first byte to the client's. */
async function firstByteMs(speak: Speak, input: string): Promise<number> {
  const response = await speak("short", input);
  const reader = response.body!.getReader();
  await reader.read();
  const delayMs = performance.now() - beganMs.get(input)!;
  while (!(await reader.read()).done);
  return delayMs;
}

const at = (sorted: readonly number[], share: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;

function shown(name: string, delaysMs: readonly number[]): string {
  const sorted = delaysMs.toSorted((one, other) => one - other);
  const [half, most] = [at(sorted, 0.5), at(sorted, 0.99)];
  return `${name}: p50 ${half.toFixed(2)} ms, p99 ${most.toFixed(2)} ms`;
}

async function measureFirstBytes(direct: Speak, gateway: Speak): Promise<void> {
  const delaysMs: Record<"direct" | "gateway", number[]> = { direct: [], gateway: [] };
  for (let sample = -20; sample < SAMPLES; sample++) {
    for (const [name, speak] of [
      ["direct", direct],
      ["gateway", gateway],
    ] as const) {
      const delayMs = await firstByteMs(speak, `${name} ${sample}`);
      if (sample >= 0) delaysMs[name].push(delayMs);
    }
  }
  console.log(shown("first byte, provider to client", delaysMs.direct));
  console.log(shown("first byte, provider to client through the gateway", delaysMs.gateway));
}

async function measureMemory(speak: Speak, pid: number): Promise<void> {
  const before = readUsage(pid).residentMb;
  resetPeak(pid);
  const response = await speak("long", "long ".repeat(200));
  const reader = response.body!.getReader();
  let readBytes = (await reader.read()).value!.length;
  await Bun.sleep(PAUSE_MS);
  const heldBack = takenPieces;
  const pausedMb = readUsage(pid).peakMb;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    readBytes += value.length;
  }
  const { peakMb } = readUsage(pid);
  const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  console.log(
    `a speech of ${megabytes(readBytes)} MB: its provider had sent ${megabytes(heldBack * PIECE.length)} MB when its client had paused for ${PAUSE_MS} ms; memory ${before.toFixed(0)} MB before, ${pausedMb.toFixed(0)} MB in the pause, ${peakMb.toFixed(0)} MB at most`,
  );
}

const grounds = new Grounds("speech");
const database = await createTestDatabase();
const sql = connectDatabase(database, { poolSize: 1, applicationName: "bench" });
try {
  const base_url = `http://127.0.0.1:${provider.port}/v1`;
  const model = (name: string) => ({
    id: `bench/${name}`,
    category: "audio",
    cost_per_character: 1e-6,
    endpoints: [{ provider: "speaker", model: name }],
  });
  const configPath = join(grounds.folder, "gateway.config.json");
  await Bun.write(
    configPath,
    JSON.stringify({
      providers: [{ id: "speaker", type: "openai-compatible", base_url, api_key: "k" }],
      models: [model("short"), model("long")],
    }),
  );
  const dataDir = grounds.newDataDir();
  const gateway = grounds.launch({
    dataDir,
    environment: {
      GATEWAY_CONFIG: configPath,
      DATABASE_URL: database.url,
      GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
      GATEWAY_MODEL_LISTS_SECONDS: "0",
    },
  });
  try {
    const url = await gateway.listening;
    const { secret_key } = firstKeys(dataDir);
    const speakAt =
      (origin: string, prefix: string): Speak =>
      (name, input) =>
        fetch(`${origin}/v1/audio/speech`, {
          method: "POST",
          headers: { authorization: `Bearer ${secret_key}`, "content-type": "application/json" },
          body: JSON.stringify({ model: `${prefix}${name}`, voice: "a", input }),
        });
    const through = speakAt(url, "bench/");
    await measureFirstBytes(speakAt(`http://127.0.0.1:${provider.port}`, ""), through);
    console.log(`a durable insert: ${(await commitLatencyMs(sql)).toFixed(2)} ms`);
    await measureMemory(through, gateway.pid);
  } finally {
    gateway.signal("SIGTERM");
    await gateway.exited;
  }
} finally {
  await sql.end();
  await database.drop();
  await grounds.clear();
  await provider.stop(true);
}
