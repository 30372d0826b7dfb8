import type { Bill } from "./books.ts";
import { chargeOf, holdOf, PROMPT_TOKENS } from "./kinds.ts";
import type { Sent } from "./load.ts";

/** What a stream's crash may leave unbilled: so many tokens, and no more than came in a second. */
const MAX_UNBILLED_TOKENS = 256;
const MAX_UNBILLED_MS = 1_000;
/** What the upstream has sent of a request's answer. */
export interface Produced {
  readonly tokens: number;
  /** The token at this place left the upstream at this time, by the client's clock, or later. */
  sentAfterMs(place: number): number;
}

/** The gateway's own count of the prompt, used where the upstream could not tell its own. */
const COUNTED_PROMPT_TOKENS = 6;

/** Of a provider that refuses, of money that is spent, of a database that was killed, of a process that ends. */
const EXPECTED_REFUSALS = new Set([
  "provider_rejected",
  "insufficient_credits",
  "budget_exhausted",
  "database_unavailable",
  "overloaded",
]);

/**
 * What the ledger says of one request, against what its client has seen:
 *
 *   whole answer      charged once, what the answer says
 *   error             not charged, unless its process was paused and had been taken for dead
 *   part of a stream  charged once, for no less than was delivered if nothing was killed, for at most one
 *                     checkpoint less if it was, and never for more than the provider had produced; of what
 *                     that produced behind a pause beyond the lease, nothing is delivered
 *   nothing           at most charged once: an answer may have been on its way out when the process died,
 *                     after its charge, or the first checkpoint of its stream, was durable
 *
 * Returns each break in words.
 */
export function breachesOf(sent: Sent, bills: readonly Bill[], produced: Produced): string[] {
  const standing = bills.filter(({ isRefunded }) => !isRefunded);
  const [bill] = standing;
  const breaches: string[] = [];
  if (standing.length > 1) breaches.push(`charged ${standing.length} times`);
  if (bill !== undefined) breaches.push(...breachesOfBill(sent, bill, produced));
  if (sent.isWhole) {
    if (bill === undefined) breaches.push("a whole answer that was not charged");
  } else if (sent.status !== undefined && sent.status !== 200) {
    if (!EXPECTED_REFUSALS.has(sent.errorCode ?? "")) breaches.push(`refused: ${sent.errorCode}`);
    // One that stood still past its lease answers for what its heir has charged by then. Its successor
    // gives that back where it finds its notes, which it does not here: each has a folder of its own.
    if (bill !== undefined && !sent.wasCut) {
      breaches.push(`a refusal ${sent.errorCode} that was charged`);
    }
  } else if (sent.hasContent || (sent.status === 200 && !sent.kind.stream)) {
    if (bill === undefined) breaches.push("a part of an answer that was not charged");
  } else if (!sent.wasCut) {
    breaches.push("no answer, although nothing was killed");
  }
  return breaches.map((breach) => `${sent.tag} (${sent.kind.name}): ${breach}`);
}

function breachesOfBill(sent: Sent, bill: Bill, produced: Produced): string[] {
  const { kind } = sent;
  const breaches: string[] = [];
  const fair = chargeOf(bill.promptTokens, bill.completionTokens);
  if (bill.chargeNano !== fair) breaches.push(`charged ${bill.chargeNano} instead of ${fair}`);
  if (bill.chargeNano > holdOf(kind)) breaches.push("charged more than was held");
  if (![PROMPT_TOKENS, COUNTED_PROMPT_TOKENS].includes(bill.promptTokens)) {
    breaches.push(`${bill.promptTokens} tokens of a prompt`);
  }
  if (!sent.isReplay && sent.requestId !== undefined && bill.requestId !== sent.requestId) {
    breaches.push(`request ${sent.requestId} is charged as ${bill.requestId}`);
  }
  if (sent.isWhole) breaches.push(...breachesOfWhole(sent, bill));
  else if (kind.stream) breaches.push(...breachesOfPart(sent, bill, produced));
  else if (bill.completionTokens !== kind.tokens) {
    breaches.push(`${bill.completionTokens} tokens of an answer that was not streamed`);
  }
  return breaches;
}

function breachesOfWhole(sent: Sent, bill: Bill): string[] {
  const breaches: string[] = [];
  if (Number(bill.chargeNano) / 1e9 !== sent.costUsd) {
    breaches.push(`charged ${bill.chargeNano} nano-USD, but was told ${sent.costUsd} USD`);
  }
  if (bill.completionTokens !== sent.kind.tokens) {
    breaches.push(`${bill.completionTokens} tokens of ${sent.kind.tokens}`);
  }
  if (bill.status !== 200) breaches.push(`a whole answer with the status ${bill.status}`);
  return breaches;
}

function breachesOfPart(sent: Sent, bill: Bill, produced: Produced): string[] {
  const { tokenTimesMs, wasCut } = sent;
  const breaches: string[] = [];
  const unbilled = tokenTimesMs.length - bill.completionTokens;
  if (unbilled > (wasCut ? MAX_UNBILLED_TOKENS : 0)) {
    breaches.push(`${tokenTimesMs.length} tokens delivered, ${bill.completionTokens} charged`);
  }
  if (unbilled > 0) breaches.push(...breachesOfUnbilled(sent, bill.completionTokens, produced));
  if (bill.completionTokens > produced.tokens) {
    breaches.push(`${bill.completionTokens} tokens charged of ${produced.tokens} that there were`);
  }
  return breaches;
}

/**
 * A gateway lets a token go after the upstream has sent it and before the client has it: bounds that hold
 * however long a machine under load, or a pause, keeps either of them waiting.
 */
function breachesOfUnbilled(sent: Sent, billedTokens: number, produced: Produced): string[] {
  const { tokenTimesMs, stoppedAtMs } = sent;
  const breaches: string[] = [];
  const lastSentMs = produced.sentAfterMs(tokenTimesMs.length - 1);
  const spanMs = lastSentMs - tokenTimesMs[billedTokens]!;
  if (spanMs > MAX_UNBILLED_MS) {
    breaches.push(`${Math.round(spanMs)} ms of a stream not charged`);
  }
  // What it had in hand may leave when it wakes, for a socket cannot be fenced; it takes no more.
  if (stoppedAtMs !== undefined && lastSentMs > stoppedAtMs) {
    const behindMs = Math.round(lastSentMs - stoppedAtMs);
    breaches.push(`delivered what came ${behindMs} ms after its gateway had been stopped`);
  }
  return breaches;
}
