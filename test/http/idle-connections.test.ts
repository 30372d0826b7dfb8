import { expect, test } from "bun:test";
import { connect } from "node:net";
import { startTestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

test("a connection that waits for no answer is closed after the time that is set", async () => {
  const gateway = await startTestGateway({ environment: { GATEWAY_CONNECTION_IDLE_SECONDS: "1" } });
  let received = "";
  let isClosed = false;
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1", () =>
    socket.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"),
  );
  socket.on("data", (data: Buffer) => {
    received += data.toString("latin1");
  });
  socket.on("close", () => {
    isClosed = true;
  });
  // Sooner than the default.
  await until("the end of the connection", () => isClosed, 25_000);
  expect(received).toStartWith("HTTP/1.1 200");
  await gateway.stop();
});
