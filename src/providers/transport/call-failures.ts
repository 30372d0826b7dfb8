import { GatewayError } from "../../lib/errors.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";
import { HttpError } from "./http-error.ts";

/** An answer with a status of success that is none. */
export function brokenAnswer(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider answered with ${what}`);
}

/** An answer of the form that was not asked for. */
export function streamedUnasked(): ProviderFailure {
  return brokenAnswer("a stream where none was asked for");
}

export function notStreamed(): ProviderFailure {
  return brokenAnswer("no stream where one was asked for");
}

/**
 * What was thrown during a call, as the failure that it is: an abort comes before everything else. A
 * GatewayError stays: that the gateway has too much to do says nothing about the provider.
 */
export function failureOfThrown(
  error: unknown,
  signal: AbortNotice,
): ProviderFailure | GatewayError {
  if (signal.aborted) {
    return new ProviderFailure("aborted", "the call was aborted", { cause: signal.reason });
  }
  if (error instanceof ProviderFailure || error instanceof GatewayError) return error;
  if (!(error instanceof HttpError)) {
    const { code, name } = error as { code?: unknown; name?: unknown };
    const what = typeof code === "string" ? code : String(name);
    return new ProviderFailure("unavailable", `the call failed: ${what}`, { cause: error });
  }
  const { code, message, lostUsedConnection, isLasting } = error;
  // The codes of certificates and proxies need their reason beside them; none of it is the server's text.
  const what = isLasting ? message : code;
  return new ProviderFailure("unavailable", `the connection to the provider failed: ${what}`, {
    cause: error,
    lostUsedConnection,
    isLasting,
  });
}
