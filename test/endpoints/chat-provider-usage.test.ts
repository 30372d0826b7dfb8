import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  type ChatGateway,
  chargeNano,
  MAX_OUTPUT_TOKENS,
  startChatGateway,
} from "../support/chat-gateway.ts";
import { type Bill, billOfResponse, expectBooksClosed, gauge } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import { ABSURD_USAGES } from "../upstream/absurd-usages.ts";

/** 8 pieces of 8 bytes, which count as one token each in a stream and as 16 in a whole answer. */
const EVENTS = 8;
const COUNTED_HERE = { streamed: EVENTS, whole: 16 } as const;
const PROMPT_COUNTED_HERE = 6;
/** Usages whose parts can be true although their details cannot. */
const CREDIBLE = ["parts-beyond-whole"];
const FORMS = [
  ["whole", {}],
  ["streamed", { stream: true, stream_options: { include_usage: true } }],
] as const;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

interface Told {
  readonly bill: Bill;
  /** The usage object that the client got. */
  readonly usage: Record<string, unknown>;
}

async function told(
  form: readonly [(typeof FORMS)[number][0], Record<string, unknown>],
  behaviour: Parameters<ChatGateway["modelThat"]>[0],
): Promise<Told> {
  const response = await gateway.chat(gateway.modelThat(behaviour), form[1]);
  expect(response.status).toBe(200);
  const usage =
    form[0] === "streamed"
      ? (await readStream(response)).usage
      : ((await response.json()) as { usage: Record<string, unknown> }).usage;
  return { bill: await billOfResponse(gateway, response), usage: usage! };
}

/** The bill is its tokens' price, and the client was told the same. */
function expectConsistent({ bill, usage }: Told): void {
  const { promptTokens, completionTokens, cachedPromptTokens } = bill;
  const tokens = { prompt: promptTokens, completion: completionTokens, cached: cachedPromptTokens };
  expect(bill.chargeNano).toBe(chargeNano(tokens));
  expect(usage.prompt_tokens).toBe(promptTokens);
  expect(usage.completion_tokens).toBe(completionTokens);
  expect(usage.total_tokens).toBe(promptTokens + completionTokens);
  expect(usage.cost).toBe(Number(bill.chargeNano) / 1e9);
}

describe.each(FORMS)("%s", (...form) => {
  const counted = COUNTED_HERE[form[0]];

  test.each(Object.keys(ABSURD_USAGES).filter((which) => !CREDIBLE.includes(which)))(
    "a usage that cannot be true (%s) is ignored: tokens are counted here and said to be estimated",
    async (which) => {
      const answer = await told(form, { do: "absurd-usage", which, events: EVENTS });
      expect(answer.bill).toMatchObject({
        estimated: true,
        promptTokens: PROMPT_COUNTED_HERE,
        completionTokens: counted,
        cachedPromptTokens: 0,
        reasoningTokens: 0,
      });
      expectConsistent(answer);
    },
  );

  test("without usage tokens are counted here and said to be estimated", async () => {
    const answer = await told(form, { do: "no-usage", events: EVENTS });
    expect(answer.bill).toMatchObject({ estimated: true, completionTokens: counted });
    expectConsistent(answer);
  });

  test("cached tokens are found where providers tell them", async () => {
    const parts = [
      { prompt_tokens_details: { cached_tokens: 4 } },
      { prompt_cache_hit_tokens: 4 },
      { cached_tokens: 4 },
      { prompt_tokens_details: null, num_cached_tokens: 4 },
    ];
    for (const part of parts) {
      const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15, ...part };
      const answer = await told(form, { do: "complete", usage });
      expect(answer.bill).toMatchObject({ promptTokens: 10, cachedPromptTokens: 4 });
      expectConsistent(answer);
    }
  });

  test("usage within the choice is that of the answer, and is told nowhere else", async () => {
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
    const part = { role: "assistant", content: "hello" };
    const choice = { index: 0, finish_reason: "stop", usage };
    const frames =
      form[0] === "streamed"
        ? [{ choices: [{ ...choice, delta: part }] }, "data: [DONE]\n\n"]
        : [{ choices: [{ ...choice, message: part }] }];
    const slug = gateway.modelThat({ do: "frames", frames });
    const response = await gateway.chat(slug, form[1]);
    expect((await response.text()).split('"usage"')).toHaveLength(2);
    expect(await billOfResponse(gateway, response)).toMatchObject({
      estimated: false,
      promptTokens: 10,
      completionTokens: 5,
    });
  });

  test("completion tokens that are told only by the total are those of the total", async () => {
    const usage = { prompt_tokens: 10, total_tokens: 15 };
    const answer = await told(form, { do: "complete", usage });
    expect(answer.bill).toMatchObject({ estimated: false, promptTokens: 10, completionTokens: 5 });
    expectConsistent(answer);
  });

  test("of a usage without any completion tokens nothing is believed", async () => {
    const answer = await told(form, {
      do: "complete",
      usage: { prompt_tokens: 10 },
      events: EVENTS,
    });
    expect(answer.bill).toMatchObject({ estimated: true, completionTokens: counted });
    expectConsistent(answer);
  });

  test("parts beyond the whole count as the whole", async () => {
    const answer = await told(form, { do: "absurd-usage", which: "parts-beyond-whole" });
    expect(answer.bill).toMatchObject({
      estimated: false,
      promptTokens: 10,
      cachedPromptTokens: 10,
      completionTokens: 5,
      reasoningTokens: 5,
    });
    expectConsistent(answer);
  });

  test.each(["cache_write_tokens", "cache_creation_tokens"])(
    "the details tell cache writes (%s) and reads apart",
    async (name) => {
      const usage = {
        prompt_tokens: 50,
        completion_tokens: 4,
        prompt_tokens_details: { cached_tokens: 20, [name]: 10 },
      };
      const answer = await told(form, { do: "complete", content: "Hi.", usage });
      expect(answer.usage.prompt_tokens_details).toEqual({
        cached_tokens: 20,
        cache_write_tokens: 10,
      });
      expectConsistent(answer);
    },
  );

  test("reasoning that a provider counts beside the completion is part of it", async () => {
    const usage = {
      prompt_tokens: 10,
      completion_tokens: 5,
      total_tokens: 22,
      completion_tokens_details: { reasoning_tokens: 7 },
    };
    const answer = await told(form, { do: "complete", usage });
    expect(answer.bill).toMatchObject({ completionTokens: 12, reasoningTokens: 7 });
    expectConsistent(answer);
  });

  test("tokens that only the total tells of, as Gemini's for its thinking, are reasoning too", async () => {
    const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 215 };
    const answer = await told(form, { do: "complete", usage });
    expect(answer.bill).toMatchObject({ completionTokens: 205, reasoningTokens: 200 });
    expectConsistent(answer);
  });

  test("cached tokens that a provider counts beside the prompt are part of it", async () => {
    const details = { cached_tokens: 40 };
    const counts = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 55 };
    const usage = { ...counts, prompt_tokens_details: details };
    const answer = await told(form, { do: "complete", usage });
    expect(answer.bill).toMatchObject({ promptTokens: 50, cachedPromptTokens: 40 });
    expectConsistent(answer);
  });

  test("what was read from a cache and what was written to it are told apart", async () => {
    const details = { cached_tokens: 40, cache_write_tokens: 30 };
    const usage = { prompt_tokens: 100, completion_tokens: 5, prompt_tokens_details: details };
    const answer = await told(form, { do: "complete", usage });
    expect(answer.usage.prompt_tokens_details).toEqual(details);
    expect(answer.bill.quantities).toEqual({ cache_write_tokens: 30 });
    expectConsistent(answer);
  });

  test.each([{ url: "data:image/png;base64,AA==" }, "https://example.com/a.png"])(
    "a small image that comes to many tokens (%j) is charged whole",
    async (image_url) => {
      const messages = [{ role: "user", content: [{ type: "image_url", image_url }] }];
      const usage = { prompt_tokens: 30_000, completion_tokens: 5 };
      const answer = await told([form[0], { ...form[1], messages }], { do: "complete", usage });
      expect(answer.bill).toMatchObject({ promptTokens: 30_000, completionTokens: 5 });
      expectConsistent(answer);
    },
  );

  test("what a provider's own words on the use of tools come to is charged whole", async () => {
    const tools = [{ type: "function", function: { name: "now" } }];
    const usage = { prompt_tokens: 560, completion_tokens: 1 };
    const fields = { ...form[1], tools, max_tokens: 1 };
    const answer = await told([form[0], fields], { do: "complete", usage });
    expect(answer.bill).toMatchObject({ promptTokens: 560, completionTokens: 1 });
    expectConsistent(answer);
  });

  test("a usage beyond the hold is charged as the hold, logged and counted as clamped", async () => {
    const clampedBefore = await gauge(gateway, "gateway_charge_clamped_total");
    const usage = { prompt_tokens: 5_000_000, completion_tokens: 9_000_000_000 };
    const { bill } = await told(form, { do: "complete", usage });
    // The hold's bound: 5 bytes of prompt, 8 around the message, 16 around the request.
    const holdNano = chargeNano({ prompt: 5 + 8 + 16, completion: MAX_OUTPUT_TOKENS });
    expect(bill.chargeNano - holdNano <= 1n && bill.chargeNano >= holdNano).toBeTrue();
    expect(bill.promptTokens).toBe(5_000_000);
    expect(await gauge(gateway, "gateway_charge_clamped_total")).toBe(clampedBefore + 1);
    expect(gateway.logLines.join("")).toContain("charge clamped to its hold");
  });
});

describe("a usage that is told in the middle of a stream", () => {
  const chunk = (content: string, usage?: object) => ({
    choices: [{ index: 0, delta: { content }, finish_reason: null }],
    ...(usage && { usage }),
  });
  const EARLY = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
  /** A chunk that knows of itself, and eight behind it that it knows nothing of. */
  const frames = [chunk("a", EARLY), ...Array.from({ length: 8 }, (_, at) => chunk(`w${at} `))];
  const LAST = { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] };
  const DONE = "data: [DONE]\n\n";

  test("and not again covers what came with it: what comes behind it is counted here", async () => {
    const answer = await told(FORMS[1], { do: "frames", frames: [...frames, LAST, DONE] });
    expect(answer.bill).toMatchObject({ estimated: true, promptTokens: 10, completionTokens: 10 });
    expectConsistent(answer);
  });

  test("is no limit of the bill where the stream breaks behind it", async () => {
    const slug = gateway.modelThat({ do: "frames", frames: [...frames, "data: broken\n\n"] });
    const response = await gateway.chat(slug, { stream: true });
    expect((await readStream(response)).error).toBeDefined();
    expect(await billOfResponse(gateway, response)).toMatchObject({
      estimated: true,
      promptTokens: 10,
      completionTokens: 10,
    });
  });

  test.each([
    [
      "prompt",
      { prompt_tokens: 10, completion_tokens: 0 },
      { prompt_tokens: 0, completion_tokens: 7 },
    ],
    [
      "answer",
      { prompt_tokens: 0, completion_tokens: 7 },
      { prompt_tokens: 10, completion_tokens: 0 },
    ],
  ])("counts where it tells the %s and a zero follows", async (_, first, second) => {
    const answer = await told(FORMS[1], {
      do: "frames",
      frames: [chunk("a", first), { ...LAST, usage: second }, DONE],
    });
    expect(answer.bill).toMatchObject({ estimated: false, promptTokens: 10, completionTokens: 7 });
    expectConsistent(answer);
  });

  test("gives way to the one at the end", async () => {
    const usage = { prompt_tokens: 10, completion_tokens: 7, total_tokens: 17 };
    const answer = await told(FORMS[1], {
      do: "frames",
      frames: [...frames, { ...LAST, usage }, DONE],
    });
    expect(answer.bill).toMatchObject({ estimated: false, promptTokens: 10, completionTokens: 7 });
    expectConsistent(answer);
  });
});
