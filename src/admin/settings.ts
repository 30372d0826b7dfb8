import { GatewayError } from "../lib/errors.ts";
import { hasAtMostDecimals, type NanoUsd, nanoFromUsd } from "../lib/money.ts";
import type { OrganizationChange } from "../organizations/organization-administration.ts";

export interface OrganizationBody {
  readonly name?: string;
  readonly plan?: string;
  readonly fee_percent?: number | null;
  readonly file_quota_bytes?: number | null;
  readonly max_keys?: number | null;
  readonly max_webhooks?: number | null;
  readonly credit_limit_usd?: number | null;
  readonly suspended?: boolean;
}

const BASIS_POINTS_PER_PERCENT = 100;
const MAX_FEE_DECIMALS = 2;
const MAX_AMOUNT_DECIMALS = 9;

/** What a body asks for; what it leaves out stays out. Throws 400. */
export function organizationChangeOf(body: OrganizationBody): OrganizationChange {
  const change: { -readonly [Field in keyof OrganizationChange]?: OrganizationChange[Field] } = {};
  if (body.name !== undefined) change.name = nameOf(body.name);
  if (body.plan !== undefined) change.plan = body.plan;
  if (body.fee_percent !== undefined) change.feeBasisPoints = basisPoints(body.fee_percent);
  if (body.file_quota_bytes !== undefined) change.fileQuotaBytes = body.file_quota_bytes;
  if (body.max_keys !== undefined) change.maxKeys = body.max_keys;
  if (body.max_webhooks !== undefined) change.maxWebhooks = body.max_webhooks;
  if (body.suspended !== undefined) change.isSuspended = body.suspended;
  if (body.credit_limit_usd !== undefined) {
    change.creditLimitNano =
      body.credit_limit_usd === null ? null : amountNano(body.credit_limit_usd, "credit_limit_usd");
  }
  return change;
}

/** Throws 400 for more than 9 decimals. */
export function amountNano(usd: number, param: string): NanoUsd {
  if (hasAtMostDecimals(usd, MAX_AMOUNT_DECIMALS)) return nanoFromUsd(usd);
  throw invalid(`${param} may have at most ${MAX_AMOUNT_DECIMALS} decimals.`, param);
}

export function invalid(message: string, param: string): GatewayError {
  return new GatewayError("invalid_body", message, { param });
}

function nameOf(name: string): string {
  if (name.trim() !== "") return name;
  throw invalid("name must hold more than spaces.", "name");
}

function basisPoints(percent: number | null): number | null {
  if (percent === null) return null;
  if (hasAtMostDecimals(percent, MAX_FEE_DECIMALS)) {
    return Math.round(percent * BASIS_POINTS_PER_PERCENT);
  }
  throw invalid(`fee_percent may have at most ${MAX_FEE_DECIMALS} decimals.`, "fee_percent");
}
