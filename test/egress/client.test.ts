import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import { createEgressSend, MAX_ADDRESSES } from "../../src/platform/egress/client.ts";
import { EgressGuard, NameNotResolved } from "../../src/platform/egress/guard.ts";

const fixture = (name: string) =>
  readFileSync(join(import.meta.dir, "../fixtures/tls", name), "utf8");
const certificate = fixture("receiver.test.crt");

const guard = new EgressGuard({
  resolve: async (name) => {
    if (name === "unknown.test") throw new Error("ENOTFOUND");
    if (name === "slow.test") return new Promise<never>(() => {});
    if (name === "several.test") return ["::1", "127.0.0.2", "127.0.0.3", "127.0.0.1"];
    if (name === "first.test") return ["127.0.0.1", "127.0.0.2"];
    if (name === "too-many.test") return [...Array(MAX_ADDRESSES).fill("::1"), "127.0.0.1"];
    return ["127.0.0.1"];
  },
  allowedCidrs: ["127.0.0.1/29", "::1/128"],
  allowsHttp: true,
});
const send = createEgressSend({ guard, certificateAuthorities: [certificate] });
const post = (url: string, timeoutMs = 5_000) =>
  send({ method: "POST", url, headers: { "x-own": "1" }, body: "{}", timeoutMs });

const seen: { host: string | null; body: string }[] = [];
let secure: Bun.Server<undefined>;
beforeAll(() => {
  secure = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    tls: { cert: certificate, key: fixture("receiver.test.key") },
    async fetch(request) {
      seen.push({ host: request.headers.get("host"), body: await request.text() });
      return new Response("ok");
    },
  });
});
afterAll(() => secure.stop(true));

test("a checked address is dialled under the name of its URL, which its certificate must have", async () => {
  const { status } = await post(`https://receiver.test:${secure.port}/hook`);
  expect(status).toBe(200);
  expect(seen).toEqual([{ host: `receiver.test:${secure.port}`, body: "{}" }]);
  await expect(post(`https://other.test:${secure.port}/hook`)).rejects.toThrow();
  // A connection that stands for one name is not used for another.
  expect((await post(`https://receiver.test:${secure.port}/hook`)).status).toBe(200);
  await expect(post(`https://other.test:${secure.port}/hook`)).rejects.toThrow();
  expect(seen).toHaveLength(2);
});

/** A server that answers as it is told, counting what was taken of its answer. */
async function startRaw(answer: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("data", () => answer(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}/`,
    get connections() {
      return sockets.size;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

test("of an endless answer no more than a bounded part is read", async () => {
  let writtenBytes = 0;
  await using server = await startRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n");
    const piece = Buffer.alloc(65_536, "a");
    const more = () => {
      while (!socket.destroyed && writtenBytes < 1_000_000_000) {
        writtenBytes += piece.length;
        if (socket.write(piece)) continue;
        socket.once("drain", more);
        return;
      }
    };
    more();
  });
  expect((await post(server.url)).status).toBe(200);
  // What the kernel's buffers hold was written, but not read.
  expect(writtenBytes).toBeLessThan(50_000_000);
});

/** Writes as fast as the other side reads, and lets this process do other things in between. */
function pump(socket: Socket, piece: string): void {
  const more = () => {
    for (let count = 0; count < 16 && !socket.destroyed; count++) {
      if (socket.write(piece)) continue;
      socket.once("drain", more);
      return;
    }
    if (!socket.destroyed) setImmediate(more);
  };
  more();
}

const HEAD = "HTTP/1.1 200 OK\r\n";
/** Made before an attempt begins: both sides share this process, and the attempt has a time limit. */
const COMPRESSED = Bun.gzipSync(new Uint8Array(100_000_000));
/** What a hostile receiver answers, and the status it comes to; undefined where the attempt fails. */
const HOSTILE: Readonly<
  Record<string, readonly [answer: (socket: Socket) => void, status?: number]>
> = {
  "a head that never ends": [
    (socket) => {
      socket.write(HEAD);
      pump(socket, `x-a: ${"a".repeat(1_000)}\r\n`);
    },
  ],
  "a header that never ends": [
    (socket) => {
      socket.write(`${HEAD}x-a: `);
      pump(socket, "a".repeat(65_536));
    },
  ],
  "a head that trickles": [
    (socket) => {
      socket.write(HEAD);
      const timer = setInterval(() => {
        if (socket.destroyed) clearInterval(timer);
        else socket.write("x-a: a\r\n");
      }, 50);
    },
  ],
  "interim answers that never end": [
    (socket) => pump(socket, "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(10)),
  ],
  "an interim answer, then the answer": [
    (socket) => {
      socket.write(`HTTP/1.1 100 Continue\r\n\r\n${HEAD}content-length: 0\r\n\r\n`);
    },
    200,
  ],
  "another protocol": [
    (socket) => {
      socket.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
    },
  ],
  "no HTTP": [(socket) => void socket.write("SSH-2.0-x\r\n")],
  "a chunk whose extension never ends": [
    (socket) => {
      socket.write(`${HEAD}transfer-encoding: chunked\r\n\r\n1;`);
      pump(socket, "a".repeat(65_536));
    },
    200,
  ],
  "a compressed body of 100 MB": [
    (socket) => {
      socket.write(`${HEAD}content-encoding: gzip\r\ncontent-length: ${COMPRESSED.length}\r\n\r\n`);
      socket.write(COMPRESSED);
    },
    200,
  ],
};

for (const [name, [answer, expected]] of Object.entries(HOSTILE)) {
  test(`${name}: the attempt ends in time, and takes no memory to speak of`, async () => {
    await using server = await startRaw(answer);
    Bun.gc(true);
    const beforeBytes = process.memoryUsage().rss;
    const beganMs = performance.now();
    const outcome = await post(server.url, 1_000).then(
      ({ status }) => status,
      () => undefined,
    );
    expect(outcome).toBe(expected);
    expect(performance.now() - beganMs).toBeLessThan(4_000);
    expect(process.memoryUsage().rss - beforeBytes).toBeLessThan(64_000_000);
  });
}

test("a compressed answer is not expanded: nothing looks at whether it could be", async () => {
  const chunked = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 7\r\n\r\nno gzip";
  await using server = await startRaw((socket) => void socket.write(chunked));
  const beganMs = performance.now();
  expect((await post(server.url)).status).toBe(200);
  // Whoever expanded it would fail, and drop the connection.
  expect((await post(server.url)).status).toBe(200);
  expect(performance.now() - beganMs).toBeLessThan(5_000);
  expect(server.connections).toBe(1);
});

test("the status stands where the rest of the answer does not come", async () => {
  await using server = await startRaw((socket) => {
    socket.write("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\npart");
  });
  expect((await post(server.url)).status).toBe(200);
});

test("one time limit holds for the name, the connection and the answer", async () => {
  await using silent = await startRaw(() => {});
  for (const url of ["https://slow.test/", silent.url]) {
    await expect(post(url, 100)).rejects.toMatchObject({ name: "TimeoutError" });
  }
  await expect(post("https://unknown.test/")).rejects.toBeInstanceOf(NameNotResolved);
});

test("the next address of a name is tried where one cannot be reached, and no request is sent twice", async () => {
  let requests = 0;
  await using server = await startRaw((socket) => {
    requests++;
    if (requests === 1) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    else socket.destroy();
  });
  const at = (name: string) => server.url.replace("127.0.0.1", name);
  expect((await post(at("several.test"))).status).toBe(200);
  await expect(post(at("first.test"))).rejects.toMatchObject({ code: "ECONNRESET" });
  expect(requests).toBe(2);
  await expect(post(at("too-many.test"))).rejects.toMatchObject({ code: "ECONNREFUSED" });
});
