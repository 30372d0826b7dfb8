import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { exchange } from "../support/raw-http.ts";
import { until } from "../support/until.ts";

const MAX_HEAD_BYTES = 32_768;
const MEBIBYTE = 1_048_576;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

function headOf(sizeBytes: number, before: string): Buffer {
  const ending = "\r\nhost: localhost\r\nconnection: close\r\n\r\n";
  return Buffer.from(before + "x".repeat(sizeBytes - before.length - ending.length) + ending);
}

test("a head of 32 KB is answered", async () => {
  const answer = await exchange(gateway, [headOf(MAX_HEAD_BYTES, "GET /healthz HTTP/1.1\r\na: ")]);
  expect(answer.status).toBe(200);
});

test.each([
  ["a header", "GET /healthz HTTP/1.1\r\na: "],
  ["an address", "GET /healthz?"],
])("a head that is longer for %s is refused before it has come whole", async (_, before) => {
  // Its end is missing: the answer does not wait for it.
  const begun = headOf(MEBIBYTE, before).subarray(0, 64 * 1024);
  expect((await exchange(gateway, [begun])).status).toBe(431);
});

test("a client that asks for what is not there again and again and reads nothing is not answered into memory", async () => {
  let isClosed = false;
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () => {
    socket.write("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(60_000));
  });
  socket.pause();
  socket.on("error", () => {});
  socket.on("close", () => {
    isClosed = true;
  });
  await until("its connection is closed", () => isClosed);
  socket.destroy();
}, 60_000);
