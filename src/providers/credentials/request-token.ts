import type { Clock } from "../../lib/clock.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { retryAfterMs } from "../../lib/retry-after.ts";
import { ProviderFailure, type ProviderFailureKind } from "../interface.ts";
import { readErrorBody, readWhole } from "../transport/bounded-body.ts";
import { HttpError } from "../transport/http-error.ts";
import {
  type HttpClient,
  type ProviderResponse,
  sendRequest,
} from "../transport/provider-response.ts";
import { kindOfStatus } from "../transport/status-failure.ts";
import type { IssuedToken } from "./access-tokens.ts";

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;
/** Lifetime if the response states none: the shortest that issuers are known to use. */
const DEFAULT_LIFETIME_SECONDS = 300;
const MAX_LIFETIME_SECONDS = 86_400;
const UNAUTHORIZED = 401;
/** Names of OAuth errors (RFC 6749, section 5.2), which reveal nothing about the credentials. */
const ERROR_NAME = /^[a-z][a-z_]{0,39}$/;
/** Errors that are sent with status 400 although the issuer is at fault. */
const RETRYABLE_ERRORS: ReadonlySet<unknown> = new Set(["temporarily_unavailable", "server_error"]);

export interface TokenRequest {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Absent: the request is a GET. */
  readonly form?: Readonly<Record<string, string>>;
  readonly connectTimeoutMs: number;
}

interface TokenDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/**
 * Requests a token from an OAuth token endpoint (RFC 6749, section 5), or from one with the same response. Rejects with
 * ProviderFailure, which reveals nothing of the request. If the credentials are rejected, its kind is `misconfigured`
 * and its status 401.
 */
export async function requestToken(
  { clock, httpClient }: TokenDependencies,
  { url, headers = {}, form, connectTimeoutMs }: TokenRequest,
): Promise<IssuedToken> {
  try {
    const response = await sendRequest(httpClient, url, {
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
      // Requests are so rare that the server has closed the last connection.
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
  const errorName = parsed(await readErrorBody(response, clock)).error;
  const isNamed = typeof errorName === "string" && ERROR_NAME.test(errorName);
  const what = `with status ${status}${isNamed ? ` (${errorName})` : ""}`;
  const waitMs = retryAfterMs(headers, clock.nowMs());
  const details = waitMs === undefined ? {} : { retryAfterMs: waitMs };
  let kind: ProviderFailureKind = kindOfStatus(status);
  if (kind === "rejected") kind = RETRYABLE_ERRORS.has(errorName) ? "unavailable" : "misconfigured";
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
  // Some issuers send the number as a string.
  const seconds = Number(stated ?? DEFAULT_LIFETIME_SECONDS);
  const isLifetime = Number.isFinite(seconds) && seconds > 0;
  const lifetime = isLifetime ? Math.min(seconds, MAX_LIFETIME_SECONDS) : DEFAULT_LIFETIME_SECONDS;
  return { token, lifetimeMs: lifetime * 1_000 };
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  const value = jsonValue(text);
  return isFields(value) ? value : {};
}

/** Returns the failure of a token request without its cause, which can contain the credentials. */
function failureOf(error: unknown): ProviderFailure {
  if (error instanceof ProviderFailure) return error;
  if ((error as { name?: unknown }).name === "TimeoutError") {
    return new ProviderFailure("unavailable", "the token endpoint did not answer in time");
  }
  const reason = error instanceof HttpError ? `: ${error.code}` : "";
  return new ProviderFailure("unavailable", `the token endpoint could not be reached${reason}`);
}
