import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure, type ProviderFailureKind } from "../interface.ts";

export const MAX_FAILURE_MESSAGE_CHARACTERS = 2_000;
/**
 * Shortest key that is redacted. Local servers have keys such as "a" or "test", which are not secrets; redacting them
 * would remove words from a message.
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

/** Returns the kind of a failure by its status alone. */
export function kindOfStatus(status: number): ProviderFailureKind {
  if (status < 400 || status >= 500) return "unavailable";
  return STATUS_KINDS[status] ?? "misconfigured";
}

/** Returns the first text that is not empty. Returns undefined if there is none. */
export function firstText(values: readonly unknown[]): string | undefined {
  return values.find((value): value is string => typeof value === "string" && value !== "");
}

/** The time, and the secrets that must not appear in a failure. */
export interface FailureContext {
  readonly nowMs: number;
  readonly apiKey: string | undefined;
  /** Parts of the key that are secrets too. */
  readonly secrets?: readonly string[];
}

/** The provider's description of a failure. */
interface FailureReport {
  readonly kind: ProviderFailureKind;
  readonly message: string | undefined;
  readonly param?: string | null;
  readonly retryAfterMs?: number | undefined;
  readonly isTooLong?: boolean;
  readonly details?: unknown;
}

/** Returns the failure for a response with this status. Credentials are redacted. */
export function statusFailure(
  status: number,
  { kind, message, param = null, retryAfterMs, isTooLong, details }: FailureReport,
  context: FailureContext,
): ProviderFailure {
  const text = message ?? `the provider answered with status ${status}`;
  return new ProviderFailure(kind, publishable(text, context), {
    status,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    param: param === null ? null : publishable(param, context),
    ...(isTooLong !== undefined && { isTooLong }),
    details: publishableDetails(details, context),
  });
}

/**
 * Returns the details of a failure without credentials. Undefined if they are not an object or exceed the length of a
 * message.
 */
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

/** Returns a text without credentials, cut to the length of a message. A provider can quote the key in its answer. */
function publishable(text: string, { apiKey = "", secrets = [] }: FailureContext): string {
  let safe = text;
  for (const secret of [apiKey, ...secrets]) {
    if (secret.length >= MIN_SECRET_CHARACTERS) safe = safe.replaceAll(secret, "[redacted]");
  }
  return withoutCredentials(safe.slice(0, MAX_FAILURE_MESSAGE_CHARACTERS)).toWellFormed();
}

/**
 * Formats of credentials that providers issue. A provider that calls others in turn could quote a key that the gateway
 * does not know. Repetitions are bounded, so that matching takes time linear in the text.
 */
const CREDENTIALS: readonly RegExp[] = [
  /\b(?:sk|rk|pk|gsk|xai|nvapi|pplx|hf|r8|gateway_(?:sk|mgmt|op))[-_][\w*-]{16,256}/g,
  /\b(?:AIza|AKIA|ASIA)[\w*-]{12,256}/g,
  /\b(?:Bearer|Basic)\s{1,8}[\w.~+/=*-]{12,4096}/gi,
];

function withoutCredentials(text: string): string {
  return CREDENTIALS.reduce((safe, form) => safe.replace(form, "[redacted]"), text);
}
