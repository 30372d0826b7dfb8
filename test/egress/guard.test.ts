import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { createEgressSend } from "../../src/platform/egress/client.ts";
import { EgressGuard, EgressRefused, type Resolve } from "../../src/platform/egress/guard.ts";

const PUBLIC = "93.184.215.14";
const noResolve: Resolve = () => Promise.reject(new Error("nothing was to be resolved"));

/** Waits for what must never come; counts connections and bytes. */
interface Trap {
  readonly port: number;
  readonly touched: number;
  stop(): Promise<void>;
}

async function startTrap(host: string): Promise<Trap> {
  let touched = 0;
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    touched++;
    sockets.add(socket);
    socket.on("data", () => touched++);
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  return {
    port: (server.address() as { port: number }).port,
    get touched() {
      return touched;
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

let trap: Trap;
beforeAll(async () => {
  trap = await startTrap("0.0.0.0");
});
afterAll(() => trap.stop());

function sender(resolve: Resolve, allowedCidrs: readonly string[] = []) {
  return createEgressSend({ guard: new EgressGuard({ resolve, allowedCidrs, allowsHttp: true }) });
}

const post = (url: string) => ({
  method: "POST" as const,
  url,
  headers: {},
  body: "{}",
  timeoutMs: 2_000,
});

describe("no byte reaches a non-public address", () => {
  const HOSTS = [
    "127.0.0.1",
    "127.1",
    "127.0.0.1.",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "0x7f000001",
    "0.0.0.0",
    "0",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::7f00:1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "169.254.169.254",
    "[fe80::1]",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "some.localhost",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "[fd00::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "①②⑦.0.0.1",
  ];
  for (const scheme of ["http", "https"]) {
    test(`written as ${HOSTS.length} kinds of ${scheme} URL`, async () => {
      const send = sender(noResolve);
      const passed: string[] = [];
      for (const host of HOSTS) {
        const refusal = await send(post(`${scheme}://${host}:${trap.port}/hook`)).catch((e) => e);
        if (!(refusal instanceof EgressRefused)) passed.push(`${host}: ${refusal}`);
      }
      expect(passed).toEqual([]);
      expect(trap.touched).toBe(0);
    });
  }

  test("as an answer of the resolver, alone or beside a public one", async () => {
    const answers = [
      ["127.0.0.1"],
      [PUBLIC, "10.0.0.1"],
      ["127.0.0.1", PUBLIC],
      ["::ffff:127.0.0.1"],
      ["fe80::1%eth0"],
      ["64:ff9b::7f00:1"],
      ["no address"],
    ];
    for (const answer of answers) {
      const send = sender(async () => answer);
      await expect(send(post(`http://receiver.test:${trap.port}/`))).rejects.toBeInstanceOf(
        EgressRefused,
      );
    }
    expect(trap.touched).toBe(0);
  });

  test("as a name that changes its answer between the check and the use", async () => {
    const answers = ["192.0.2.1", "127.0.0.1"];
    let asked = 0;
    // The documentation's address leads nowhere; it is allowed here so that the check passes.
    const send = sender(async () => [answers[Math.min(asked++, 1)]!], ["192.0.2.0/24"]);
    const outcome = await send({
      ...post(`http://rebinding.test:${trap.port}/`),
      timeoutMs: 300,
    }).catch((error: Error) => error);
    expect(outcome).toBeInstanceOf(Error);
    expect(asked).toBe(1);
    expect(trap.touched).toBe(0);
  });

  test("as the target of a redirect", async () => {
    const redirecting = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: () =>
        new Response(null, {
          status: 307,
          headers: { location: `http://127.0.0.2:${trap.port}/` },
        }),
    });
    try {
      const send = sender(noResolve, ["127.0.0.1/32"]);
      const { status } = await send(post(`http://127.0.0.1:${redirecting.port}/`));
      expect(status).toBe(307);
      expect(trap.touched).toBe(0);
    } finally {
      await redirecting.stop(true);
    }
  });
});

describe("the form of a URL", () => {
  const guard = (allowsHttp: boolean) =>
    new EgressGuard({ resolve: noResolve, allowedCidrs: [], allowsHttp });

  test("is https, or http where the operator allows it", () => {
    expect(guard(false).parse("https://example.com/hook").href).toBe("https://example.com/hook");
    expect(() => guard(false).parse("http://example.com/hook")).toThrow("must be https");
    expect(guard(true).parse("http://example.com/hook").protocol).toBe("http:");
    for (const text of ["ftp://example.com", "file:///etc/passwd", "javascript:1", "data:,x"]) {
      expect(() => guard(true).parse(text)).toThrow(EgressRefused);
    }
  });

  test("holds no credentials, is a URL, and is not endless", () => {
    for (const text of [
      "https://user:password@example.com/",
      "https://user@example.com/",
      "https://",
      "example.com",
      "",
      "https://[fe80::1%25eth0]/",
      "https://256.1.1.1/",
      "https://example.com:0/",
      "https://example.com:65536/",
      `https://example.com/${"a".repeat(2_048)}`,
    ]) {
      expect(() => guard(true).parse(text)).toThrow(EgressRefused);
    }
  });
});

test("an operator's exception opens its network and no other", async () => {
  const guard = new EgressGuard({
    resolve: async () => ["10.1.2.3"],
    allowedCidrs: ["10.1.0.0/16", "fd00::/8"],
    allowsHttp: false,
  });
  expect((await guard.check("https://inside.test/")).addresses).toEqual(["10.1.2.3"]);
  expect((await guard.check("https://[fd00::7]/")).addresses).toEqual(["fd00::7"]);
  expect((await guard.check("https://[::ffff:10.1.2.3]/")).addresses).toEqual(["::ffff:a01:203"]);
  await expect(guard.check("https://10.2.0.1/")).rejects.toBeInstanceOf(EgressRefused);
  await expect(guard.check("https://127.0.0.1/")).rejects.toBeInstanceOf(EgressRefused);
});
