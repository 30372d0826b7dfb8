import { afterAll, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import { exitOf, firstKeys, Grounds, metric } from "./gateway-process.ts";

const grounds = new Grounds("stop-unread-body");
afterAll(() => grounds.clear());

test("who is still sending a body when the grace of a stop is over is told of the stop", async () => {
  const dataDir = await grounds.newDataDirWithDatabase();
  const environment = { GATEWAY_SHUTDOWN_GRACE_MS: "400" };
  const gateway = grounds.launch({ dataDir, environment });
  const baseUrl = await gateway.listening;
  const { hostname, port } = new URL(baseUrl);
  const inFlight = () => metric(baseUrl, "gateway_requests_in_flight");
  const before = await inFlight();
  const received: Buffer[] = [];
  const client = await Bun.connect({
    hostname,
    port: Number(port),
    socket: { data: (_, bytes) => void received.push(Buffer.from(bytes)) },
  });
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    `Host: ${hostname}`,
    `Authorization: Bearer ${firstKeys(dataDir).secret_key}`,
    "Content-Type: application/json",
    "Content-Length: 100",
  ];
  client.write(`${head.join("\r\n")}\r\n\r\n{"model":`);
  await until("it is being read", async () => (await inFlight()) > before);
  gateway.signal("SIGTERM");
  expect(await exitOf(gateway)).toBe(0);
  const told = Buffer.concat(received).toString();
  expect(told).toStartWith("HTTP/1.1 503 ");
  expect(told).toContain("The gateway is stopping.");
}, 60_000);
