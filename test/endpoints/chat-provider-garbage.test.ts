import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { expectEnvelope, expectError } from "../support/error-envelope.ts";
import { billOf, billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, type ReadStream, readStream } from "../support/stream-reader.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

/** One try and two retries, then 502. */
const CALLS_IN_ALL = 3;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

async function expectRefused(behaviour: Behaviour, body: Record<string, unknown>): Promise<void> {
  const slug = gateway.modelThat(behaviour);
  const response = await gateway.chat(slug, body);
  const envelope = await expectError(response, 502, "provider_error");
  expect(envelope.error.type).toBe("provider_error");
  expect(gateway.upstream.servedOf(slug)).toHaveLength(CALLS_IN_ALL);
  expect(await billOf(gateway, envelope.request_id)).toBeUndefined();
}

describe("an answer that is none is 502 after retries, and costs nothing", () => {
  const GARBAGE: Behaviour[] = [
    { do: "truncated-json" },
    { do: "garbage-chunk" },
    { do: "html" },
    { do: "empty-body" },
    { do: "cut" },
    { do: "refuse" },
    { do: "error-in-stream" },
    { do: "chunk-without-choices" },
    { do: "redirect" },
    { do: "endless" },
  ];
  test.each(GARBAGE)("unstreamed: $do", (behaviour) => expectRefused(behaviour, {}));

  const BEFORE_THE_FIRST_EVENT: Behaviour[] = [
    { do: "truncated-json", afterEvents: 0 },
    { do: "error-in-stream", afterEvents: 1 },
    { do: "cut", afterEvents: 1 },
    { do: "garbage-chunk", afterEvents: 0 },
    { do: "error-in-stream", afterEvents: 0 },
    { do: "error-event", afterEvents: 0 },
    { do: "cut", afterEvents: 0 },
    { do: "html" },
    { do: "empty-body" },
    { do: "refuse" },
    { do: "redirect" },
  ];
  test.each(BEFORE_THE_FIRST_EVENT)("streamed: $do", (behaviour) =>
    expectRefused(behaviour, { stream: true }),
  );

  test("a redirect is not followed", () => {
    expect(gateway.upstream.served.filter(({ path }) => path.includes("elsewhere"))).toEqual([]);
  });

  test("a failure that passes is retried, and the answer billed once", async () => {
    for (const stream of [false, true]) {
      const slug = gateway.modelThat(
        { do: "html" },
        { do: "refuse" },
        { do: "complete", content: "hi", events: 1 },
      );
      const response = await gateway.chat(slug, { stream });
      expect(response.status).toBe(200);
      expect(await response.text()).toContain('"hi"');
      expect(gateway.upstream.servedOf(slug).map(({ behaviour }) => behaviour)).toEqual([
        "html",
        "refuse",
        "complete",
      ]);
      expect((await billOfResponse(gateway, response)).estimated).toBeFalse();
    }
  });
});

describe("after the first byte a failure is told in the stream, without [DONE], and what was delivered is billed", () => {
  const BROKEN: Behaviour[] = [
    { do: "truncated-json" },
    { do: "garbage-chunk" },
    { do: "error-in-stream" },
    { do: "error-event" },
    { do: "cut" },
  ];
  test.each(BROKEN)("$do", async (behaviour) => {
    const slug = gateway.modelThat({ ...behaviour, events: 8, afterEvents: 5 });
    const response = await gateway.chat(slug, { stream: true });
    expect(response.status).toBe(200);
    const read = await readStream(response);
    expectBroken(read, response, "provider_error");
    expect(read.content).toBe("w000000 w000001 w000002 w000003 ");
    expect(gateway.upstream.servedOf(slug)).toHaveLength(1);
    const bill = await billOfResponse(gateway, response);
    // No usage was told; each piece is a token.
    expect(bill).toMatchObject({ estimated: true, completionTokens: 4, status: 200 });
    expect(bill.promptTokens).toBePositive();
    expect(bill.chargeNano).toBe(chargeNano({ prompt: bill.promptTokens, completion: 4 }));
  });

  test("a stream that ends without a finish reason", async () => {
    const slug = gateway.modelThat({ do: "no-finish-reason", events: 8 });
    const response = await gateway.chat(slug, { stream: true });
    const read = await readStream(response);
    expectBroken(read, response, "provider_error");
    expect(read.error!.error.message).toContain("finish reason");
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ estimated: false, promptTokens: 2, completionTokens: 16 });
  });
});

test.each(["error", "insufficient_system_resource", "network_error"])(
  "an answer that its provider ends with the reason %s has failed",
  async (reason) => {
    const choice = { index: 0, finish_reason: reason };
    const whole: Behaviour = {
      do: "frames",
      frames: [{ choices: [{ ...choice, message: { content: "half of" } }] }],
    };
    await expectRefused(whole, {});
    const frames = [
      { choices: [{ index: 0, delta: { content: "half of" }, finish_reason: null }] },
      { choices: [{ ...choice, delta: {} }] },
      "data: [DONE]\n\n",
    ];
    const slug = gateway.modelThat({ do: "frames", frames });
    const response = await gateway.chat(slug, { stream: true });
    const read = await readStream(response);
    expectBroken(read, response, "provider_error");
    expect(read.content).toBe("half of");
    expect((await billOfResponse(gateway, response)).completionTokens).toBe(1);
  },
);

describe("garbage beside an answer", () => {
  test("a chunk without choices is dropped", async () => {
    const slug = gateway.modelThat({ do: "chunk-without-choices", events: 4 });
    const response = await gateway.chat(slug, { stream: true });
    const read = await readStream(response);
    expectStreamShape(read, { model: `test/${slug}`, includesUsage: false });
    expect(read.content).toBe("w000001 w000002 w000003 ");
    expect((await billOfResponse(gateway, response)).completionTokens).toBe(8);
  });

  test("an unstreamed answer without a finish reason has stopped", async () => {
    const response = await gateway.chat(gateway.modelThat({ do: "no-finish-reason" }));
    const { choices } = (await response.json()) as { choices: unknown[] };
    expect(choices).toMatchObject([
      { finish_reason: "stop", message: { role: "assistant", content: "Echo: hello" } },
    ]);
  });

  test("an unstreamed answer in bytes that are no UTF-8, of a mebibyte, or that drips in is an answer", async () => {
    for (const name of ["invalid-utf8", "huge-event", "slow-drip", "azure"] as const) {
      const response = await gateway.chat(gateway.modelThat({ do: name }));
      expect(response.status).toBe(200);
      const { choices } = (await response.json()) as {
        choices: { message: { content: string } }[];
      };
      expect(choices[0]!.message.content.length).toBePositive();
      expect((await billOfResponse(gateway, response)).chargeNano > 0n).toBeTrue();
    }
  });
});

function expectBroken(read: ReadStream, response: Response, code: string): void {
  expect(read.isDone).toBeFalse();
  expectEnvelope(read.error);
  expect(read.error!.error.code).toBe(code);
  expect(read.error!.request_id).toBe(response.headers.get("x-gateway-request-id")!);
}
