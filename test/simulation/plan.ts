import type { SeededRandom } from "./seeded-random.ts";

/** What one client asks for, and what becomes of it at the provider and at the client. */
export interface RequestPlan {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Ids of the budgets of its subjects. */
  readonly subjects: readonly string[];
  readonly isStream: boolean;
  /** One nano-USD each. */
  readonly outputTokens: number;
  readonly isLimitExplicit: boolean;
  readonly fixedNano: number;
  /** Served by the organization's own provider key: the balance pays nothing, the key's budgets count it. */
  readonly isOwn: boolean;
  /** Who can serve it besides: a provider of the operator's, so that its cost is held too. */
  readonly hasFallback: boolean;
  /** What the provider produces, as a share of what it may. */
  readonly producedShare: number;
  /** Until the answer, or the first event. */
  readonly upstreamMs: number;
  /** Events of a stream. */
  readonly events: number;
  readonly eventMs: number;
  /** The provider fails: at once, or, in a stream, after some events. */
  readonly upstreamFailure: "none" | "at once" | "cut";
  /** When the client goes away, after its request. */
  readonly disconnectMs: number | undefined;
}

/** Payers of a schedule; money in nano-USD. */
export interface Payers {
  readonly organizations: readonly {
    readonly id: string;
    readonly creditNano: number;
    /** How far the balance may go below zero; null is without limit. */
    readonly creditLimitNano: number | null;
  }[];
  readonly keys: readonly Budgeted[];
  /** Budgets of end users and tags. */
  readonly subjects: readonly Budgeted[];
}

interface Budgeted {
  readonly id: string;
  readonly organizationId: string;
  readonly dailyBudgetNano: number | null;
  readonly monthlyBudgetNano: number | null;
}

export function planPayers(random: SeededRandom): Payers {
  const organizations = Array.from({ length: random.integer(1, 2) }, (_, index) => ({
    id: `org_${index}`,
    creditNano: random.pick([500, 3_000, 10_000, 100_000, 100_000]),
    creditLimitNano: random.pick([0, 0, 0, 0, 2_000, null]),
  }));
  const budget = (): number | null =>
    random.chance(0.6) ? null : random.pick([0, 400, 2_000, 8_000, 50_000]);
  const budgeted = (prefix: string, least: number, most: number) =>
    organizations.flatMap(({ id: organizationId }) =>
      Array.from({ length: random.integer(least, most) }, (_, index) => ({
        id: `${prefix}_${organizationId.slice(4)}_${index}`,
        organizationId,
        dailyBudgetNano: budget(),
        monthlyBudgetNano: budget(),
      })),
    );
  return { organizations, keys: budgeted("key", 1, 3), subjects: budgeted("bud", 0, 2) };
}

export function planRequest(random: SeededRandom, payers: Payers, number: number): RequestPlan {
  const { id: keyId, organizationId } = random.pick(payers.keys);
  const isStream = random.chance(0.5);
  const failure = random.next();
  return {
    requestId: `req_${String(number).padStart(4, "0")}`,
    organizationId,
    keyId,
    subjects: payers.subjects
      .filter((subject) => subject.organizationId === organizationId && random.chance(0.4))
      .map(({ id }) => id),
    isStream,
    outputTokens: random.pick([0, 50, 300, 300, 700, 2_000, 6_000]),
    isLimitExplicit: random.chance(0.7),
    fixedNano: random.pick([0, 1, 40]),
    isOwn: random.chance(0.2),
    hasFallback: random.chance(0.5),
    producedShare: random.pick([0, 0.1, 0.5, 0.9, 1]),
    upstreamMs: random.delay(30, 1_500),
    events: random.integer(1, 8),
    eventMs: random.delay(40, 900),
    upstreamFailure: failure < 0.07 ? "at once" : failure < 0.14 && isStream ? "cut" : "none",
    disconnectMs: random.chance(0.12) ? random.delay(60, 2_000) : undefined,
  };
}
