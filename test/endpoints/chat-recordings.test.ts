import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, chargeNano, startChatGateway } from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import { listRecordings, loadRecording, type Recording } from "../upstream/recordings.ts";

/** What holds of recorded answers besides what recordings-table.test.ts states of each. */

const RECORDINGS = listRecordings().map(loadRecording);
const STREAMS = RECORDINGS.filter(({ stream }) => stream);
const WHOLE = RECORDINGS.filter(({ stream }) => !stream);

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** Tokens as the gateway counts them: what a provider tells beside its completion tokens is in them. */
function tokensOf({ expected }: Recording) {
  const { promptTokens, completionTokens, cachedTokens, reasoningTokens } = expected.usage!;
  return {
    prompt: promptTokens,
    completion: completionTokens,
    cached: cachedTokens,
    reasoning: reasoningTokens,
  };
}

async function expectBill(recording: Recording, response: Response): Promise<void> {
  const bill = await billOfResponse(gateway, response);
  expect(bill).toMatchObject({ provider: "primary", status: 200 });
  if (recording.expected.usage === null) {
    expect(bill.estimated).toBeTrue();
    expect(bill.promptTokens).toBePositive();
    expect(bill.completionTokens).toBePositive();
    expect(bill.chargeNano).toBe(
      chargeNano({ prompt: bill.promptTokens, completion: bill.completionTokens }),
    );
    return;
  }
  const tokens = tokensOf(recording);
  expect(bill).toMatchObject({
    estimated: false,
    promptTokens: tokens.prompt,
    cachedPromptTokens: tokens.cached,
    completionTokens: tokens.completion,
    reasoningTokens: tokens.reasoning,
    chargeNano: chargeNano(tokens),
  });
}

describe("recorded streams", () => {
  test("tell usage to a client that did not ask for it in no chunk, and are billed all the same", async () => {
    const readings = STREAMS.map(async (recording) => {
      const slug = gateway.modelThat({ do: "replay", recording: recording.name, cut: false });
      const response = await gateway.chat(slug, { stream: true });
      const stream = await readStream(response);
      expectStreamShape(stream, { model: `test/${slug}`, includesUsage: false });
      expect(stream.content).toBe(recording.expected.content);
      await expectBill(recording, response);
    });
    await Promise.all(readings);
  });

  test("leave the reasoning out where the request hides it, and bill it", async () => {
    const reasoned = STREAMS.filter(({ expected }) => expected.reasoning !== "");
    expect(reasoned.length).toBeGreaterThanOrEqual(4);
    for (const body of [{ include_reasoning: false }, { reasoning: { exclude: true } }]) {
      const readings = reasoned.map(async (recording) => {
        const slug = gateway.modelThat({ do: "replay", recording: recording.name, cut: false });
        const response = await gateway.chat(slug, { stream: true, ...body });
        const stream = await readStream(response);
        expect(stream.text).not.toContain('"reasoning"');
        expect(stream.content).toBe(recording.expected.content);
        expect(stream.isDone).toBeTrue();
        await expectBill(recording, response);
      });
      await Promise.all(readings);
    }
  });
});

test("a stream asked of a server that answers whole is a stream all the same, and billed alike", async () => {
  for (const recording of WHOLE) {
    const slug = gateway.modelThat({ do: "json-for-stream", content: recording.expected.content });
    const response = await gateway.chat(slug, { stream: true });
    const stream = await readStream(response);
    expectStreamShape(stream, { model: `test/${slug}`, includesUsage: false });
    expect(stream.content).toBe(recording.expected.content);
    expect((await billOfResponse(gateway, response)).estimated).toBeFalse();
  }
});
