import type { Clock } from "../../lib/clock.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import { ProviderFailure, type ProviderFailureKind } from "../interface.ts";
import { readErrorBody, readWhole } from "../transport/bounded-body.ts";
import { HttpError } from "../transport/http-error.ts";
import { type HttpClient, type ProviderResponse, sent } from "../transport/provider-response.ts";
import { kindOfStatus } from "../transport/status-failure.ts";
import type { IssuedToken } from "./access-tokens.ts";

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;
/** Of an answer that states none: the shortest that issuers are known to give. */
const DEFAULT_LIFETIME_SECONDS = 300;
const MAX_LIFETIME_SECONDS = 86_400;
const UNAUTHORIZED = 401;
/** Names of OAuth's errors (RFC 6749, section 5.2), which tell nothing of the credentials. */
const ERROR_NAME = /^[a-z][a-z_]{0,39}$/;
/** Said with status 400 while the issuer itself is at fault. */
const PASSING: ReadonlySet<unknown> = new Set(["temporarily_unavailable", "server_error"]);

export interface TokenRequest {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Absent: it is asked for with GET. */
  readonly form?: Readonly<Record<string, string>>;
  readonly connectTimeoutMs: number;
}

interface TokenDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/**
 * Asks an OAuth token endpoint (RFC 6749, section 5), or one that answers in its form. Rejects with
 * ProviderFailure, which tells nothing of what was sent: `misconfigured` with status 401 where the credentials
 * are refused.
 */
export async function requestToken(
  { clock, httpClient }: TokenDependencies,
  { url, headers = {}, form, connectTimeoutMs }: TokenRequest,
): Promise<IssuedToken> {
  try {
    const response = await sent(httpClient, url, {
      method: form === undefined ? "GET" : "POST",
      headers: {
        ...headers,
        accept: "application/json",
        "accept-encoding": "identity",
        ...(form !== undefined && { "content-type": "application/x-www-form-urlencoded" }),
      },
      body: form === undefined ? "" : new URLSearchParams(form).toString(),
      signal: AbortSignal.timeout(TIMEOUT_MS),
      connectTimeoutMs,
      // It is asked so rarely that a connection of the last time has been closed.
      onNewConnection: true,
    });
    if (response.status !== 200) throw await refusal(response, clock);
    return issuedToken(await readWhole(response, MAX_ANSWER_BYTES));
  } catch (error) {
    throw failureOf(error);
  }
}

async function refusal(response: ProviderResponse, clock: Clock): Promise<ProviderFailure> {
  const { status, headers } = response;
  const said = parsed(await readErrorBody(response, clock)).error;
  const isNamed = typeof said === "string" && ERROR_NAME.test(said);
  const what = `with status ${status}${isNamed ? ` (${said})` : ""}`;
  const waitMs = retryAfterMs(headers, clock.nowMs());
  const details = waitMs === undefined ? {} : { retryAfterMs: waitMs };
  let kind: ProviderFailureKind = kindOfStatus(status);
  if (kind === "rejected") kind = PASSING.has(said) ? "unavailable" : "misconfigured";
  return kind === "misconfigured"
    ? new ProviderFailure(kind, `the token endpoint refused the credentials ${what}`, {
        status: UNAUTHORIZED,
      })
    : new ProviderFailure(kind, `the token endpoint answered ${what}`, details);
}

function issuedToken(text: string | undefined): IssuedToken {
  const { access_token: token, expires_in: stated } = parsed(text ?? "");
  if (typeof token !== "string" || !/^[\x21-\x7e]{1,8192}$/.test(token)) {
    throw new ProviderFailure("unavailable", "the token endpoint answered without a token");
  }
  // Some issuers write the number as a text.
  const seconds = Number(stated ?? DEFAULT_LIFETIME_SECONDS);
  const isLifetime = Number.isFinite(seconds) && seconds > 0;
  const lifetime = isLifetime ? Math.min(seconds, MAX_LIFETIME_SECONDS) : DEFAULT_LIFETIME_SECONDS;
  return { token, lifetimeMs: lifetime * 1_000 };
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  const value = jsonValue(text);
  return isFields(value) ? value : {};
}

/** Without its cause, which may hold what was sent. */
function failureOf(error: unknown): ProviderFailure {
  if (error instanceof ProviderFailure) return error;
  if ((error as { name?: unknown }).name === "TimeoutError") {
    return new ProviderFailure("unavailable", "the token endpoint did not answer in time");
  }
  const reason = error instanceof HttpError ? `: ${error.code}` : "";
  return new ProviderFailure("unavailable", `the token endpoint could not be reached${reason}`);
}
