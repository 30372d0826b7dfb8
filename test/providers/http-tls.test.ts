import { expect, test } from "bun:test";
import { connect as connectTcp, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { VirtualClock } from "../../src/lib/clock.ts";
import { IDLE_TIMEOUT_MS } from "../../src/providers/transport/connection-pool.ts";
import type { Connect, SocketEvents } from "../../src/providers/transport/dial.ts";
import type { HttpError } from "../../src/providers/transport/http-error.ts";
import {
  answerOf,
  type CertificateName,
  certificateOf,
  createHttpFetch,
  outcomeOf,
  type RawConnection,
  requestOf,
  send,
  startRawServer,
  TEST_AUTHORITY,
} from "./http-raw-server.ts";
import { adapter, callOf, failureOf } from "./openai-adapter.ts";

const answerOk = (connection: RawConnection) => send(connection, answerOf("ok"));
const portOf = ({ url }: { url: string }) => Number(new URL(url).port);

/** Takes every connection to 127.0.0.1, so that any name can stand in a URL. */
const connectHere: Connect = (options) => Bun.connect({ ...options, hostname: "127.0.0.1" });

test.each([
  ["other", "ERR_TLS_CERT_ALTNAME_INVALID"],
  ["expired", "CERT_HAS_EXPIRED"],
  ["self", "DEPTH_ZERO_SELF_SIGNED_CERT"],
] as [CertificateName, string][])(
  "a certificate of kind %p is refused, named, and nothing is sent to its server",
  async (certificate, code) => {
    await using server = startRawServer(answerOk, undefined, certificate);
    using relay = await startRelay(portOf(server));
    const httpFetch = createHttpFetch();
    for (const host of ["localhost", "127.0.0.1"]) {
      const call = httpFetch(`https://${host}:${relay.port}/`, requestOf());
      const error: HttpError = await call.catch((thrown) => thrown);
      expect([error.code, error.isLasting]).toEqual([code, true]);
      expect(error.message).toContain("certificate is not accepted");
    }
    await relay.untilAllClosed();
    expect(server.connections.filter((one) => one.received !== "")).toEqual([]);
    const provider = adapter(`https://127.0.0.1:${relay.port}/v1`);
    const { kind, isLasting, logMessage } = await failureOf(provider.chat(callOf("m")));
    expect([kind, isLasting]).toEqual(["unavailable", true]);
    expect(logMessage).toMatch(/certificate is not accepted: [A-Z_]+/);
  },
);

test("an authority that the machine does not know is not trusted", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  const httpFetch = createHttpFetch({ authorities: undefined });
  expect(await outcomeOf(httpFetch, server.url)).toBe("UNABLE_TO_VERIFY_LEAF_SIGNATURE");
});

test.each([
  ["localhost", true],
  ["LOCALHOST", true],
  ["localhost.", true],
  ["127.0.0.1", true],
  ["a.wild.test", true],
  ["wild.test", false],
  ["a.b.wild.test", false],
  ["evil-localhost", false],
  ["127.0.0.2", false],
])(
  "a certificate for localhost, 127.0.0.1, ::1 and *.wild.test serves %s: %p",
  async (host, is) => {
    await using server = startRawServer(answerOk, undefined, "good");
    const httpFetch = createHttpFetch({ connect: connectHere });
    const outcome = await outcomeOf(httpFetch, `https://${host}:${portOf(server)}/`);
    expect(outcome).toBe(is ? "200 ok" : "ERR_TLS_CERT_ALTNAME_INVALID");
  },
);

test("an IPv6 address is compared with the certificate's", async () => {
  using server = Bun.serve({
    hostname: "::1",
    port: 0,
    tls: certificateOf("good"),
    fetch: () => new Response("ok"),
  });
  for (const host of ["[::1]", "[0:0:0:0:0:0:0:1]"]) {
    expect(await outcomeOf(createHttpFetch(), `https://${host}:${server.port}/`)).toBe("200 ok");
  }
});

test("the name is compared by the client itself, whatever its sockets compare", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  const connect: Connect = (options) => {
    const tls = { ...(options.tls as Bun.TLSOptions), serverName: "localhost" };
    return Bun.connect({ ...options, hostname: "127.0.0.1", tls });
  };
  const url = `https://else.test:${portOf(server)}/`;
  const outcome = await outcomeOf(createHttpFetch({ connect }), url);
  expect(outcome).toBe("ERR_TLS_CERT_ALTNAME_INVALID");
  expect(server.connections.filter((one) => one.received !== "")).toEqual([]);
});

test("a certificate that cannot be read is refused", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  const connect: Connect = (options) => {
    const { handshake } = options.socket;
    const unreadable = (
      socket: Bun.Socket<SocketEvents>,
      isTrusted: boolean,
      error: Error | null,
    ) => {
      socket.getPeerCertificate = () => {
        throw new Error("an odd name");
      };
      return handshake!(socket, isTrusted, error);
    };
    return Bun.connect({ ...options, socket: { ...options.socket, handshake: unreadable } });
  };
  expect(await outcomeOf(createHttpFetch({ connect }), server.url)).toBe("CERT_UNREADABLE");
});

test.each([
  [
    "throws",
    () => {
      throw new Error("no sockets");
    },
  ],
  ["rejects", () => Promise.reject(new Error("no sockets"))],
] as [string, Connect][])(
  "a connect that %s fails the call, over TLS as well",
  async (_how, connect) => {
    for (const url of ["http://h.test/", "https://h.test/"]) {
      expect(await outcomeOf(createHttpFetch({ connect }), url)).toBe("CONNECTION_CLOSED");
    }
  },
);

test("authorities that are no certificates fail the calls that would need them, and no others", async () => {
  await using secure = startRawServer(answerOk, undefined, "good");
  await using plain = startRawServer(answerOk);
  const httpFetch = createHttpFetch({ authorities: ["-----BEGIN CERTIFICATE-----\nAAAA\n"] });
  for (let time = 0; time < 2; time++) {
    expect(await outcomeOf(httpFetch, secure.url)).not.toContain("200");
    expect(await outcomeOf(httpFetch, plain.url)).toBe("200 ok");
  }
  expect(secure.connections.filter((one) => one.received !== "")).toEqual([]);
});

async function fixtureTls() {
  const { cert, key } = certificateOf("good");
  return { cert: await cert.text(), key: await key.text() };
}

test.each(["TLSv1.2", "TLSv1.3"] as const)(
  "names are told to the server and addresses are not, and new connections stand again and again: %s",
  async (version) => {
    const names: unknown[] = [];
    const server = createTlsServer(
      { ...(await fixtureTls()), minVersion: version, maxVersion: version },
      (socket: TLSSocket & { servername?: unknown }) => {
        names.push(socket.servername || undefined);
        socket.on("error", () => undefined);
        socket.on("data", () => socket.write(answerOf("ok")));
      },
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { port: number };
    const httpFetch = createHttpFetch({ connect: connectHere });
    const hosts = ["localhost", "127.0.0.1", "localhost.", "localhost"];
    for (const host of hosts) {
      const request = requestOf({ onNewConnection: true });
      const response = await httpFetch(`https://${host}:${port}/`, request);
      expect(await response.text()).toBe("ok");
    }
    server.close();
    expect(names).toEqual(["localhost", undefined, "localhost", "localhost"]);
  },
);

test("a server that has nothing newer than TLS 1.1 is refused", async () => {
  const version = "TLSv1.1";
  const versions = { minVersion: version, maxVersion: version } as const;
  const server = createTlsServer({ ...(await fixtureTls()), ...versions }, () => undefined);
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  expect(await outcomeOf(createHttpFetch(), `https://127.0.0.1:${port}/`)).toBe("EPROTO");
  server.close();
});

test("NODE_EXTRA_CA_CERTS names further authorities, and an idle connection keeps no process alive", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  const client = join(import.meta.dir, "../../src/providers/transport/http-client.ts");
  const script = `
    const { createHttpClient } = await import(${JSON.stringify(client)});
    createHttpClient().send(${JSON.stringify(server.url)}, {
      method: "GET", headers: {}, body: "", connectTimeoutMs: 5000,
      signal: new AbortController().signal,
    }, {
      responded: async (response) => console.log(response.status, await response.text()),
      failed: (error) => console.log(error.code),
    });`;
  const run = async (environment: Record<string, string>) => {
    const child = Bun.spawn([process.execPath, "-e", script], {
      env: { PATH: process.env.PATH, ...environment },
      stdout: "pipe",
    });
    const output = await new Response(child.stdout).text();
    return [await child.exited, output.trim()];
  };
  const extra = join(import.meta.dir, "../fixtures/tls/transport-ca.crt");
  expect(await run({ NODE_EXTRA_CA_CERTS: extra })).toEqual([0, "200 ok"]);
  expect(await run({})).toEqual([0, "UNABLE_TO_VERIFY_LEAF_SIGNATURE"]);
});

test("a server that takes connections and never speaks TLS is a timeout at the connect timeout", async () => {
  await using server = startRawServer(() => undefined);
  const clock = new VirtualClock();
  const httpFetch = createHttpFetch({ clock });
  const url = server.url.replace("http:", "https:");
  const call = httpFetch(url, requestOf({ connectTimeoutMs: 500 })).catch((error) => error);
  await server.until(() => server.connections[0]?.received !== undefined);
  await server.until(() => server.connections[0]!.received !== "");
  clock.advance(499);
  expect(server.connections[0]!.isClosed).toBe(false);
  clock.advance(1);
  expect((await call).kind).toBe("timeout");
  await server.until(() => server.connections[0]!.isClosed);
});

test("an abort while TLS is set up closes the connection", async () => {
  await using server = startRawServer(() => undefined);
  const controller = new AbortController();
  const url = server.url.replace("http:", "https:");
  const call = createHttpFetch()(url, requestOf({ signal: controller.signal }));
  const outcome = call.catch((error: unknown) => error);
  await server.until(() => (server.connections[0]?.received ?? "") !== "");
  controller.abort("gone");
  expect(await outcome).toBe("gone");
  await server.until(() => server.connections[0]!.isClosed);
});

test("a server that takes TLS and never answers is waited for, and let go when the call is aborted", async () => {
  const asked = Promise.withResolvers<void>();
  await using server = startRawServer(() => asked.resolve(), undefined, "good");
  const clock = new VirtualClock();
  const controller = new AbortController();
  const request = requestOf({ signal: controller.signal, connectTimeoutMs: 500 });
  const call = createHttpFetch({ clock })(server.url, request).catch((error) => error);
  await asked.promise;
  clock.advance(3_600_000);
  expect(server.connections[0]!.isClosed).toBe(false);
  controller.abort("gone");
  expect(await call).toBe("gone");
  await server.until(() => server.connections[0]!.isClosed);
});

test("TLS to a port of plain HTTP, and plain HTTP to one of TLS, fail at once", async () => {
  await using plain = startRawServer(answerOk, (connection) =>
    send(connection, "HTTP/1.1 400 Bad Request\r\n\r\n"),
  );
  const asTls = plain.url.replace("http:", "https:");
  expect(await outcomeOf(createHttpFetch(), asTls)).toBe("EPROTO");
  await using secure = startRawServer(answerOk, undefined, "good");
  const asPlain = secure.url.replace("https:", "http:");
  const outcome = await outcomeOf(createHttpFetch(), asPlain);
  expect(outcome).toMatch(/^(MALFORMED_RESPONSE|CONNECTION_CLOSED|ECONNRESET)$/);
});

/** Passes bytes on to a port, until it is told to end the client's connections. */
async function startRelay(port: number, options: { allowHalfOpen?: boolean } = {}) {
  const clients = new Set<Socket>();
  let isMute = false;
  const relay = createServer(options, (client) => {
    clients.add(client);
    const server = connectTcp(port, "127.0.0.1");
    client.on("data", (bytes) => server.write(bytes));
    server.on("data", (bytes) => isMute || client.write(bytes));
    client.on("close", () => server.destroy());
    client.on("error", () => undefined);
    server.on("error", () => undefined);
  });
  await new Promise<void>((resolve) => relay.listen(0, "127.0.0.1", resolve));
  return {
    port: (relay.address() as { port: number }).port,
    end: (how: (client: Socket) => void) => clients.forEach(how),
    /** Passes on nothing more of what the server says. */
    mute: () => {
      isMute = true;
    },
    untilEnded: () =>
      Promise.all(
        [...clients].map((client) => new Promise((resolve) => client.on("end", resolve))),
      ),
    async untilAllClosed() {
      const open = [...clients].filter((client) => !client.closed);
      await Promise.all(
        open.map((client) => new Promise((resolve) => client.on("close", resolve))),
      );
    },
    [Symbol.dispose]: () => void relay.close(),
  };
}

const FRAMINGS = {
  length: "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
  chunks: "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\nhalf",
  close: "HTTP/1.1 200 OK\r\n\r\nhalf",
};
const BROKEN_RECORD = Buffer.from([23, 3, 3, 0, 5, 1, 2, 3, 4, 5]);
test.each([
  // The end of TLS cannot be told from that of TCP alone: Bun reports both in the same way.
  ["length", "FIN", (client: Socket) => void client.end(), "CONNECTION_CLOSED"],
  ["chunks", "FIN", (client: Socket) => void client.end(), "CONNECTION_CLOSED"],
  ["close", "FIN", (client: Socket) => void client.end(), "200 half"],
  ["length", "a reset", (client: Socket) => void client.resetAndDestroy(), "ECONNRESET"],
  ["chunks", "a reset", (client: Socket) => void client.resetAndDestroy(), "ECONNRESET"],
  ["close", "a reset", (client: Socket) => void client.resetAndDestroy(), "ECONNRESET"],
  ["length", "a broken record", (client: Socket) => void client.write(BROKEN_RECORD), "EPROTO"],
  ["chunks", "a broken record", (client: Socket) => void client.write(BROKEN_RECORD), "EPROTO"],
  ["close", "a broken record", (client: Socket) => void client.write(BROKEN_RECORD), "EPROTO"],
] as [keyof typeof FRAMINGS, string, (client: Socket) => void, string][])(
  "a body framed by %s that ends too early with %s",
  async (framing, _how, end, outcome) => {
    await using server = startRawServer(
      (connection) => send(connection, FRAMINGS[framing]),
      undefined,
      "good",
    );
    using relay = await startRelay(portOf(server));
    const httpFetch = createHttpFetch();
    const url = `https://127.0.0.1:${relay.port}/`;
    for (const as of ["text", "stream"] as const) {
      const response = await httpFetch(url, requestOf());
      const text =
        as === "text" ? response.text() : new Response(response.body as ReadableStream).text();
      const read = text.then(
        (body) => `${response.status} ${body}`,
        (error: { code?: unknown }) => String(error.code),
      );
      relay.end(end);
      expect(await read).toBe(outcome);
    }
  },
);

test.each(["length", "chunks"] as const)(
  "a body framed by %s that ends too early with close_notify is a failure",
  async (framing) => {
    await using server = startRawServer(
      ({ socket }) => void socket.end(FRAMINGS[framing]),
      undefined,
      "good",
    );
    expect(await outcomeOf(createHttpFetch(), server.url)).toBe("CONNECTION_CLOSED");
  },
);

test("a connection is closed at once, although its server never ends it from its side", async () => {
  await using server = startRawServer(answerOk, undefined, "good");
  using relay = await startRelay(portOf(server), { allowHalfOpen: true });
  const clock = new VirtualClock();
  let closed = 0;
  const connect: Connect = (options) => {
    const { close } = options.socket;
    const counted = (socket: Bun.Socket<SocketEvents>, error?: Error) => {
      closed++;
      return close!(socket, error);
    };
    return Bun.connect({ ...options, socket: { ...options.socket, close: counted } });
  };
  const afterInBackground = clock.after.bind(clock);
  const httpFetch = createHttpFetch({ clock, connect, afterInBackground });
  expect(await outcomeOf(httpFetch, `https://127.0.0.1:${relay.port}/`)).toBe("200 ok");
  const ended = relay.untilEnded();
  relay.mute();
  clock.advance(IDLE_TIMEOUT_MS);
  await ended;
  expect(closed).toBe(1);
});

test("a second handshake on a connection fails its call and sends nothing again", async () => {
  let requests = 0;
  const asked = Promise.withResolvers<void>();
  await using server = startRawServer(
    () => {
      requests++;
      asked.resolve();
    },
    undefined,
    "good",
  );
  let renegotiate: (() => void) | undefined;
  const connect: Connect = async (options) => {
    const socket = (await Bun.connect(options)) as Bun.Socket<SocketEvents>;
    renegotiate = () => void options.socket.handshake!(socket, true, null as unknown as Error);
  };
  const outcome = outcomeOf(createHttpFetch({ connect }), server.url);
  await asked.promise;
  renegotiate!();
  expect(await outcome).toBe("TLS_RENEGOTIATION");
  await server.until(() => server.connections[0]!.isClosed);
  expect(requests).toBe(1);
});

const openssl = Bun.which("openssl");
test.skipIf(openssl === null)("a server that renegotiates TLS 1.2 is refused", async () => {
  const fixture = (name: string) => join(import.meta.dir, "../fixtures/tls", name);
  const probe = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => probe.once("listening", resolve));
  const { port } = probe.address() as { port: number };
  await new Promise((resolve) => probe.close(resolve));
  const server = Bun.spawn(
    [openssl!, "s_server", "-accept", `127.0.0.1:${port}`, "-tls1_2"].concat([
      "-cert",
      fixture("transport-good.crt"),
      "-key",
      fixture("transport-good.key"),
    ]),
    { stdin: "pipe", stdout: "pipe", stderr: "ignore" },
  );
  try {
    const output = server.stdout.getReader();
    let said = "";
    const until = async (words: string) => {
      while (!said.includes(words)) {
        const { done, value } = await output.read();
        if (done) throw new Error(`s_server ended: ${said}`);
        said += Buffer.from(value).toString();
      }
    };
    await until("ACCEPT");
    const outcome = outcomeOf(createHttpFetch(), `https://127.0.0.1:${port}/marked`);
    await until("POST /marked");
    server.stdin.write("R\n");
    server.stdin.flush();
    expect(await outcome).toBe("TLS_RENEGOTIATION");
    expect(said.split("POST /marked")).toHaveLength(2);
  } finally {
    server.kill();
    await server.exited;
  }
});

test("the machine's authorities are in use where none are given", async () => {
  // The authority of the tests is none of them; that there are some is what counts here.
  const { TrustedAuthorities } = await import("../../src/providers/transport/dial.ts");
  const own = new TrustedAuthorities().tlsOptions as { secureContext?: unknown };
  const given = new TrustedAuthorities([TEST_AUTHORITY]).tlsOptions as { secureContext?: unknown };
  expect(own.secureContext).toBeDefined();
  expect(own.secureContext).not.toBe(given.secureContext);
});
