import type { Bill } from "./books.ts";
import { chargeOf, holdOf, PROMPT_TOKENS } from "./kinds.ts";
import type { Sent } from "./load.ts";

/** What a stream's crash may leave unbilled: so many tokens, and no more than came in a second. */
const MAX_UNBILLED_TOKENS = 256;
const MAX_UNBILLED_MS = 1_000;
/** A piece that leaves at once, and what may be in it. */
const PIECE_MS = 20;
const MAX_PIECE_TOKENS = 20;
/** The client's clock and a loaded machine. */
const TOLERANCE_MS = 250;
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
 *                     checkpoint less if it was, and never for more than the provider had produced
 *   nothing           at most charged once: an answer may have been on its way out when the process died,
 *                     after its charge, or the first checkpoint of its stream, was durable
 *
 * Returns each break in words.
 */
export function breachesOf(sent: Sent, bills: readonly Bill[], producedTokens: number): string[] {
  const standing = bills.filter(({ isRefunded }) => !isRefunded);
  const [bill] = standing;
  const breaches: string[] = [];
  if (standing.length > 1) breaches.push(`charged ${standing.length} times`);
  if (bill !== undefined) breaches.push(...breachesOfBill(sent, bill, producedTokens));
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

function breachesOfBill(sent: Sent, bill: Bill, producedTokens: number): string[] {
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
  else if (kind.stream) breaches.push(...breachesOfPart(sent, bill, producedTokens));
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

/**
 * One that wakes from a pause may still send the piece that was on its way, with all tokens that were in
 * it. Returns how many.
 */
function lastPieceOf(tokenTimesMs: readonly number[]): number {
  const sinceMs = tokenTimesMs.at(-1)! - PIECE_MS;
  return Math.min(tokenTimesMs.filter((atMs) => atMs >= sinceMs).length, MAX_PIECE_TOKENS);
}

function breachesOfPart(sent: Sent, bill: Bill, producedTokens: number): string[] {
  const { tokenTimesMs, wasCut } = sent;
  const breaches: string[] = [];
  const unbilled = tokenTimesMs.length - bill.completionTokens;
  if (unbilled > (wasCut ? MAX_UNBILLED_TOKENS : 0)) {
    breaches.push(`${tokenTimesMs.length} tokens delivered, ${bill.completionTokens} charged`);
  }
  if (unbilled > 0) {
    const lastMs = tokenTimesMs.at(-1 - (wasCut ? lastPieceOf(tokenTimesMs) : 0))!;
    const spanMs = lastMs - tokenTimesMs[bill.completionTokens]!;
    if (spanMs > MAX_UNBILLED_MS + TOLERANCE_MS) {
      breaches.push(`${Math.round(spanMs)} ms of a stream not charged`);
    }
  }
  if (bill.completionTokens > producedTokens) {
    breaches.push(`${bill.completionTokens} tokens charged of ${producedTokens} that there were`);
  }
  return breaches;
}
