import type { ExchangeBatch } from "../../db/ledger/exchange-batch.ts";
import type { HoldDemand } from "../../db/ledger/hold-rows.ts";
import {
  type Checkpoint,
  dayAccountId,
  type LedgerRequest,
  monthAccountId,
  orgAccountId,
  type Settlement,
} from "../../db/ledger/rows.ts";
import { holdNanoUsd } from "../../src/lib/money.ts";
import type { Payers } from "./plan.ts";
import type { SeededRandom } from "./seeded-random.ts";

const DAYS = ["2026-03-14", "2026-03-15"];
const MONTH = "2026-03-01";
const MAX_REQUESTS = 60;
const FEMTO_PER_NANO = 1_000_000n;

/** Batches such as the ledger sends them, and such as it never should: also requests out of the blue. */
export class RandomBatches {
  readonly #random: SeededRandom;
  readonly #payers: Payers;
  readonly #requests: LedgerRequest[] = [];
  #count = 0;

  constructor(random: SeededRandom, payers: Payers) {
    this.#random = random;
    this.#payers = payers;
  }

  next(): ExchangeBatch {
    const random = this.#random;
    const some = (most: number): LedgerRequest[] =>
      Array.from({ length: random.integer(0, most) }, () => this.#request());
    const holds = distinct(some(6)).map((request) => this.#demand(request));
    const asked = new Set(holds.map(({ requestId }) => requestId));
    const mayHave = distinct(some(random.chance(0.5) ? 1 : 4)).filter(
      ({ requestId }) => !asked.has(requestId),
    );
    const settlements = mayHave.map((request) => this.#settlement(request));
    const settled = new Set(settlements.map(({ requestId }) => requestId));
    const rest = distinct(some(4)).filter(
      ({ requestId }) => !asked.has(requestId) && !settled.has(requestId),
    );
    const releases = rest
      .filter(() => random.chance(0.5))
      .map((request) => ({ ...request, hasAttempt: random.chance(0.5) }));
    const released = new Set(releases.map(({ requestId }) => requestId));
    return {
      checkpoints: rest
        .filter(({ requestId }) => !released.has(requestId))
        .map((request) => this.#checkpoint(request)),
      settlements,
      releases,
      holds,
      knownAccounts: new Set(),
      recheck: random.chance(0.3),
      isReaping: random.chance(0.3),
    };
  }

  /** One that was there before, mostly. */
  #request(): LedgerRequest {
    const random = this.#random;
    if (this.#requests.length > 5 && random.chance(0.7)) return random.pick(this.#requests);
    const { id: keyId, organizationId } = random.pick(this.#payers.keys);
    const request: LedgerRequest = {
      requestId: `req_${String(++this.#count).padStart(5, "0")}`,
      organizationId,
      keyId,
      orgAccount: orgAccountId(random.chance(0.02) ? "unknown" : organizationId),
      dayAccount: dayAccountId(keyId, random.pick(DAYS)),
      monthAccount: monthAccountId(keyId, MONTH),
    };
    this.#requests.push(request);
    if (this.#requests.length > MAX_REQUESTS) this.#requests.shift();
    return request;
  }

  #demand(request: LedgerRequest): HoldDemand {
    const random = this.#random;
    const perToken = random.pick([1, 3]);
    const tokens = random.integer(0, 900);
    const feeBasisPoints = random.pick([0n, 550n]);
    const fixedFemto = 5n * FEMTO_PER_NANO;
    const perTokenFemto = BigInt(perToken) * FEMTO_PER_NANO + BigInt(random.integer(0, 999));
    const nano = (count: number): bigint =>
      holdNanoUsd(fixedFemto + perTokenFemto * BigInt(count), feeBasisPoints);
    const isLowered = tokens > 0 && random.chance(0.5);
    return {
      ...request,
      fullNano: nano(tokens),
      leastNano: nano(isLowered ? Math.min(tokens, 40) : tokens),
      lowering: isLowered
        ? { fixedFemto, perTokenFemto, feeBasisPoints, maxTokens: Math.min(tokens, 400) }
        : undefined,
      manner: random.pick(["waiting", "waiting", "waiting", "last"] as const),
    };
  }

  #settlement(request: LedgerRequest, mostNano = 400n): Settlement {
    const random = this.#random;
    return {
      ...pick(request),
      chargeNano: BigInt(random.integer(0, random.chance(0.5) ? 1 : Number(mostNano))),
      ...FIGURES,
      model: random.pick(["m/one", "m/two"]),
      status: 200,
      description: "Chat completion",
      hasAttempt: random.chance(0.5),
    };
  }

  #checkpoint(request: LedgerRequest): Checkpoint {
    const random = this.#random;
    return {
      ...pick(request),
      ...FIGURES,
      model: "m/one",
      holdNano: 400n,
      chargeNano: BigInt(random.integer(0, 400)),
      completionTokens: random.integer(0, 400),
      startedAtMs: Date.UTC(2026, 2, 14, 12),
    };
  }
}

const FIGURES = {
  provider: "p",
  promptTokens: 3,
  cachedPromptTokens: 0,
  completionTokens: 7,
  reasoningTokens: 0,
  quantities: null,
  estimated: false,
  latencyMs: 9,
  details: null,
};

function pick(request: LedgerRequest): LedgerRequest {
  const { requestId, organizationId, keyId, orgAccount, dayAccount, monthAccount } = request;
  return { requestId, organizationId, keyId, orgAccount, dayAccount, monthAccount };
}

function distinct(requests: readonly LedgerRequest[]): LedgerRequest[] {
  return [...new Map(requests.map((request) => [request.requestId, request])).values()];
}
