import { GatewayError } from "../../lib/errors.ts";
import { ProviderFailure } from "../interface.ts";
import type { AbortNotice } from "./call-abort.ts";
import { HttpError } from "./http-error.ts";

/** Returns the failure for an invalid answer with a success status. */
export function brokenAnswer(what: string): ProviderFailure {
  return new ProviderFailure("unavailable", `the provider answered with ${what}`);
}

type Form = "whole" | "stream";

/** Returns a whole answer. Throws ProviderFailure if it is streamed. */
export function wholeOf<Answer extends { readonly kind: Form }>(
  answer: Answer,
): Extract<Answer, { readonly kind: "whole" }> {
  if (answer.kind === "whole") return answer as never;
  throw brokenAnswer("a stream although none was requested");
}

/** Returns a streamed answer. Throws ProviderFailure if it is whole. */
export function streamOf<Answer extends { readonly kind: Form }>(
  answer: Answer,
): Extract<Answer, { readonly kind: "stream" }> {
  if (answer.kind === "stream") return answer as never;
  throw brokenAnswer("no stream although one was requested");
}

/**
 * Returns an error thrown during a call as a failure. If the signal has aborted, the failure is `aborted`. A
 * GatewayError is returned unchanged: an overloaded gateway says nothing about the provider.
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
  // Certificate and proxy codes need their reason as well. None of it is text from the server.
  const what = isLasting ? message : code;
  return new ProviderFailure("unavailable", `the connection to the provider failed: ${what}`, {
    cause: error,
    lostUsedConnection,
    isLasting,
  });
}
