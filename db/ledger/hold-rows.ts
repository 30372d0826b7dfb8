import type { RequestAccounts } from "./rows.ts";

/** A hold that is asked for: decided in the database, under the locks of its accounts. */
export interface HoldDemand extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** What the request may cost. Of an extension, what the hold is to come to. */
  readonly fullNano: bigint;
  /** The least that will do; where it is below `fullNano`, all that is free is held, up to `mostNano`. */
  readonly leastNano: bigint;
  readonly mostNano: bigint;
  /**
   * `waiting` stands behind earlier ones that need the same money, and keeps later ones behind itself;
   * `last` passes those before it, and keeps none behind itself.
   */
  readonly manner: "waiting" | "last";
  /** Set where the hold of this instance stands already and is to be raised. */
  readonly extends?: true;
}

/** What an account allows, in nano-USD: its whole limit, without what is spent, and without holds too. */
export interface AccountHeadroom {
  readonly limitNano: bigint;
  readonly unspentNano: bigint;
  readonly freeNano: bigint;
}

export type HoldVerdict =
  | { readonly kind: "granted"; readonly holdNano: bigint }
  /** An earlier request waits for the same money. */
  | { readonly kind: "behind" }
  /** The hold that was to be raised has ended. */
  | { readonly kind: "gone" }
  /** The key is switched off, or (undefined) was deleted. */
  | { readonly kind: "revoked"; readonly isActive: false | undefined }
  /** There is not enough. Undefined where there is no credit limit, or no such budget. */
  | {
      readonly kind: "short";
      readonly organization: AccountHeadroom | undefined;
      readonly day: AccountHeadroom | undefined;
      readonly month: AccountHeadroom | undefined;
    };

/** A hold that ends without a charge. */
export interface HoldRelease extends RequestAccounts {
  readonly requestId: string;
  /** True where a checkpoint may have been written: it goes too. */
  readonly hasAttempt: boolean;
}

/** A hold that is asked for with the next batch. */
export interface HoldUnit {
  readonly demand: HoldDemand;
  /** Called once the batch is durable. Must not throw. */
  decided(verdict: HoldVerdict): void;
  /** Nothing was written. Must not throw. */
  failed(error: unknown): void;
}

/** The queue of holds, asked when a batch is put together, so that it decides by the latest state. */
export interface HoldSource {
  readonly hasWork: boolean;
  /** A bounded number of them, in the order in which they are to be decided. */
  take(): readonly HoldUnit[];
}
