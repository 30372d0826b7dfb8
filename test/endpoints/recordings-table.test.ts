import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { expectStreamShape, readStream } from "../support/stream-reader.ts";
import { randomPieceLength, seededRandom } from "../upstream/random.ts";
import { type RecordedAnswer, recordedAnswers } from "../upstream/recorded-answers.ts";
import { type Row, TABLE } from "../upstream/recordings-table.ts";

/**
 * Every recorded answer through its provider's adapter and the whole gateway: what the client gets, and what it is
 * charged, is what test/upstream/recordings-table.json states. `bun test/upstream/recordings-table.ts` prints it.
 */

type Fields = Record<string, unknown>;

const SEEDS = [1, 20, 300];
const ANSWERS = new Map(recordedAnswers().map((answer) => [answer.name, answer]));
const PRICES = TABLE.usd_per_million_tokens;
const OWN_MODELS = Object.entries(PRICES).filter(([, { provider }]) => provider !== undefined);
const TYPES = [
  ...new Set(Object.entries(PRICES).map(([id, { provider }]) => provider ?? id.split("/")[0]!)),
];
const NO_USAGE = { prompt: null, cached: null, completion: null, thinking: null };

describe("the table", () => {
  test("has a row for each recording", () => {
    expect(TABLE.rows.map(({ recording }) => recording)).toEqual([...ANSWERS.keys()]);
  });

  test.each(TABLE.rows.map((row) => [row.recording, row] as const))(
    "%s is as a plain reader of the recording sees it",
    (name, row) => {
      const { said, bytes } = ANSWERS.get(name)!;
      const { tokens } = said;
      expect(row).toMatchObject({
        content: Buffer.byteLength(said.content),
        reasoning: Buffer.byteLength(said.reasoning),
        calls: said.calls.map((call) => `${call.name} ${JSON.stringify(call.input)}`),
        finish: said.finish,
        ...(tokens === null
          ? NO_USAGE
          : {
              prompt: tokens.prompt,
              cached: tokens.cached,
              completion: tokens.completion,
              thinking: tokens.reasoning,
            }),
      });
      if (tokens === null) return expect(row.usd).toBeNull();
      expect(tokens.written).toBe(0);
      const { input, cached, output } = PRICES[row.model]!;
      const usd =
        ((tokens.prompt - tokens.cached) * input +
          tokens.cached * cached +
          tokens.completion * output) /
        1e6;
      expect(Math.abs(Number(row.usd) - usd)).toBeLessThan(0.6e-9);
      const billed = usdOfProvider(new TextDecoder().decode(bytes));
      if (billed !== undefined) expect(Number(row.usd)).toBeCloseTo(billed, 10);
    },
  );

  test("has costs that providers state themselves: xAI's four and OpenRouter's", () => {
    const stated = [...ANSWERS.values()].filter(
      ({ bytes }) => usdOfProvider(new TextDecoder().decode(bytes)) !== undefined,
    );
    expect(stated).toHaveLength(5);
  });
});

/** What the provider says that the call cost: xAI in tenths of a nano-USD, OpenRouter in USD. */
function usdOfProvider(text: string): number | undefined {
  const ticks = /"cost_in_usd_ticks":\s?(\d+)/.exec(text)?.[1];
  if (ticks !== undefined) return Number(ticks) / 1e10;
  const cost = /"cost":(0\.\d+),"is_byok"/.exec(text)?.[1];
  return cost === undefined ? undefined : Number(cost);
}

let gateway: TestGateway;
/** By provider type. */
const answering = new Map<string, () => Response>();
const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  async fetch(request) {
    if (request.method === "GET") return new Response(null, { status: 404 });
    await request.arrayBuffer();
    return answering.get(new URL(request.url).pathname.split("/")[1]!)!();
  },
});

beforeAll(async () => {
  gateway = await startTestGateway({
    // Without a fee, so that a charge is what the provider bills.
    plan: "enterprise",
    configuration: {
      providers: TYPES.map((type) => ({
        id: type,
        type,
        base_url: `http://127.0.0.1:${server.port}/${type}`,
        api_key: "key-of-the-table",
      })),
      models: OWN_MODELS.map(([id, { provider, input, cached, output }]) => ({
        id,
        category: "chat",
        context_length: 128_000,
        max_output_tokens: 32_000,
        input_cost_per_token: input / 1e6,
        cached_input_cost_per_token: cached / 1e6,
        output_cost_per_token: output / 1e6,
        endpoints: [{ provider, model: id.slice("test/".length) }],
      })),
    },
  });
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await server.stop(true);
});

function cutAtRandom({ bytes, contentType }: RecordedAnswer, seed: number): Response {
  const random = seededRandom(seed);
  let at = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await Bun.sleep(0);
      const end = Math.min(at + randomPieceLength(random), bytes.length);
      controller.enqueue(bytes.slice(at, end));
      at = end;
      if (at === bytes.length) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": contentType } });
}

test.each(Object.entries(PRICES).filter(([, { provider }]) => provider === undefined))(
  "%s has the price in the catalogue that the table states",
  async (id, { input, cached, output }) => {
    const response = await gateway.request("GET", `/v1/models/${encodeURIComponent(id)}`);
    const { pricing } = (await response.json()) as { pricing: Record<string, string> };
    const stated = [pricing.prompt, pricing.input_cache_read, pricing.completion];
    expect(stated.map((usd) => Number((Number(usd) * 1e6).toFixed(9)))).toEqual([
      input,
      cached,
      output,
    ]);
  },
);

describe("replayed, cut at random offsets", () => {
  test.each(TABLE.rows.map((row) => [row.recording, row] as const))("%s", async (name, row) => {
    const recorded = ANSWERS.get(name)!;
    const seeds = recorded.stream ? SEEDS : SEEDS.slice(0, 1);
    await Promise.all(seeds.map((seed) => expectReplayed(recorded, row, seed)));
  });
});

async function expectReplayed(recorded: RecordedAnswer, row: Row, seed: number): Promise<void> {
  const { stream, said } = recorded;
  const type = PRICES[row.model]!.provider ?? row.model.split("/")[0]!;
  answering.set(type, () => cutAtRandom(recorded, seed));
  const response = await gateway.request("POST", "/v1/chat/completions", {
    model: row.model,
    messages: [{ role: "user", content: "x".repeat(4_000) }],
    stream,
    ...(stream && { stream_options: { include_usage: true } }),
  });
  expect(response.status).toBe(200);
  const read = stream ? await readStreamed(response, row.model) : await readWhole(response);
  expect(read).toMatchObject({
    content: said.content,
    reasoning: said.reasoning,
    finish: said.finish,
  });
  expect(read.calls.map(({ name, text }) => ({ name, input: JSON.parse(text) }))).toEqual([
    ...said.calls,
  ]);
  await expectBill(response, read.usage, row);
}

async function expectBill(response: Response, usage: Fields, row: Row): Promise<void> {
  const bill = await billOfResponse(gateway, response);
  if (row.usd === null) {
    expect(bill.estimated).toBeTrue();
    expect(bill.completionTokens).toBePositive();
    return;
  }
  expect({
    prompt: bill.promptTokens,
    cached: bill.cachedPromptTokens,
    completion: bill.completionTokens,
    thinking: bill.reasoningTokens,
    usd: (Number(bill.chargeNano) / 1e9).toFixed(9),
    estimated: bill.estimated,
  }).toEqual({
    prompt: row.prompt!,
    cached: row.cached!,
    completion: row.completion!,
    thinking: row.thinking!,
    usd: row.usd,
    estimated: false,
  });
  expect(usage).toMatchObject({
    prompt_tokens: row.prompt,
    completion_tokens: row.completion,
    total_tokens: row.prompt! + row.completion!,
    cost: Number(row.usd),
  });
}

async function readStreamed(response: Response, model: string) {
  const read = await readStream(response);
  expectStreamShape(read, { model, includesUsage: true });
  return {
    content: read.content,
    reasoning: read.reasoning,
    finish: read.finishReason,
    calls: read.toolCalls.map(({ name, arguments: text }) => ({ name, text })),
    usage: read.usage!,
  };
}

async function readWhole(response: Response) {
  const body = (await response.json()) as { choices: Fields[]; usage: Fields };
  expect(body.choices).toHaveLength(1);
  const message = body.choices[0]!.message as Fields;
  const calls = (message.tool_calls ?? []) as { function: { name: string; arguments: string } }[];
  return {
    content: message.content ?? "",
    reasoning: message.reasoning ?? "",
    finish: body.choices[0]!.finish_reason,
    calls: calls.map(({ function: called }) => ({ name: called.name, text: called.arguments })),
    usage: body.usage,
  };
}
