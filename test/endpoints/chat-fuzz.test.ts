import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { readEnvelope } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { CHAT_FIELDS, CHAT_MODELS, goodChatRequest } from "../support/odd-chat-requests.ts";
import { oddValue } from "../support/odd-values.ts";
import { readStream } from "../support/stream-reader.ts";

const RUNS = 400;
const TIMEOUT_MS = 60_000;

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({ startingCreditUsd: 1_000 });
});
afterAll(() => gateway.stop());

/** How often each status was answered. */
const statuses = new Map<number, number>();

/** Whatever was sent: an answer, or an error of the caller's with its envelope, never the gateway's fault. */
async function expectNoFault(body: string): Promise<void> {
  const response = await gateway.request("POST", "/v1/chat/completions", body);
  statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
  if (response.status === 200) {
    if (response.headers.get("content-type")!.startsWith("text/event-stream")) {
      expect((await readStream(response)).isDone).toBeTrue();
    } else expect(await response.json()).toMatchObject({ object: "chat.completion" });
    return;
  }
  expect(response.status).toBeLessThan(500);
  await readEnvelope(response);
}

const hostile = { numRuns: RUNS, endOnFailure: true } as const;

test(
  "JSON of any shape is answered, or refused with an envelope and a status below 500",
  () =>
    fc.assert(
      fc.asyncProperty(oddValue, (value) => expectNoFault(JSON.stringify(value))),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is an object of the endpoint's own fields with values of any shape",
  () =>
    fc.assert(
      fc.asyncProperty(
        fc.dictionary(fc.constantFrom(...CHAT_FIELDS), oddValue, { maxKeys: 6 }),
        fc.boolean(),
        (fields, isValidBelow) =>
          expectNoFault(
            JSON.stringify(
              isValidBelow
                ? { model: CHAT_MODELS[0], messages: [{ role: "user", content: "a" }], ...fields }
                : fields,
            ),
          ),
      ),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is a valid request",
  () =>
    fc.assert(
      fc.asyncProperty(goodChatRequest, (body) => expectNoFault(JSON.stringify(body))),
      hostile,
    ),
  TIMEOUT_MS,
);

test(
  "so is a valid request with a few of its bytes changed, dropped or doubled",
  () =>
    fc.assert(
      fc.asyncProperty(
        goodChatRequest.map((body) => JSON.stringify(body)),
        fc.array(
          fc.record({
            at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
            remove: fc.nat(3),
            insert: fc.constantFrom(
              "",
              '"',
              "{",
              "}",
              "[",
              "]",
              ",",
              ":",
              "\\",
              "0",
              "e9",
              "null",
              "\u0000",
            ),
          }),
          { minLength: 1, maxLength: 3 },
        ),
        (text, edits) => {
          let edited = text;
          for (const { at, remove, insert } of edits) {
            const start = Math.floor(at * edited.length);
            edited = edited.slice(0, start) + insert + edited.slice(start + remove);
          }
          return expectNoFault(edited);
        },
      ),
      hostile,
    ),
  TIMEOUT_MS,
);

test("what was sent was partly good and partly bad, or nothing was proved", () => {
  expect(statuses.get(200)).toBeGreaterThan(RUNS / 4);
  expect(statuses.get(400)).toBeGreaterThan(RUNS);
});

test("the books are closed afterwards", () => expectBooksClosed(gateway));
