import { describe, expect, test } from "bun:test";
import type { Bill } from "./books.ts";
import { chargeOf, KINDS, PROMPT_TOKENS } from "./kinds.ts";
import { type Sent, sentOf } from "./load.ts";
import { breachesOf } from "./verdict.ts";

/*
 * A token every 10 ms, of which the first 100 are charged. After 140 the gateway stands still for four
 * seconds and is declared dead.
 */

const TOKEN_MS = 10;
const CHARGED = 100;
const STOPPED_MS = 1_400;
const WOKEN_MS = 5_400;
const STEADY = KINDS.find(({ name }) => name === "steady")!;

const produced = { tokens: 300, sentAfterMs: (place: number) => place * TOKEN_MS };

const bill: Bill = {
  tag: "request",
  requestId: "req_1",
  chargeNano: chargeOf(PROMPT_TOKENS, CHARGED),
  status: 499,
  promptTokens: PROMPT_TOKENS,
  completionTokens: CHARGED,
  estimated: false,
  isRefunded: false,
};

/** These tokens at the pace of the upstream, and so many more when the gateway wakes. */
function cut(tokens: number, tokensAtWaking: number): Sent {
  const sent = sentOf("request", STEADY);
  sent.tokenTimesMs.push(...Array.from({ length: tokens }, (_, place) => place * TOKEN_MS));
  sent.tokenTimesMs.push(...Array.from({ length: tokensAtWaking }, () => WOKEN_MS));
  return Object.assign(sent, { hasContent: true, status: 200, requestId: "req_1", wasCut: true });
}

const paused = (tokens: number, tokensAtWaking: number): Sent =>
  Object.assign(cut(tokens, tokensAtWaking), { stoppedAtMs: STOPPED_MS });

describe("of a stream whose gateway stood still beyond its lease", () => {
  test("what it had in hand may arrive when it wakes, however much later that is", () => {
    expect(breachesOf(paused(110, 30), [bill], produced)).toEqual([]);
  });

  test("nothing may arrive that its provider has sent meanwhile", () => {
    expect(breachesOf(paused(110, 50), [bill], produced)).toEqual([
      "request (steady): delivered what came 190 ms after its gateway had been stopped",
    ]);
  });
});

describe("of a stream that was cut", () => {
  test("a second may be delivered that is not charged, as its provider has sent it", () => {
    expect(breachesOf(cut(201, 0), [bill], produced)).toEqual([]);
    expect(breachesOf(cut(202, 0), [bill], produced)).toEqual([
      "request (steady): 1010 ms of a stream not charged",
    ]);
  });

  test("256 tokens may be delivered that are not charged, at once", () => {
    const atOnce = { tokens: 400, sentAfterMs: () => 0 };
    expect(breachesOf(cut(CHARGED, 256), [bill], atOnce)).toEqual([]);
    expect(breachesOf(cut(CHARGED, 257), [bill], atOnce)).toEqual([
      "request (steady): 357 tokens delivered, 100 charged",
    ]);
  });

  test("all that was delivered is charged where nothing was killed", () => {
    const whole = Object.assign(cut(101, 0), { wasCut: false });
    expect(breachesOf(whole, [bill], produced)).toEqual([
      "request (steady): 101 tokens delivered, 100 charged",
    ]);
  });
});
