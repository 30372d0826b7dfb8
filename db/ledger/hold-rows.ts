import type { RequestAccounts } from "./rows.ts";

/** A hold that is asked for: decided in the database, under the locks of its accounts. */
export interface HoldDemand extends RequestAccounts {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly fullNano: bigint;
  /** The least that will do. Below `fullNano` only with `lowering`. */
  readonly leastNano: bigint;
  /** Where the limit of output tokens may be lowered: how many tokens an amount pays for. */
  readonly lowering: HoldLowering | undefined;
  /**
   * `waiting` stands behind earlier ones that need the same money, and keeps later ones behind itself;
   * `last` looks past those before it, and keeps nobody.
   */
  readonly manner: "waiting" | "last";
}

export interface HoldLowering {
  readonly fixedFemto: bigint;
  readonly perTokenFemto: bigint;
  readonly feeBasisPoints: bigint;
  /** What the limit is lowered to at most. */
  readonly maxTokens: number;
}

/** What an account allows, in nano-USD: its whole limit, without what is spent, and without holds too. */
export interface AccountRoom {
  readonly limitNano: bigint;
  readonly unspentNano: bigint;
  readonly freeNano: bigint;
}

export type HoldVerdict =
  | { readonly kind: "granted"; readonly holdNano: bigint; readonly outputTokens?: number }
  /** Somebody who came earlier waits for what it needs. */
  | { readonly kind: "behind" }
  /** The key is switched off, or (undefined) does not exist any more. */
  | { readonly kind: "revoked"; readonly isActive: false | undefined }
  /** There is not enough. Rooms are undefined where there is no credit limit, or no such budget. */
  | {
      readonly kind: "short";
      readonly organization: AccountRoom | undefined;
      readonly day: AccountRoom | undefined;
      readonly month: AccountRoom | undefined;
    };

/** A hold that ends without a charge. */
export interface HoldRelease extends RequestAccounts {
  readonly requestId: string;
  /** True where a checkpoint may have been written: it goes too. */
  readonly hasAttempt: boolean;
}
