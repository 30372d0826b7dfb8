import { expect } from "bun:test";
import type { Database } from "../../../db/client.ts";
import type { SubjectLimits, SubjectType } from "../../../db/queries/subject-budgets.ts";
import type {
  BudgetSubject,
  ChargeFigures,
  Hold,
  HoldRequest,
  MoneyPort,
  SettlementFigures,
} from "../../../src/billing/ledger/interface.ts";
import type { ApiKeySettings } from "../../../src/lib/api-key-record.ts";
import type { VirtualClock } from "../../../src/lib/clock.ts";
import { GatewayError } from "../../../src/lib/errors.ts";
import { newId } from "../../../src/lib/ids.ts";
import { attemptsOf, faultsOf, holdsOf, type Payer } from "../../ledger/books.ts";
import { until } from "../../support/until.ts";

/** Money in the hands of a test, which owns its time and stands beside it in its database. */
export interface OwnedMoney {
  readonly money: MoneyPort;
  readonly clock: VirtualClock;
  readonly sql: Database;
  /** True while something is read or written, which virtual time must not overtake. */
  isBusy(): boolean;
  /** Charges that went beyond their holds, by how much. */
  readonly clamped: readonly bigint[];
  addOrganization(creditNano: bigint): Promise<Payer>;
  addKey(organizationId: string, settings?: Partial<ApiKeySettings>): Promise<Payer>;
  /** As by PATCH. Rejects where the database refuses it. */
  change(payer: Payer, changed: Partial<ApiKeySettings>): Promise<void>;
  /** As by DELETE. */
  remove(payer: Payer): Promise<void>;
  /** An end user or a tag with a budget. */
  addSubject(
    organizationId: string,
    type: SubjectType,
    limits: Partial<SubjectLimits>,
  ): Promise<BudgetSubject>;
  changeSubject(subject: BudgetSubject, changed: Partial<SubjectLimits>): Promise<void>;
  removeSubject(subject: BudgetSubject): Promise<void>;
  /** As by a payment, which another process posts. */
  topUp(payer: Payer, amountNano: bigint): Promise<void>;
  /** As by an operator's order. False where it was refused. */
  adjust(payer: Payer, amountNano: bigint): Promise<boolean>;
  /** Sets how far the balance may go below zero; null is without limit. False where it was refused. */
  limitCredit(payer: Payer, creditLimitNano: bigint | null): Promise<boolean>;
  /** News say that what is known of the payer is old. */
  forget(payer: Payer): void;
  close(): Promise<void>;
}

/** More than any test spends. */
export const RICH = 10n ** 15n;
/** A provider's cost of one nano-USD a token. */
export const NANO_TOKEN_FEMTO = 1_000_000n;

/** A request that costs one nano-USD for each output token, and nothing else. */
export function requestOf(
  payer: Payer,
  tokens: number,
  over: Partial<HoldRequest> = {},
): HoldRequest {
  return {
    requestId: newId("req"),
    organizationId: payer.organizationId,
    keyId: payer.keyId,
    fixedFemto: 0n,
    perTokenFemto: NANO_TOKEN_FEMTO,
    outputTokens: tokens,
    isLimitExplicit: true,
    feeBasisPoints: 0n,
    ...over,
  };
}

export function figures(chargeNano: bigint): SettlementFigures & ChargeFigures {
  return {
    chargeNano,
    feeNano: chargeNano / 26n,
    clampedNano: 0n,
    model: "test/model",
    provider: "test",
    promptTokens: 1,
    cachedPromptTokens: 0,
    completionTokens: Number(chargeNano),
    reasoningTokens: 0,
    quantities: null,
    estimated: false,
    latencyMs: 1,
    details: null,
    status: 200,
    description: "Chat completion: test/model",
  };
}

/** The code with which a hold is refused; undefined where it is granted. */
export async function codeOf(held: unknown): Promise<string | undefined> {
  try {
    await held;
    return undefined;
  } catch (error) {
    if (error instanceof GatewayError) return error.code;
    throw error;
  }
}

/** What tests of money do again and again. */
export class MoneyHands {
  #owned: OwnedMoney | undefined;

  /** To be called before the first test. */
  take(owned: OwnedMoney): void {
    this.#owned = owned;
  }

  get owned(): OwnedMoney {
    return this.#owned!;
  }

  get money(): MoneyPort {
    return this.owned.money;
  }

  async hold(request: HoldRequest): Promise<Hold> {
    return this.money.hold(request);
  }

  /** Lets virtual time pass until the work is over; it stands still where that takes real time. */
  async passing<Result>(work: Promise<Result>, msATurn = 5): Promise<Result> {
    let isOver = false;
    const ended = work.finally(() => {
      isOver = true;
    });
    ended.catch(() => {});
    while (!isOver) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (!this.owned.isBusy()) this.owned.clock.advance(msATurn);
    }
    return ended;
  }

  /** Lets time pass that is not to overtake what is being read or written. */
  async advance(byMs: number): Promise<void> {
    await until("nothing is read or written", () => !this.owned.isBusy());
    this.owned.clock.advance(byMs);
  }

  /** Where a hold stands while no time passes. */
  async isWaiting(held: Promise<unknown>): Promise<boolean> {
    let isPending = true;
    held.then(
      () => {
        isPending = false;
      },
      () => {
        isPending = false;
      },
    );
    for (let turn = 0; turn < 5; turn++) {
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
    return isPending;
  }

  async spentOf({ keyId }: Payer): Promise<bigint> {
    const [row] = await this.owned.sql<{ spent: bigint }[]>`
      SELECT coalesce(-sum(amount_nano), 0)::bigint AS spent FROM transactions WHERE key_id = ${keyId}`;
    return row!.spent;
  }

  async balanceOf({ organizationId }: Payer): Promise<bigint> {
    const [row] = await this.owned.sql<{ balance: bigint }[]>`
      SELECT credit_nano - posted_nano AS balance FROM accounts WHERE id = ${`org:${organizationId}`}`;
    return row!.balance;
  }

  /** The balance, and what stands in the periods of the key. */
  async accountsOf(payer: Payer): Promise<Record<string, bigint>> {
    const rows = await this.owned.sql<{ kind: string; nano: bigint }[]>`
      SELECT kind, CASE kind WHEN 'org' THEN credit_nano - posted_nano ELSE posted_nano END AS nano
      FROM accounts WHERE key_id = ${payer.keyId} OR id = ${`org:${payer.organizationId}`}`;
    return Object.fromEntries(rows.map(({ kind, nano }) => [kind, nano]));
  }

  /** Budget events of the key, each as its type, its window and its threshold. */
  async eventsOf({ keyId }: Payer): Promise<string[]> {
    const rows = await this.owned.sql<{ type: string; data: Record<string, unknown> }[]>`
      SELECT type, data FROM outbox WHERE data->>'key_id' = ${keyId}`;
    return rows.map(({ type, data }) => `${type} ${data.period} ${data.threshold_percent}`).sort();
  }

  async expectWhole(): Promise<void> {
    await until("every hold has ended", () => {
      return this.money.outstandingHolds === 0 && !this.owned.isBusy();
    });
    expect(await holdsOf(this.owned.sql)).toEqual([]);
    expect(await attemptsOf(this.owned.sql)).toEqual([]);
    expect(await faultsOf(this.owned.sql)).toEqual([]);
  }

  async payerOf(creditNano: bigint, settings: Partial<ApiKeySettings> = {}): Promise<Payer> {
    const { organizationId } = await this.owned.addOrganization(creditNano);
    return this.owned.addKey(organizationId, settings);
  }
}
