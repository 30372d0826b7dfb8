import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure, type ProviderFailureKind } from "../interface.ts";

export const MAX_FAILURE_MESSAGE_CHARACTERS = 2_000;
/**
 * Local servers are given keys such as "a" or "test": they are no secrets, and redacting them would take
 * words out of a message.
 */
const MIN_SECRET_CHARACTERS = 8;
const STATUS_KINDS: Readonly<Record<number, ProviderFailureKind>> = {
  400: "rejected",
  408: "timeout",
  409: "unavailable",
  413: "rejected",
  422: "rejected",
  425: "unavailable",
  429: "rate_limited",
  498: "unavailable",
  499: "unavailable",
};

/** What a status alone says of a failure. */
export function kindOfStatus(status: number): ProviderFailureKind {
  if (status < 400 || status >= 500) return "unavailable";
  return STATUS_KINDS[status] ?? "misconfigured";
}

/** What building a failure takes: the time, and the secrets that must not be in it. */
export interface FailureContext {
  readonly nowMs: number;
  readonly apiKey: string | undefined;
  /** Parts of the key that are secrets of their own. */
  readonly secrets?: readonly string[];
}

/** What a provider says of a failure, in its own words. */
interface FailureReport {
  readonly kind: ProviderFailureKind;
  readonly message: string | undefined;
  readonly param?: string | null;
  readonly retryAfterMs?: number | undefined;
  readonly isTooLong?: boolean;
  readonly details?: unknown;
}

/** The failure of a call that the provider answered with this status; credentials are redacted. */
export function statusFailure(
  status: number,
  { kind, message, param = null, retryAfterMs, isTooLong, details }: FailureReport,
  context: FailureContext,
): ProviderFailure {
  const said = message ?? `the provider answered with status ${status}`;
  return new ProviderFailure(kind, publishable(said, context), {
    status,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    param: param === null ? null : publishable(param, context),
    ...(isTooLong !== undefined && { isTooLong }),
    details: publishableDetails(details, context),
  });
}

/** Details of a failure without credentials. Returns undefined if they are no object, or longer than a message may be. */
function publishableDetails(
  details: unknown,
  context: FailureContext,
): Readonly<Record<string, unknown>> | undefined {
  if (!isFields(details)) return undefined;
  const text = JSON.stringify(details);
  if (text.length > MAX_FAILURE_MESSAGE_CHARACTERS) return undefined;
  const safe = jsonValue(publishable(text, context));
  return isFields(safe) ? safe : undefined;
}

/** A provider may quote the key it was called with: that never leaves this file. */
function publishable(text: string, { apiKey = "", secrets = [] }: FailureContext): string {
  let safe = text;
  for (const secret of [apiKey, ...secrets]) {
    if (secret.length >= MIN_SECRET_CHARACTERS) safe = safe.replaceAll(secret, "[redacted]");
  }
  return withoutCredentials(safe.slice(0, MAX_FAILURE_MESSAGE_CHARACTERS)).toWellFormed();
}

/**
 * Forms of credentials that providers issue. A provider that calls others in turn may quote a key that the
 * gateway does not know. Repetitions are bounded, so that this takes time linear in the text.
 */
const CREDENTIALS: readonly RegExp[] = [
  /\b(?:sk|rk|pk|gsk|xai|nvapi|pplx|hf|r8|gateway_(?:sk|mgmt|op))[-_][\w*-]{16,256}/g,
  /\b(?:AIza|AKIA|ASIA)[\w*-]{12,256}/g,
  /\b(?:Bearer|Basic)\s{1,8}[\w.~+/=*-]{12,4096}/gi,
];

function withoutCredentials(text: string): string {
  return CREDENTIALS.reduce((safe, form) => safe.replace(form, "[redacted]"), text);
}
