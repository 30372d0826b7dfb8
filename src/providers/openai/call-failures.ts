import type { AbortNotice } from "../call-abort.ts";
import { ProviderFailure } from "../interface.ts";
import { HttpError } from "../transport/http-error.ts";

export function connectTimeout(): ProviderFailure {
  return new ProviderFailure("timeout", "the connection did not stand within the connect timeout");
}

/** An answer with a status of success that is none. */
export function brokenAnswer(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider answered with ${what}`);
}

/** What was thrown during a call, as the failure that it is: an abort comes before everything else. */
export function failureOfThrown(
  error: unknown,
  signal: AbortNotice,
  lostUsedConnection = error instanceof HttpError && error.lostUsedConnection,
): ProviderFailure {
  if (signal.aborted) {
    return new ProviderFailure("aborted", "the call was aborted", { cause: signal.reason });
  }
  if (error instanceof ProviderFailure) return error;
  const { code, name } = error as { code?: unknown; name?: unknown };
  const what = typeof code === "string" ? code : String(name);
  return new ProviderFailure("unavailable", `the connection to the provider failed: ${what}`, {
    cause: error,
    lostUsedConnection,
  });
}
