import { asGatewayError, asUnavailable } from "../../../../db/unavailable.ts";
import { clientClosed, GatewayError } from "../../../lib/errors.ts";
import { ProviderFailure } from "../../../providers/interface.ts";

const DEFAULT_RETRY_AFTER_SECONDS = 1;

/** The private cause of a call that failed at all its candidates: the last failure, and the attempts. */
class FailedAttempts extends Error {
  override readonly name = "FailedAttempts";
  /** The log shows no stack, because the failure is the provider's. */
  readonly isExpected = true;

  constructor(failure: ProviderFailure, attemptLog: readonly string[]) {
    super(`${failure.logMessage} (tried ${attemptLog.join(", ")})`, { cause: failure });
  }
}

/** Converts a provider's failure to the caller's error. */
export function asCallerError(
  failure: ProviderFailure,
  attemptLog: readonly string[],
): GatewayError {
  const cause = new FailedAttempts(failure, attemptLog);
  const { details } = failure;
  switch (failure.kind) {
    case "rejected":
      return new GatewayError(
        failure.isTooLong ? "context_length_exceeded" : "provider_rejected",
        failure.message,
        { param: failure.param, cause, ...(details !== undefined && { fields: { details } }) },
      );
    case "content_policy":
      return new GatewayError("content_policy_violation", failure.message, {
        param: failure.param,
        cause,
      });
    case "rate_limited":
      return new GatewayError("rate_limit_exceeded", "The provider's rate limit is exceeded.", {
        retryAfterSeconds:
          failure.retryAfterMs === undefined
            ? DEFAULT_RETRY_AFTER_SECONDS
            : failure.retryAfterMs / 1_000,
        cause,
      });
    case "timeout":
      return new GatewayError("provider_timeout", "The provider did not respond in time.", {
        cause,
      });
    case "aborted":
      return clientClosed(cause);
    case "misconfigured":
      return new GatewayError("provider_error", "The provider rejected the gateway's call.", {
        cause,
      });
    case "unavailable":
      return new GatewayError("provider_error", "The provider failed to answer.", { cause });
  }
}

/**
 * Returns the error event for a stream that has begun. A failure that the provider reported gets the same
 * error as before the first byte.
 */
export function asStreamError(thrown: unknown, attemptLog: readonly string[]): GatewayError {
  if (!(thrown instanceof ProviderFailure)) return asGatewayError(thrown);
  const isReported = thrown.status !== undefined || thrown.kind !== "unavailable";
  if (isReported) return asCallerError(thrown, attemptLog);
  return new GatewayError("provider_error", "The provider's stream broke.", { cause: thrown });
}

/** Returns true if a failure counts against the endpoint. */
export function isOfProvider(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return asUnavailable(thrown) === undefined;
  return thrown.code === "provider_error" || thrown.code === "provider_timeout";
}
