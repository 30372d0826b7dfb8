import type { ApiKeySettings } from "../lib/api-key-record.ts";
import { GatewayError } from "../lib/errors.ts";
import { parseIsoTime } from "../lib/iso-time.ts";
import { hasAtMostDecimals, type NanoUsd, nanoFromUsd } from "../lib/money.ts";

export interface KeyBody {
  readonly name?: string;
  readonly scopes?: readonly string[] | null;
  readonly rate_limit_rpm?: number | null;
  readonly daily_budget_usd?: number | null;
  readonly monthly_budget_usd?: number | null;
  readonly allowed_models?: readonly string[] | null;
  readonly expires_at?: string | null;
  readonly is_active?: boolean;
}

const MAX_DECIMALS = 9;

/** The settings that a body names; what it leaves out stays out. Throws 400. */
export function settingsOf(body: KeyBody, nowMs: number): Partial<ApiKeySettings> {
  const settings: { -readonly [Field in keyof ApiKeySettings]?: ApiKeySettings[Field] } = {};
  if (body.name !== undefined) settings.name = body.name;
  if (body.scopes !== undefined && body.scopes !== null) settings.scopes = body.scopes;
  if (body.rate_limit_rpm !== undefined) settings.rateLimitRpm = body.rate_limit_rpm;
  if (body.daily_budget_usd !== undefined) {
    settings.dailyBudgetNano = budget(body.daily_budget_usd, "daily_budget_usd");
  }
  if (body.monthly_budget_usd !== undefined) {
    settings.monthlyBudgetNano = budget(body.monthly_budget_usd, "monthly_budget_usd");
  }
  if (body.allowed_models !== undefined) settings.allowedModels = body.allowed_models;
  if (body.expires_at !== undefined) settings.expiresAtMs = futureTime(body.expires_at, nowMs);
  if (body.is_active !== undefined) settings.isActive = body.is_active;
  return settings;
}

function budget(usd: number | null, param: string): NanoUsd | null {
  if (usd === null) return null;
  if (hasAtMostDecimals(usd, MAX_DECIMALS)) return nanoFromUsd(usd);
  throw new GatewayError("invalid_body", `${param} may have at most ${MAX_DECIMALS} decimals.`, {
    param,
  });
}

function futureTime(text: string | null, nowMs: number): number | null {
  if (text === null) return null;
  const time = parseIsoTime(text);
  if (time !== undefined && time.ms > nowMs) return time.ms;
  throw new GatewayError("invalid_body", "expires_at must be an ISO 8601 time in the future.", {
    param: "expires_at",
  });
}
