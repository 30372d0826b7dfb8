import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { systemClock, VirtualClock } from "../../src/lib/clock.ts";
import { S3Storage } from "../../src/platform/storage/s3.ts";
import { S3Requests } from "../../src/platform/storage/s3-requests.ts";
import { until } from "../support/until.ts";

interface Received {
  readonly head: string;
  readonly body: Buffer;
}

/** Of the requests that came whole, each on a connection of its own. */
const received: Received[] = [];
const answers: string[] = [];
/** A connection stands for so long behind the last byte, so that a client that is held up has read it. */
const BREAK_MS = 200;
/** Answers in place of `answers`, and closes the connection behind what it returns. */
let serve: ((head: string) => { readonly head: string; readonly body: Uint8Array }) | undefined;
let server: Server;
let requests: S3Requests;
let settings: ConstructorParameters<typeof S3Storage>[0];

/** Bytes as they come over the wire, which an HTTP server would not show. */
function receive(socket: Socket): void {
  let bytes = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (data: Buffer) => {
    bytes = Buffer.concat([bytes, data]);
    const headEnd = bytes.indexOf("\r\n\r\n") + 4;
    if (headEnd < 4) return;
    const head = bytes.subarray(0, headEnd).toString("latin1").toLowerCase();
    const length = Number(/content-length: (\d+)/.exec(head)?.[1] ?? 0);
    if (bytes.byteLength < headEnd + length) return;
    received.push({ head, body: bytes.subarray(headEnd) });
    if (serve !== undefined) {
      const served = serve(head);
      socket.write(`HTTP/1.1 ${served.head}\r\nconnection: close\r\n\r\n`);
      socket.write(served.body);
      // A client that finds the end together with the bytes loses them.
      setTimeout(() => socket.end(), BREAK_MS);
      return;
    }
    socket.end(
      `HTTP/1.1 ${answers.shift() ?? "200 OK"}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`,
    );
  });
}

beforeAll(async () => {
  server = createServer(receive);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  settings = {
    bucket: "bucket",
    endpoint: `http://127.0.0.1:${port}`,
    region: undefined,
    accessKeyId: "id",
    secretAccessKey: "secret",
  };
  requests = new S3Requests(settings, systemClock);
});
afterAll(() => server.close());

const MEGABYTE = 1024 * 1024;

test.each([0, 1, MEGABYTE / 4, MEGABYTE / 4 + 1, 3 * MEGABYTE + 77])(
  "a body of %d bytes goes out with its length, which stores insist on, and not in chunks",
  async (bytes) => {
    const body = crypto.getRandomValues(Buffer.alloc(bytes % 65_536));
    const whole = new Uint8Array(bytes).map((_, n) => body[n % 65_536] ?? n % 251);
    received.splice(0);
    answers.push("503 Slow Down");
    await requests.send({ method: "PUT", key: "key", body: whole }, [200]);
    // Once more, and whole again, after the store failed.
    expect(received).toHaveLength(2);
    for (const { head, body: sent } of received) {
      expect(head).toContain(`\r\ncontent-length: ${bytes}\r\n`);
      expect(head.match(/content-length/g)).toHaveLength(1);
      expect(head).not.toContain("transfer-encoding");
      expect(sent.equals(whole)).toBe(true);
      const hash = new Bun.CryptoHasher("sha256").update(whole).digest("hex");
      expect(head).toContain(`\r\nx-amz-content-sha256: ${hash}\r\n`);
    }
  },
);

/** A store with one object, whose every connection breaks after so many bytes. */
function breaking(object: Uint8Array, afterBytes: number, etag = () => '"one"') {
  return (head: string) => {
    const [, first, last] = /\r\nrange: bytes=(\d+)-(\d*)\r\n/.exec(head) ?? [];
    const condition = /\r\nif-match: (.*)\r\n/.exec(head)?.[1];
    if (condition !== undefined && condition !== etag()) {
      return { head: "412 Precondition Failed\r\ncontent-length: 0", body: new Uint8Array() };
    }
    const start = Number(first ?? 0);
    const wanted = object.subarray(start, last ? Number(last) + 1 : undefined);
    const status = first === undefined ? "200 OK" : "206 Partial Content";
    return {
      head: `${status}\r\netag: ${etag()}\r\ncontent-length: ${wanted.byteLength}`,
      body: wanted.subarray(0, afterBytes),
    };
  };
}

async function readWhole(storage: S3Storage, range?: { start: number; end: number }) {
  return new Uint8Array(
    await new Response(await storage.read("obj_00000001", range)).arrayBuffer(),
  );
}

const OBJECT = new Uint8Array(50_000).map((_, n) => (n * 7 + (n >> 8)) % 256);

test("a read that breaks off goes on where it was, of the same object, whole or a part of it", async () => {
  const storage = new S3Storage(settings, systemClock);
  received.splice(0);
  serve = breaking(OBJECT, 20_000);
  expect(await readWhole(storage)).toEqual(OBJECT);
  const ranges = received.map(({ head }) => /\r\nrange: bytes=(.*)\r\n/.exec(head)?.[1]);
  // A try of which nothing is read is made again.
  expect([...new Set(ranges)]).toEqual([undefined, "20000-49999", "40000-49999"]);
  expect(received.at(-1)!.head).toContain('\r\nif-match: "one"\r\n');
  const range = { start: 5, end: 30_001 };
  expect(await readWhole(storage, range)).toEqual(OBJECT.subarray(5, 30_001));
  serve = undefined;
});

test("a read does not go on with another object", async () => {
  let version = 0;
  serve = breaking(OBJECT, 20_000, () => `"${version++}"`);
  const storage = new S3Storage(settings, systemClock);
  await expect(readWhole(storage)).rejects.toThrow("changed while it was read");
  serve = undefined;
});

test("a read of which nothing comes any more fails after a minute", async () => {
  const clock = new VirtualClock();
  serve = breaking(OBJECT, 0);
  const reading = readWhole(new S3Storage(settings, clock)).catch((error: unknown) => error);
  let failure: unknown;
  void reading.then((error) => {
    failure = error;
  });
  const startedMs = clock.nowMs();
  await until("it fails", () => {
    if (failure === undefined) clock.advance(1_000);
    return failure !== undefined;
  });
  expect(String(failure)).toContain("stopped sending in the middle of a file");
  expect(clock.nowMs() - startedMs).toBeGreaterThan(50_000);
  serve = undefined;
});
