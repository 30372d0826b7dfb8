import { expect, test } from "bun:test";
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { exitOf, launchGateway } from "../crash/gateway-process.ts";
import { createTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

const MEGABYTE = 1024 * 1024;
const UPLOAD_BYTES = 25 * MEGABYTE - 4_096;
const MAX_HELD_BYTES = 8 * MEGABYTE;

/** A gateway in a process of its own, whose provider reads slowly or answers at once. */
async function startGateway() {
  const received = { bytes: 0, isHeld: false };
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      if (request.method === "GET") return Response.json({ data: [] });
      received.bytes = 0;
      for await (const piece of request.body!) {
        received.bytes += piece.length;
        if (received.isHeld) await Bun.sleep(3_600_000);
      }
      return Response.json({ text: "Hello." });
    },
  });
  const database = await createTestDatabase();
  const folder = await mkdtemp(join(tmpdir(), "gateway-upload-"));
  const { key } = generateApiKey("secret");
  const config = join(folder, "gateway.config.json");
  const endpoints = [{ provider: "own", model: "whisper-1" }];
  const model = { id: "test/listener", category: "audio", cost_per_second: 1e-6, endpoints };
  const baseUrl = `http://127.0.0.1:${server.port}/v1`;
  const provider = { id: "own", type: "openai-compatible", base_url: baseUrl, api_key: "k" };
  await writeFile(config, JSON.stringify({ providers: [provider], models: [model] }));
  const gateway = launchGateway({
    dataDir: join(folder, "data"),
    environment: {
      DATABASE_URL: database.url,
      GATEWAY_MASTER_KEY: Buffer.alloc(32, 7).toString("base64"),
      GATEWAY_SECRET_KEY: key,
      GATEWAY_CONFIG: config,
    },
  });
  const url = await gateway.listening;
  const form = (bytes: number) => {
    const body = new FormData();
    body.append("model", "test/listener");
    body.append("file", new Blob([wav(bytes)]), "long.wav");
    return body;
  };
  return {
    gateway,
    received,
    passing: join(folder, "data", "passing"),
    upload: (bytes: number, signal?: AbortSignal) =>
      fetch(`${url}/v1/audio/transcriptions`, {
        method: "POST",
        headers: { authorization: `Bearer ${key}` },
        body: form(bytes),
        ...(signal && { signal }),
      }),
    async stop() {
      gateway.signal("SIGTERM");
      await exitOf(gateway);
      await server.stop(true);
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Silence of 8,000 samples a second. */
function wav(bytes: number): Buffer<ArrayBuffer> {
  const file = Buffer.alloc(bytes);
  file.write(
    "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data",
    "latin1",
  );
  file.writeUInt32LE(bytes - 44, 40);
  return file;
}

async function memoryBytes(pid: number, field: "VmRSS" | "VmHWM"): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "latin1");
  return Number(new RegExp(`${field}:\\s+(\\d+)`).exec(status)![1]) * 1_024;
}

async function spooledUploads(pid: number, folder: string): Promise<number> {
  const names = await readdir(`/proc/${pid}/fd`);
  const links = await Promise.all(
    names.map((name) => readlink(`/proc/${pid}/fd/${name}`).catch(() => "")),
  );
  return links.filter((link) => link.startsWith(folder)).length;
}

const onLinux = test.skipIf(process.platform !== "linux");

onLinux(
  "a recording of 25 MB holds at most 8 MB on its way, and nothing when it is over",
  async () => {
    const { gateway, received, passing, upload, stop } = await startGateway();
    const { pid } = gateway;
    // What the first calls load and compile stays.
    for (let n = 0; n < 6; n++) expect((await upload(MEGABYTE)).status).toBe(200);
    let heldBytes = Number.POSITIVE_INFINITY;
    for (let n = 0; n < 3 && heldBytes > MAX_HELD_BYTES; n++) {
      await writeFile(`/proc/${pid}/clear_refs`, "5");
      const before = await memoryBytes(pid, "VmRSS");
      expect((await upload(UPLOAD_BYTES)).status).toBe(200);
      expect(received.bytes).toBeGreaterThan(UPLOAD_BYTES);
      heldBytes = Math.min(heldBytes, (await memoryBytes(pid, "VmHWM")) - before);
    }
    expect(heldBytes).toBeLessThan(MAX_HELD_BYTES);
    received.isHeld = true;
    const leaving = new AbortController();
    const left = upload(UPLOAD_BYTES, leaving.signal).catch(() => undefined);
    await until("its provider reads", () => received.bytes > 0 && received.bytes < UPLOAD_BYTES);
    expect(await spooledUploads(pid, passing)).toBe(1);
    expect(await readdir(passing)).toEqual([]);
    leaving.abort();
    await left;
    await until("the file is gone", async () => (await spooledUploads(pid, passing)) === 0);
    await stop();
  },
  90_000,
);
