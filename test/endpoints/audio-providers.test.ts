import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { startAudioUpstream } from "../support/audio-upstream.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

/** Providers of sound behind the whole gateway, with a key alone: their built-in models and prices. */

const upstream = startAudioUpstream();
const recording = Bun.file(
  join(import.meta.dir, "../fixtures/vercel-ai/audio/deepgram-transcription.json"),
);

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway({
    plan: "enterprise",
    configuration: {
      providers: ["elevenlabs", "deepgram"].map((type) => ({
        id: type,
        type,
        base_url: `${upstream.origin}/v1`,
        api_key: "sk-1",
      })),
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await upstream.stop();
});

/** Two seconds of silence. */
function wave(): Blob {
  const samples = 16_000 * 2;
  const bytes = Buffer.alloc(44 + samples * 2);
  bytes.write("RIFF", 0, "latin1");
  bytes.writeUInt32LE(36 + samples * 2, 4);
  bytes.write("WAVEfmt ", 8, "latin1");
  bytes.writeUInt32LE(16, 16);
  bytes.writeUInt16LE(1, 20);
  bytes.writeUInt16LE(1, 22);
  bytes.writeUInt32LE(16_000, 24);
  bytes.writeUInt32LE(32_000, 28);
  bytes.writeUInt16LE(2, 32);
  bytes.writeUInt16LE(16, 34);
  bytes.write("data", 36, "latin1");
  bytes.writeUInt32LE(samples * 2, 40);
  return new Blob([bytes], { type: "audio/wav" });
}

test("ElevenLabs speaks, at its price of a character", async () => {
  upstream.answer = () => new Response("ID3 sound", { headers: { "content-type": "audio/mpeg" } });
  const answered = await gateway.request("POST", "/v1/audio/speech", {
    model: "elevenlabs/eleven_flash_v2_5",
    voice: "JBFqnCBsd6RMkjVDRZzb",
    input: "Hello there",
  });
  expect(answered.status).toBe(200);
  expect(answered.headers.get("content-type")).toBe("audio/mpeg");
  expect(await answered.text()).toBe("ID3 sound");
  expect(Number(answered.headers.get("x-gateway-cost"))).toBeCloseTo(11 * 5e-5, 9);
});

test("Deepgram transcribes, and speakers cost what it asks for them", async () => {
  upstream.answer = () =>
    new Response(recording, { headers: { "content-type": "application/json" } });
  const costs: number[] = [];
  for (const format of ["verbose_json", "diarized_json"]) {
    const form = new FormData();
    form.set("model", "deepgram/nova-3");
    form.set("response_format", format);
    form.set("file", wave(), "talk.wav");
    const answered = await fetch(`${gateway.baseUrl}/v1/audio/transcriptions`, {
      method: "POST",
      headers: { authorization: `Bearer ${gateway.secretKey}` },
      body: form,
    });
    expect(answered.status).toBe(200);
    const { text, segments } = (await answered.json()) as { text: string; segments: object[] };
    expect(text).toStartWith("galileo was an american robotic space program");
    expect(segments.length).toBeGreaterThan(0);
    costs.push(Number(answered.headers.get("x-gateway-cost")));
  }
  expect(costs[0]).toBeCloseTo((2 * 0.0052) / 60, 8);
  expect(costs[1]).toBeCloseTo((2 * 0.0072) / 60, 8);
});

test("a format that a provider lacks is 400, and the gateway calls no provider", async () => {
  upstream.asked.length = 0;
  const answered = await gateway.request("POST", "/v1/audio/speech", {
    model: "elevenlabs/eleven_v3",
    voice: "JBFqnCBsd6RMkjVDRZzb",
    input: "Hello",
    response_format: "flac",
  });
  expect(answered.status).toBe(400);
  expect(await answered.json()).toMatchObject({
    error: { code: "unsupported_parameter", param: "response_format" },
  });
  expect(upstream.asked).toHaveLength(0);
});
