import type { KeyPeriods } from "../../actors/api-key/state.ts";
import type { NanoUsd } from "../lib/money.ts";
import type { Hold, HoldRequest } from "./interface.ts";
import type { PendingCharge } from "./pending-charge.ts";

/** A hold in memory that has not ended. */
export class SingleNodeHold implements Hold {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  readonly orgAccount: string;
  readonly dayAccount: string;
  readonly monthAccount: string;
  holdNano: NanoUsd;
  readonly feeBasisPoints: bigint;
  readonly outputTokens: number;
  readonly isLowered: boolean;
  readonly admittedAtMs: number;
  /** Whether a checkpoint was handed in, or one is known to be written. */
  attempt: "none" | "asked for" | "written" = "none";
  /** Its charge, on its way. */
  charge: PendingCharge | undefined;

  constructor(
    request: HoldRequest,
    orgAccount: string,
    { day, month }: KeyPeriods,
    holdNano: NanoUsd,
    outputTokens: number,
    admittedAtMs: number,
  ) {
    this.requestId = request.requestId;
    this.organizationId = request.organizationId;
    this.keyId = request.keyId;
    this.orgAccount = orgAccount;
    this.dayAccount = day.accountId;
    this.monthAccount = month.accountId;
    this.holdNano = holdNano;
    this.feeBasisPoints = request.feeBasisPoints;
    this.outputTokens = outputTokens;
    this.isLowered = outputTokens < request.outputTokens;
    this.admittedAtMs = admittedAtMs;
  }
}
