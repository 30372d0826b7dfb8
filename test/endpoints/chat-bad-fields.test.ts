import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { MAX_RECORDED_BYTES } from "../../src/inference/call/endpoint.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());

async function expectRefused(body: Record<string, unknown>, param?: string): Promise<void> {
  const callsBefore = gateway.upstream.served.length;
  const { error } = await expectError(await gateway.chat(slug, body), 400, "invalid_body");
  expect(error.type).toBe("invalid_request_error");
  if (param !== undefined) expect(error.param).toBe(param);
  expect(gateway.upstream.served).toHaveLength(callsBefore);
}

async function expectAccepted(body: Record<string, unknown>): Promise<void> {
  expect((await gateway.chat(slug, body)).status).toBe(200);
}

/** A value of each type but the one that the field takes. */
const WRONG_TYPES: Record<string, unknown[]> = {
  number: ["0.5", "1", "", true, [], {}, [1]],
  integer: ["5", "", 1.5, 0.1, true, [], {}, [5], 1e308, -1e308, 2 ** 53, 1e21],
  boolean: ["true", 1, 0, [], {}],
  string: [5, true, [], {}],
  list: ["a", 5, true, {}],
  object: ["a", 5, true, []],
};

describe("each field takes its own type alone: nothing is coerced", () => {
  const FIELDS: Record<string, string[]> = {
    number: [
      "temperature",
      "top_p",
      "frequency_penalty",
      "presence_penalty",
      "min_p",
      "repetition_penalty",
    ],
    integer: ["max_tokens", "max_completion_tokens", "top_k", "seed", "n"],
    boolean: [
      "stream",
      "parallel_tool_calls",
      "include_reasoning",
      "interleaved_thinking",
      "route_explain",
      "store",
    ],
    string: ["preset", "guardrail", "session_id", "user"],
    list: ["tools", "models", "plugins", "transforms", "modalities"],
    object: [
      "reasoning",
      "image_config",
      "stream_options",
      "provider",
      "web_search_options",
      "cache_control",
      "trace",
      "metadata",
      "debug",
      "logit_bias",
      "response_format",
    ],
  };
  const cases = Object.entries(FIELDS).flatMap(([type, fields]) =>
    fields.map((field) => [field, type] as const),
  );
  test.each(cases)("%s: %s", async (field, type) => {
    for (const value of WRONG_TYPES[type]!) await expectRefused({ [field]: value }, field);
  });

  test("model and messages are neither null nor of another type", async () => {
    for (const value of [null, 5, true, [], {}, ""]) await expectRefused({ model: value }, "model");
    for (const value of [null, 5, true, {}, "", "hello"]) {
      await expectRefused({ messages: value }, "messages");
    }
    await expectRefused({ model: undefined }, "model");
    await expectRefused({ messages: undefined }, "messages");
  });

  test("model is ignored where models is given, whatever it names", async () => {
    const models = [`test/${slug}`];
    for (const model of ["no/such-model", "", null]) await expectAccepted({ model, models });
    await expectRefused({ model: null, models: null }, "model");
  });

  test("null in an optional field says nothing", async () => {
    const fields = Object.values(FIELDS).flat();
    await expectAccepted(Object.fromEntries(fields.map((field) => [field, null])));
  });
});

describe("each ranged field takes the ends of its range and nothing beyond", () => {
  const RANGES: [field: string, minimum: number, maximum: number, step: number][] = [
    ["temperature", 0, 2, 1e-9],
    ["top_p", 0, 1, 1e-9],
    ["min_p", 0, 1, 1e-9],
    ["frequency_penalty", -2, 2, 1e-9],
    ["presence_penalty", -2, 2, 1e-9],
    ["n", 1, 128, 1],
    ["seed", -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, 1],
    ["top_k", 0, Number.MAX_SAFE_INTEGER, 1],
  ];
  test.each(RANGES)("%s: %d to %d", async (field, minimum, maximum, step) => {
    const limit = { max_tokens: 1 };
    await expectAccepted({ ...limit, [field]: minimum });
    await expectAccepted({ ...limit, [field]: maximum });
    await expectRefused({ [field]: minimum - step }, field);
    await expectRefused({ [field]: maximum + step }, field);
    await expectRefused({ [field]: -1e308 }, field);
    await expectRefused({ [field]: 1e308 }, field);
  });

  test.each(["max_tokens", "max_completion_tokens"])(
    "%s: at least 1, a safe integer; what nobody could pay is 402 and no 5xx",
    async (field) => {
      for (const value of [0, -1, -(2 ** 53), 2 ** 53, 1e308]) {
        await expectRefused({ [field]: value }, field);
      }
      await expectAccepted({ [field]: 1 });
      for (const value of [1e15, Number.MAX_SAFE_INTEGER, 2 ** 31, 2 ** 32]) {
        const { error } = await expectError(
          await gateway.chat(slug, { [field]: value }),
          402,
          "insufficient_credits",
        );
        expect(error.message).toMatch(/At most \d+ output tokens would have been affordable/);
      }
    },
  );

  test("numbers that JSON writes beyond what a double holds are out of range", async () => {
    const body = JSON.stringify(chatBody(slug)).slice(0, -1);
    for (const member of ['"temperature":1e400', '"max_tokens":1e999', '"n":-1e400']) {
      const response = await gateway.request("POST", "/v1/chat/completions", `${body},${member}}`);
      await expectError(response, 400, "invalid_body");
    }
  });
});

describe("what is kept with the charge is bounded", () => {
  test.each(["metadata", "trace"])("%s", async (field) => {
    // Of its texts the length is bounded separately; those in a list are not looked at.
    const around = JSON.stringify({ key: [""] }).length;
    const filled = (bytes: number) => ({ [field]: { key: ["é".repeat((bytes - around) / 2)] } });
    await expectAccepted(filled(MAX_RECORDED_BYTES));
    await expectRefused(filled(MAX_RECORDED_BYTES + 2), field);
    await expectRefused(filled(8 * 1024 * 1024), field);
  });
});

test.each([
  "Model",
  "MODEL",
  "Max_Tokens",
  "Stream",
  "N",
  // Letters that fold to s and k.
  "me\u017f\u017fages",
  "max_to\u212aens",
])(
  "a field in letters that some servers take for those of another (%s) is refused",
  async (name) => {
    await expectRefused({ [name]: "another" }, name);
  },
);

test("other names that are not known go on, whatever their letters", async () => {
  await expectAccepted({ X_Custom: 1, models_: 2, "": 3 });
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
