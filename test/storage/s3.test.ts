import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { systemClock } from "../../src/lib/clock.ts";
import { S3Requests } from "../../src/storage/s3.ts";

interface Received {
  readonly head: string;
  readonly body: Buffer;
}

/** Of the requests that came whole, each on a connection of its own. */
const received: Received[] = [];
const answers: string[] = [];
let server: Server;
let requests: S3Requests;

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
    socket.end(
      `HTTP/1.1 ${answers.shift() ?? "200 OK"}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`,
    );
  });
}

beforeAll(async () => {
  server = createServer(receive);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const settings = {
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
