import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

/** More than the system keeps of a connection that nobody reads, at a kilobyte and a half each. */
const REQUESTS = 20_000;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const answered = async (path: string): Promise<number> => {
  const metrics = await (await fetch(`${gateway.baseUrl}/metrics`)).text();
  const line = `gateway_requests_total{method="GET",route="${path}",status="200"}`;
  return Number(
    metrics
      .split("\n")
      .find((one) => one.startsWith(line))
      ?.split(" ")[1] ?? 0,
  );
};

test.each([
  "/openapi.json",
  "/docs/api-reference",
  "/docs/scalar.js",
  "/llms.txt",
  "/healthz",
  "/v1/models",
  "/metrics",
])(
  "a client that asks for %s again and again and reads nothing is not answered into memory",
  async (path) => {
    const before = await answered(path);
    let isClosed = false;
    const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () => {
      const head = `GET ${path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${gateway.secretKey}\r\n\r\n`;
      socket.write(head.repeat(REQUESTS));
    });
    socket.pause();
    socket.on("error", () => {});
    socket.on("close", () => {
      isClosed = true;
    });
    await until("its connection is closed", () => isClosed);
    expect((await answered(path)) - before).toBeLessThan(REQUESTS);
    socket.destroy();
  },
  60_000,
);
