import { afterAll, beforeAll, expect, test } from "bun:test";
import { providerRequest } from "../../src/inference/call/call.ts";
import type { StreamForm } from "../../src/inference/call/endpoint.ts";
import type { AcceptedChat } from "../../src/inference/endpoints/chat-completions/endpoint.ts";
import { estimatedUsage } from "../../src/lib/usage.ts";
import { ShortBody } from "../../src/providers/chat-body.ts";
import { StreamedAnswer } from "../../src/providers/streamed-answer.ts";
import { streamOf } from "../../src/providers/transport/call-failures.ts";
import { requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import { readAll, readUntil } from "../ledger/read-bytes.ts";
import { KEEPALIVE_MS, scriptedStream } from "../ledger/scripted-stream.ts";
import { until } from "../support/until.ts";

/** An answer of plain bytes, as speech is one: what the provider sends goes on as it came. */
class PlainAnswer extends StreamedAnswer<Uint8Array> {
  protected override take(piece: Uint8Array): void {
    this.noteEvents(1);
    this.noteBegun();
    this.startedChoices = 1;
    this.meter(piece.length);
    this.output.add(Buffer.from(piece).toString("latin1"));
  }

  protected override takeEnd(): void {
    this.finishedChoices = 1;
  }
}

/** All that an endpoint says of its streams: the charge and everything else is the paid call's. */
const plain: StreamForm<AcceptedChat> = {
  contentType: "audio/mpeg",
  keepalive: "",
  choices: () => 1,
  async open(call, candidate, _admitted, output) {
    const request = providerRequest(call, { stream: true, body: new ShortBody({}) });
    const answer = await candidate.provider.chat!(request);
    const options = { id: "x", model: "m", hidesReasoning: false, nowSeconds: 0 };
    const { reader } = streamOf(answer).passThrough!(options, output);
    return { reader, answer: new PlainAnswer(output, 0) };
  },
  usage: ({ outputTokens }) => estimatedUsage(0, outputTokens),
  ending: () => "",
  failure: () => undefined,
};

const framed: StreamForm<AcceptedChat> = {
  ...plain,
  contentType: "text/event-stream",
  keepalive: "event: ping\n\n",
  ending: (_answer, _request, { usage, costUsd }) =>
    `event: end\ndata: ${usage.completionTokens} ${costUsd}\n\n`,
  failure: ({ code }) => `event: error\ndata: ${code}\n\n`,
};

let owned: Awaited<ReturnType<typeof openSingleNodeMoney>>;
beforeAll(async () => {
  owned = await openSingleNodeMoney();
});
afterAll(() => owned.close());

async function opened(form: StreamForm<AcceptedChat>) {
  const payer = await owned.addOrganization(100_000n);
  const hold = await owned.money.hold(requestOf(payer, 10_000));
  const scripted = scriptedStream(owned, hold, { form });
  const opening = scripted.stream.open();
  await until("the provider is called", () => scripted.provider.calls.length === 1);
  scripted.provider.say("one");
  await opening;
  const bill = () => owned.sql<{ charge: number; completion_tokens: number }[]>`
    SELECT -amount_nano::int AS charge, completion_tokens::int FROM transactions
    WHERE request_id = ${hold.requestId}`;
  return { ...scripted, bill, reader: scripted.stream.body().getReader() };
}

test("an endpoint that streams bytes hands over its form alone, and is relayed and charged as chat is", async () => {
  const { provider, stream, reader, bill } = await opened(plain);
  provider.say("two");
  provider.finish();
  const said = await readAll(reader);
  expect(said).toContain('"two"');
  expect(said).toEndWith("data: [DONE]\n\n");
  expect(stream.headers()["content-type"]).toBe("audio/mpeg");
  const [charged] = await bill();
  expect(charged!.completion_tokens).toBeGreaterThan(0);
  expect(charged!.charge).toBe(charged!.completion_tokens);
});

test("a form's keepalive is sent while its provider is silent, its ending when the charge is durable", async () => {
  const { provider, reader, bill } = await opened(framed);
  await readUntil(reader, '"one"');
  const next = readUntil(reader, "event: ping\n\n");
  owned.clock.advance(KEEPALIVE_MS + 100);
  expect(await next).toBe("event: ping\n\n");
  provider.finish();
  const rest = await readUntil(reader, "event: end");
  const [charged] = await bill();
  expect(rest).toEndWith(
    `event: end\ndata: ${charged!.completion_tokens} ${charged!.charge / 1e9}\n\n`,
  );
  expect((await reader.read()).done).toBe(true);
});

test("a form's error is the last that a broken stream sends, behind the charge of what was delivered", async () => {
  const { provider, reader, bill } = await opened(framed);
  await readUntil(reader, '"one"');
  provider.breakOff();
  expect(await readUntil(reader, "event: error")).toBe("event: error\ndata: provider_error\n\n");
  expect(await bill()).toHaveLength(1);
  expect((await reader.read()).done).toBe(true);
});

test("a form without a keepalive sends nothing while its provider is silent", async () => {
  const { provider, reader } = await opened(plain);
  await readUntil(reader, '"one"');
  let isRead = false;
  const next = reader.read().then(({ value }) => {
    isRead = true;
    return Buffer.from(value!).toString();
  });
  owned.clock.advance(2 * KEEPALIVE_MS);
  await Bun.sleep(0);
  expect(isRead).toBe(false);
  provider.say("two");
  expect(await next).toContain('"two"');
});

test("a form without words for a failure has its connection cut, behind the charge of what was delivered", async () => {
  for (const end of ["its provider breaks off", "the process stops"]) {
    const { provider, stream, reader, bill } = await opened(plain);
    await readUntil(reader, '"one"');
    const next = reader.read().then(
      () => "an end",
      () => "a cut",
    );
    if (end === "the process stops") stream.abort();
    else provider.breakOff();
    expect(await next).toBe("a cut");
    expect(await bill()).toHaveLength(1);
  }
});
