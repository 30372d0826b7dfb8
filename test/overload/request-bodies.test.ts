import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { MAX_BODIES_BYTES, MAX_BODY_MS } from "../../src/http/body-budget.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

const BODY_BYTES = 32 * 1024 * 1024;
const FITTING = MAX_BODIES_BYTES / BODY_BYTES;
const framing = `content-length: ${BODY_BYTES}`;
/** All but the end of a body. */
const MOST = Buffer.alloc(BODY_BYTES - 1, " ");

let clock: VirtualClock;
let gateway: TestGateway;
beforeAll(async () => {
  clock = new VirtualClock(Date.now());
  gateway = await startTestGateway({ clock });
});
afterAll(() => gateway.stop());

interface SlowSender {
  readonly socket: Socket;
  said(): string;
  isClosed(): boolean;
}

/** Begins a request whose body never comes whole. */
function sendSlowly(
  framing: string,
  first: string | Uint8Array = "{",
  key = gateway.secretKey,
): SlowSender {
  let said = "";
  let isClosed = false;
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () => {
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\n${framing}\r\n\r\n`,
    );
    socket.write(first);
  });
  socket.on("data", (data) => {
    said += data.toString();
  });
  socket.on("error", () => {});
  socket.on("close", () => {
    isClosed = true;
  });
  return { socket, said: () => said, isClosed: () => isClosed };
}

const chat = (text: string) =>
  gateway.request("POST", "/v1/chat/completions", {
    model: "sandbox/chat",
    messages: [{ role: "user", content: text }],
  });

test("bodies that come and do not end hold no more memory than a bound, whoever comes then is told, and small work goes on", async () => {
  const { secretKey } = await gateway.addOrganization();
  const senders = Array.from({ length: FITTING }, (_, n) =>
    sendSlowly(framing, MOST, n % 2 === 0 ? secretKey : gateway.secretKey),
  );
  const refused = await until("one of them is refused", () =>
    senders.find(({ said }) => said().includes("overloaded")),
  );
  expect(refused.said()).toStartWith("HTTP/1.1 503");
  expect(refused.said().toLowerCase()).toContain("retry-after: 1\r\n");
  expect((await chat("hello")).status).toBe(200);
  const administration = await gateway.request("GET", "/v1/keys", undefined, {
    key: gateway.managementKey,
  });
  expect(administration.status).toBe(200);
  for (const { socket } of senders) socket.destroy();
  await until("there is room again", async () => (await chat("x".repeat(100_000))).status === 200);
}, 60_000);

test("the bodies of one organization leave room for those of others", async () => {
  const senders = Array.from({ length: FITTING + 1 }, () => sendSlowly(framing, MOST));
  const isRefused = ({ said }: SlowSender) => said().startsWith("HTTP/1.1 503");
  await until("three of them are refused", () => senders.filter(isRefused).length === 3);
  const { secretKey: key } = await gateway.addOrganization();
  const body = { model: "sandbox/chat", messages: [{ role: "user", content: "x".repeat(9e6) }] };
  const other = await gateway.request("POST", "/v1/chat/completions", body, { key });
  expect((await other.json()).error?.code).not.toBe("overloaded");
  expect(other.status).not.toBe(503);
  for (const { socket } of senders) socket.destroy();
}, 60_000);

test("bodies that were announced and do not come take no room from others", async () => {
  const senders = Array.from({ length: 3 * FITTING }, () =>
    sendSlowly(`content-length: ${BODY_BYTES}`),
  );
  for (let request = 0; request < 5; request++) {
    expect((await chat("x".repeat(200_000))).status).toBe(200);
  }
  expect(senders.map((sender) => sender.said())).toEqual(senders.map(() => ""));
  for (const { socket } of senders) socket.destroy();
});

/** Admissions read the database; they must not be timed out by jumps of the clock. */
const untilQuiet = () =>
  until("no query runs", async () => {
    const [row] = await gateway.sql`SELECT count(*)::int AS running FROM pg_stat_activity
      WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()`;
    return row!.running === 0;
  });

test("a long body may come slowly, but not with long silences", async () => {
  const text = JSON.stringify({
    model: "sandbox/chat",
    messages: [{ role: "user", content: "x".repeat(100_000) }],
  });
  const framing = `content-length: ${text.length}\r\nconnection: close`;
  const slow = sendSlowly(framing, text.slice(0, 10));
  const silent = sendSlowly(framing, text.slice(0, 10));
  const atEachPiece = async () => expect((await chat("hello")).status).toBe(200);
  await atEachPiece();
  await untilQuiet();
  for (let at = 10; at < text.length; at += 30_000) {
    await atEachPiece();
    clock.advance(20_000);
    slow.socket.write(text.slice(at, at + 30_000));
    // What was written has been read when a later request was answered.
    await atEachPiece();
  }
  await until("the slow one is answered", () => slow.said().startsWith("HTTP/1.1 200"));
  expect(silent.said()).toContain("client_closed_request");
  await until("the connection of the silent one is closed", () => silent.isClosed());
});

test.each([
  ["of a stated length", `content-length: ${BODY_BYTES}`, "{"],
  ["in chunks", "transfer-encoding: chunked", "1\r\n{\r\n"],
])(
  "a body %s that does not come to its end is given up after a while",
  async (_, framing, first) => {
    const sender = sendSlowly(framing, first);
    expect((await chat("hello")).status).toBe(200);
    expect(sender.said()).toBe("");
    // It is read once a later request was answered, or the one after that.
    await until("it is told", async () => {
      expect((await chat("hello")).status).toBe(200);
      await untilQuiet();
      clock.advance(MAX_BODY_MS);
      await Bun.sleep(5);
      return sender.said().includes("client_closed_request");
    });
    await until("its connection is closed", () => sender.isClosed());
  },
);
