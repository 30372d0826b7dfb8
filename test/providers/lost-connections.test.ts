import { expect, test } from "bun:test";
import { HttpError } from "../../src/providers/transport/http-error.ts";
import {
  answerOf,
  createHttpFetch,
  type RawConnection,
  requestOf,
  send,
  startRawServer,
} from "./http-raw-server.ts";
import { adapter, callOf, failureOf } from "./openai-adapter.ts";

const JSON_ANSWER = answerOf("{}", "content-type: application/json\r\n");
const baseUrlOf = ({ url }: { url: string }) => url.replace(/\/x.*/, "");

test("a request for a new connection leaves those that are idle alone", async () => {
  await using server = startRawServer((connection) => send(connection, answerOf("ok")));
  const httpFetch = createHttpFetch();
  for (const onNewConnection of [false, false, true]) {
    await (await httpFetch(server.url, requestOf({ onNewConnection }))).text();
  }
  expect(server.connections).toHaveLength(2);
});

test.each([
  ["a used connection without a byte", [JSON_ANSWER, ""], true],
  ["a used connection behind a byte", [JSON_ANSWER, "H"], false],
  ["a new connection", [""], false],
])("a failure with %s tells whether it may have died unnoticed", async (_how, says, isLost) => {
  await using server = startRawServer((connection, _request, index) => {
    if (says[index] === JSON_ANSWER) send(connection, JSON_ANSWER);
    else connection.socket.end(says[index]);
  });
  const httpFetch = createHttpFetch();
  for (let left = says.length - 1; left > 0; left--) {
    await (await httpFetch(server.url, requestOf())).text();
  }
  const error = await httpFetch(server.url, requestOf()).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(HttpError);
  expect(error.lostUsedConnection).toBe(isLost);
});

test("a call that was lost with a used connection says so, and is answered over a new one", async () => {
  const heard = new Map<RawConnection, number>();
  await using server = startRawServer((connection) => {
    const requests = (heard.get(connection) ?? 0) + 1;
    heard.set(connection, requests);
    if (requests > 1) connection.socket.terminate();
    // The first two are answered together: one that comes behind an answer may come over its connection.
    else if (heard.size === 2) for (const one of heard.keys()) send(one, JSON_ANSWER);
    else if (heard.size > 2) send(connection, JSON_ANSWER);
  });
  const provider = adapter(baseUrlOf(server));
  // Another idle connection stands beside the one that is lost.
  await Promise.all([provider.chat(callOf("m")), provider.chat(callOf("m"))]);
  const failure = await failureOf(provider.chat(callOf("m")));
  expect([failure.kind, failure.lostUsedConnection]).toEqual(["unavailable", true]);
  const again = await provider.chat(callOf("m", { onNewConnection: true }));
  expect(again).toHaveProperty("completion", {});
  expect(heard.size).toBe(3);
});
