import { expect, test } from "bun:test";
import { VirtualClock } from "../../src/lib/clock.ts";
import {
  ConnectionPool,
  IDLE_TIMEOUT_MS,
  MAX_IDLE_CONNECTIONS,
  MAX_IDLE_CONNECTIONS_OF_ORIGIN,
} from "../../src/providers/transport/connection-pool.ts";
import { TrustedAuthorities } from "../../src/providers/transport/dial.ts";
import { Exchange } from "../../src/providers/transport/exchange.ts";
import {
  answerOf,
  createHttpFetch,
  outcomeOf,
  type RawConnection,
  rawServersOf,
  requestOf,
  send,
} from "./http-raw-server.ts";

test("of one origin at most MAX_IDLE_CONNECTIONS_OF_ORIGIN are kept, and those beyond are closed", async () => {
  const CALLS = MAX_IDLE_CONNECTIONS_OF_ORIGIN + 76;
  const asked: RawConnection[] = [];
  await using server = rawServersOf("http")((connection) => {
    asked.push(connection);
    if (asked.length === CALLS) for (const one of asked) send(one, answerOf("ok"));
    if (asked.length > CALLS) send(connection, answerOf("again"));
  });
  const httpFetch = createHttpFetch();
  const calls = Array.from({ length: CALLS }, () => outcomeOf(httpFetch, server.url));
  expect(new Set(await Promise.all(calls))).toEqual(new Set(["200 ok"]));
  const open = () => server.connections.filter((one) => !one.isClosed).length;
  await server.until(() => open() === MAX_IDLE_CONNECTIONS_OF_ORIGIN);
  expect(await outcomeOf(httpFetch, server.url)).toBe("200 again");
  expect([server.connections.length, open()]).toEqual([CALLS, MAX_IDLE_CONNECTIONS_OF_ORIGIN]);
});

test("of all origins at most MAX_IDLE_CONNECTIONS are kept, and the count goes back with each that leaves", async () => {
  await using server = rawServersOf("http")(() => undefined);
  const clock = new VirtualClock();
  const idle = { connections: MAX_IDLE_CONNECTIONS - 2 };
  const target = {
    hostname: "127.0.0.1",
    port: Number(new URL(server.url).port),
    isSecure: false,
    proxy: undefined,
  };
  const afterInBackground = clock.after.bind(clock);
  const connect = async (options: Bun.TCPSocketConnectOptions<never>) => Bun.connect(options);
  const authorities = new TrustedAuthorities();
  const dependencies = { clock, connect: connect as never, authorities, afterInBackground, idle };
  const pool = new ConnectionPool(dependencies, target);
  const ask = () =>
    new Promise<string>((resolve, reject) => {
      const text = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
      const receiver = {
        responded: async (response: { text(): Promise<string> }) => resolve(await response.text()),
        failed: reject,
      };
      pool.dispatch(new Exchange(text, requestOf({ method: "GET", body: "" }), receiver));
    });
  const answerAll = async (calls: Promise<string>[]) => {
    await server.until(
      () => server.connections.filter((one) => !one.isClosed).length >= calls.length,
    );
    for (const one of server.connections) if (!one.isClosed) send(one, answerOf("ok"));
    return Promise.all(calls);
  };
  expect(await answerAll([ask(), ask(), ask()])).toEqual(["ok", "ok", "ok"]);
  await server.until(() => server.connections.filter((one) => one.isClosed).length === 1);
  expect(idle.connections).toBe(MAX_IDLE_CONNECTIONS);
  const [open] = server.connections.filter((one) => !one.isClosed);
  open!.socket.end();
  while (idle.connections !== MAX_IDLE_CONNECTIONS - 1) await Bun.sleep(1);
  const again = ask();
  expect(idle.connections).toBe(MAX_IDLE_CONNECTIONS - 2);
  expect(await answerAll([again])).toEqual(["ok"]);
  expect(idle.connections).toBe(MAX_IDLE_CONNECTIONS - 1);
  clock.advance(IDLE_TIMEOUT_MS);
  await server.until(() => server.connections.every((one) => one.isClosed));
  expect(idle.connections).toBe(MAX_IDLE_CONNECTIONS - 2);
});
