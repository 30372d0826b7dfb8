import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type ChatGateway,
  chargeNano,
  MAX_OUTPUT_TOKENS,
  startChatGateway,
} from "../support/chat-gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { readStream } from "../support/stream-reader.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

/** What a provider reports behind the first token is told, and charged, as it is before it. */

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());

const chunk = (content: string, more: object = {}, finish_reason: string | null = null) => ({
  object: "chat.completion.chunk",
  choices: [{ index: 0, delta: { content }, finish_reason }],
  ...more,
});
const usage = (completion_tokens: number) => ({
  usage: { prompt_tokens: 70, completion_tokens, total_tokens: 70 + completion_tokens },
});
const REJECTED = { message: "Token 5 is not allowed.", type: "invalid_request_error", param: null };

/** Two tokens, and then these frames, which are sent one by one unless they come at once. */
const behind = (frames: unknown[], atOnce = false): Behaviour => {
  const all = [chunk("ab"), chunk("cd"), ...frames];
  if (!atOnce) return { do: "frames", delayMs: 20, frames: all };
  const text = all.map((one) =>
    typeof one === "string" ? one : `data: ${JSON.stringify(one)}\n\n`,
  );
  return { do: "frames", frames: [text.join("")] };
};

async function streamOf(behaviour: Behaviour) {
  const response = await gateway.chat(gateway.modelThat(behaviour), { stream: true });
  expect(response.status).toBe(200);
  const read = await readStream(response);
  return { read, bill: await billOfResponse(gateway, response) };
}

describe.each([
  ["one by one", false],
  ["in one piece with the answer", true],
])("an error whose events come %s", (_how, atOnce) => {
  test.each<[string, unknown[], string, RegExp]>([
    [
      "of OpenAI's form",
      [{ error: { ...REJECTED, code: null } }],
      "provider_rejected",
      /^Token 5 is not allowed\.$/,
    ],
    [
      "of vLLM's form, followed by [DONE]",
      [
        { error: { object: "error", message: "too long", type: "BadRequestError", code: 400 } },
        "data: [DONE]\n\n",
      ],
      "provider_rejected",
      /^too long$/,
    ],
    [
      "of vLLM's older form",
      [{ object: "error", message: "too long", type: "BadRequestError", param: null, code: 400 }],
      "provider_rejected",
      /^too long$/,
    ],
    [
      "of OpenRouter's form, beside choices",
      [
        chunk("", { error: { code: 429, message: "Rate limit exceeded" } }, "error"),
        "data: [DONE]\n\n",
      ],
      "rate_limit_exceeded",
      /rate limit/,
    ],
    [
      "within the choice",
      [
        {
          choices: [
            {
              index: 0,
              delta: { content: "" },
              finish_reason: "error",
              error: { code: 400, message: "Bad word" },
            },
          ],
        },
      ],
      "provider_rejected",
      /^Bad word$/,
    ],
    [
      "named content_filter",
      [{ error: { message: "Blocked.", type: "invalid_request_error", code: "content_filter" } }],
      "content_policy_violation",
      /^Blocked\.$/,
    ],
    [
      "of a key that is wrong",
      [{ error: { message: "Incorrect API key provided: sk-1", code: "invalid_api_key" } }],
      "provider_error",
      /^The provider rejected the gateway's call\.$/,
    ],
    [
      "of the server",
      [{ error: { message: "internal path /srv/x", type: "server_error", code: null } }],
      "provider_error",
      /^The provider failed to answer\.$/,
    ],
    ["without words", [chunk("", {}, "error")], "provider_error", /^The provider failed/],
  ])("%s keeps its code and message", async (_form, frames, code, message) => {
    const { read, bill } = await streamOf(behind(frames, atOnce));
    expect([read.isDone, read.content]).toEqual([false, "abcd"]);
    expect(read.error?.error).toMatchObject({ code, message: expect.stringMatching(message) });
    expect(bill).toMatchObject({ estimated: true, completionTokens: 2 });
  });

  test.each<[string, unknown[]]>([
    ["in the same chunk", [{ error: REJECTED, ...usage(40) }]],
    ["beside choices and the error", [chunk("", { error: REJECTED, ...usage(40) }, "error")]],
    ["in a chunk that follows", [{ error: REJECTED }, { choices: [], ...usage(40) }]],
    [
      "behind a comment, before [DONE]",
      [{ error: REJECTED }, ": wait\n\n", { choices: [], ...usage(40) }, "data: [DONE]\n\n"],
    ],
    ["before the error", [{ choices: [], ...usage(40) }, { error: REJECTED }]],
  ])("whose usage is reported %s charges that usage", async (_where, frames) => {
    const { read, bill } = await streamOf(behind(frames, atOnce));
    expect(read.error?.error.code).toBe("provider_rejected");
    expect(bill).toMatchObject({ estimated: false, promptTokens: 70, completionTokens: 40 });
    expect(bill.chargeNano).toBe(chargeNano({ prompt: 70, completion: 40 }));
  });

  test("whose usage is beyond the hold charges the hold", async () => {
    const { bill } = await streamOf(behind([{ error: REJECTED, ...usage(9_000_000) }], atOnce));
    expect(bill.estimated).toBe(false);
    expect(bill.chargeNano).toBeLessThan(chargeNano({ prompt: 70, completion: 9_000_000 }));
    expect(bill.chargeNano).toBeGreaterThanOrEqual(
      chargeNano({ prompt: 0, completion: MAX_OUTPUT_TOKENS }),
    );
  });

  test("that comes with a piece of the answer delivers and counts that piece", async () => {
    const { read, bill } = await streamOf(behind([chunk("ef", { error: REJECTED })], atOnce));
    expect(read.content).toBe("abcdef");
    expect(read.error?.error.code).toBe("provider_rejected");
    expect(bill).toMatchObject({ estimated: true, completionTokens: 3 });
  });
});

test("the same error has the same code and message before and behind the first token", async () => {
  for (const error of [
    { ...REJECTED, code: null },
    {
      message: "This model's maximum context length is 8 tokens.",
      code: "context_length_exceeded",
      type: "invalid_request_error",
    },
    { message: "slow down", type: "rate_limit_error", code: "rate_limit_exceeded" },
    { message: "down", type: "server_error", code: null },
  ]) {
    const first = gateway.modelThat({ do: "frames", frames: [{ error }] });
    const before = await gateway.chat(first, { stream: true });
    const told = ((await before.json()) as { error: object }).error;
    const { read } = await streamOf(behind([{ error }]));
    expect(read.error?.error as object).toEqual(told);
  }
});

test("an error behind which the provider stays silent is told without its usage, soon", async () => {
  const slow = gateway.modelThat({
    do: "frames",
    frames: [
      [chunk("ab"), { error: REJECTED }].map((one) => `data: ${JSON.stringify(one)}\n\n`).join(""),
    ],
    delayMs: 40_000,
  });
  const startedMs = performance.now();
  const read = await readStream(await gateway.chat(slow, { stream: true }));
  expect(read.error?.error.code).toBe("provider_rejected");
  expect(performance.now() - startedMs).toBeLessThan(20_000);
});

test("credentials that a provider quotes in its message are redacted", async () => {
  const quoted = [
    "sk-proj-abcdefghijklmnopqrstuvwxyz0123",
    "Bearer abcdefghijklmnopqrstuvwxyz",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
  ];
  const message = `Called with ${quoted.join(", ")}; the sk-learn task is fine.`;
  const { read } = await streamOf(behind([{ error: { ...REJECTED, message } }]));
  const told = read.error!.error.message;
  for (const secret of quoted) expect(told).not.toContain(secret.slice(-20));
  expect(told).toContain("the sk-learn task is fine.");
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
