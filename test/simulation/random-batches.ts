import type { ExchangeBatch } from "../../db/ledger/exchange-batch.ts";
import {
  type Checkpoint,
  type DemandedAmounts,
  dayAccountId,
  type HoldDemand,
  type LedgerRequest,
  monthAccountId,
  orgAccountId,
  type Settlement,
  subjectDayAccountId,
  subjectMonthAccountId,
} from "../../db/ledger/rows.ts";
import type { Payers } from "./plan.ts";
import type { SeededRandom } from "./seeded-random.ts";

const DAYS = ["2026-03-14", "2026-03-15"];
const MONTH = "2026-03-01";
const MAX_REQUESTS = 60;

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
      subjectAccounts: this.#subjectAccounts(organizationId),
    };
    this.#requests.push(request);
    if (this.#requests.length > MAX_REQUESTS) this.#requests.shift();
    return request;
  }

  #subjectAccounts(organizationId: string): readonly string[] | undefined {
    const random = this.#random;
    const accounts = this.#payers.subjects
      .filter((budget) => budget.organizationId === organizationId && random.chance(0.3))
      .flatMap(({ id }) => [
        subjectDayAccountId(id, random.pick(DAYS)),
        subjectMonthAccountId(id, MONTH),
      ]);
    return accounts.length === 0 ? undefined : accounts;
  }

  /** At times one that raises a hold, which may stand or not. */
  #demand(request: LedgerRequest): HoldDemand {
    const random = this.#random;
    const fullNano = BigInt(random.integer(0, 2_700));
    const isLowered = fullNano > 0n && random.chance(0.5);
    const leastNano = isLowered ? 1n + fullNano / BigInt(random.integer(2, 30)) : fullNano;
    const mostNano = isLowered ? leastNano + BigInt(random.integer(0, 800)) : fullNano;
    return {
      ...request,
      fullNano,
      leastNano: leastNano < fullNano ? leastNano : fullNano,
      mostNano: mostNano < fullNano ? mostNano : fullNano,
      manner: random.pick(["waiting", "waiting", "waiting", "last"] as const),
      ...(random.chance(0.3) && { budget: this.#amounts() }),
      ...(random.chance(0.25) && { extends: true as const }),
    };
  }

  /** Of budgets, apart from what is asked of the balance. */
  #amounts(): DemandedAmounts {
    const fullNano = BigInt(this.#random.integer(0, 2_700));
    const leastNano = this.#random.chance(0.5) ? fullNano : fullNano / 3n;
    const mostNano = leastNano + (fullNano - leastNano) / 2n;
    return { fullNano, leastNano, mostNano };
  }

  #settlement(request: LedgerRequest, mostNano = 400n): Settlement {
    const random = this.#random;
    return {
      ...pick(request),
      chargeNano: BigInt(random.integer(0, random.chance(0.5) ? 1 : Number(mostNano))),
      feeNano: random.chance(0.9) ? BigInt(random.integer(0, 9)) : undefined,
      ...(random.chance(0.2) && { budgetNano: BigInt(random.integer(0, 400)) }),
      ...FIGURES,
      ...this.#use(),
      model: random.pick(["m/one", "m/two"]),
      status: 200,
      description: "Chat completion",
      hasAttempt: random.chance(0.5),
    };
  }

  #use(): Pick<Settlement, "cachedPromptTokens" | "reasoningTokens" | "quantities"> {
    const random = this.#random;
    return {
      cachedPromptTokens: random.integer(0, 3),
      reasoningTokens: random.integer(0, 3),
      quantities: random.chance(0.5) ? null : { images: random.integer(1, 9), duration_ms: 1_500 },
    };
  }

  #checkpoint(request: LedgerRequest): Checkpoint {
    const random = this.#random;
    return {
      ...pick(request),
      ...FIGURES,
      ...this.#use(),
      model: "m/one",
      description: "Chat completion",
      holdNano: 400n,
      chargeNano: BigInt(random.integer(0, 400)),
      feeNano: BigInt(random.integer(0, 9)),
      ...(random.chance(0.3) && {
        budgetHoldNano: 500n,
        budgetNano: BigInt(random.integer(0, 500)),
      }),
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
  const { subjectAccounts } = request;
  return {
    ...{ requestId, organizationId, keyId },
    ...{ orgAccount, dayAccount, monthAccount, subjectAccounts },
  };
}

function distinct(requests: readonly LedgerRequest[]): LedgerRequest[] {
  return [...new Map(requests.map((request) => [request.requestId, request])).values()];
}
