import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectEnvelope } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed, logLineOf } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";

const KEEPALIVE_MS = 60;
const FIRST_TOKEN_MS = 400;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: {
      GATEWAY_KEEPALIVE_MS: String(KEEPALIVE_MS),
      GATEWAY_UPSTREAM_FIRST_TOKEN_TIMEOUT_MS: String(FIRST_TOKEN_MS),
    },
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const streamed = { stream: true, stream_options: { include_usage: true } };
const idOf = (response: Response) => response.headers.get("x-gateway-request-id")!;

describe("a stream whose provider is silent for longer than the keepalive interval", () => {
  test("is opened with 200 and comments, and goes on as if nothing had been", async () => {
    const slug = gateway.modelThat({ do: "complete", content: "late", firstDelayMs: 250 });
    const response = await gateway.chat(slug, streamed);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toStartWith("text/event-stream");
    const read = await readStream(response);
    expect(read.comments).toBeGreaterThanOrEqual(1);
    expect(read.text).toStartWith(": keepalive\n\n");
    expectStreamShape(read, { model: `test/${slug}`, includesUsage: true });
    expect(read.content).toBe("late");
    expect((await billOfResponse(gateway, response)).estimated).toBeFalse();
  });

  test("tells its first-token timeout in the stream, and costs nothing", async () => {
    const response = await gateway.chat(gateway.modelThat({ do: "stall" }), streamed);
    expect(response.status).toBe(200);
    const read = await readStream(response);
    expect(read.comments).toBeGreaterThanOrEqual(2);
    expect(read.chunks).toEqual([]);
    expect(read.isDone).toBeFalse();
    expectEnvelope(read.error);
    expect(read.error).toMatchObject({
      error: { code: "provider_timeout", type: "timeout_error" },
      request_id: idOf(response),
    });
    expect(await billOf(gateway, idOf(response))).toBeUndefined();
    expect(await logLineOf(gateway, idOf(response))).toMatchObject({
      status: 200,
      error_code: "provider_timeout",
    });
  });

  test("tells what a provider refuses in the stream, and costs nothing", async () => {
    const slug = gateway.modelThat({
      do: "error",
      status: 400,
      message: "No such thing.",
      firstDelayMs: 200,
    });
    const response = await gateway.chat(slug, streamed);
    expect(response.status).toBe(200);
    const read = await readStream(response);
    expect(read.error).toMatchObject({
      error: {
        code: "provider_rejected",
        type: "invalid_request_error",
        message: "No such thing.",
      },
    });
    expect(read.isDone).toBeFalse();
    expect(await billOf(gateway, idOf(response))).toBeUndefined();
  });

  test("can still fall back until its first event", async () => {
    const silent = gateway.modelThat({ do: "stall" });
    const answering = gateway.modelThat({ do: "complete", content: "instead" });
    const response = await gateway.chat(silent, {
      ...streamed,
      models: [`test/${silent}`, `test/${answering}`],
    });
    const read = await readStream(response);
    expect(read.comments).toBeGreaterThanOrEqual(2);
    expectStreamShape(read, { model: `test/${answering}`, includesUsage: true });
    expect(read.content).toBe("instead");
    expect((await billOfResponse(gateway, response)).model).toBe(`test/${answering}`);
  });

  test("gets comments between its events too", async () => {
    const slug = gateway.modelThat({ do: "complete", events: 3, delayMs: 200 });
    const read = await readStream(await gateway.chat(slug, streamed));
    expect(read.comments).toBeGreaterThanOrEqual(3);
    expectStreamShape(read, { model: `test/${slug}`, includesUsage: true });
    expect(read.content).toBe("w000000 w000001 w000002 ");
    expect(read.text.indexOf(": keepalive", read.text.indexOf("w000000"))).toBePositive();
  });

  test("is stopped at the provider when its client leaves, costs nothing, and is logged as 499", async () => {
    const slug = gateway.modelThat({ do: "stall" });
    const abort = new AbortController();
    const response = await gateway.chat(slug, streamed, { signal: abort.signal });
    const reader = response.body!.getReader();
    expect(new TextDecoder().decode((await reader.read()).value)).toBe(": keepalive\n\n");
    abort.abort();
    await gateway.upstream.until((list) =>
      list.some(({ model, aborted }) => model === slug && aborted),
    );
    expect(await logLineOf(gateway, idOf(response))).toMatchObject({
      status: 499,
      error_code: "client_closed_request",
    });
    expect(await billOf(gateway, idOf(response))).toBeUndefined();
  });
});

test("a quick answer gets no comment", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  const read = await readStream(await gateway.chat(slug, streamed));
  expect(read.comments).toBe(0);
});
