import { asUnavailable } from "../../../db/unavailable.ts";
import { asCallerError } from "../../calls/routing/provider-error.ts";
import { GatewayError } from "../../lib/errors.ts";
import { ProviderFailure } from "../../providers/interface.ts";

export function requestTooLong(): GatewayError {
  return new GatewayError("provider_timeout", "The request took too long.");
}

export function providerSilent(): GatewayError {
  return new GatewayError("provider_timeout", "The provider fell silent.");
}

export function beyondLimit(): GatewayError {
  return new GatewayError("provider_error", "The provider went on beyond its limit of tokens.");
}

export function endedWithoutReason(): GatewayError {
  return new GatewayError("provider_error", "The provider's stream ended without a finish reason.");
}

/**
 * The error that a started stream sends for what was thrown. What the provider reported is sent as it would
 * have been before the first byte.
 */
export function asStreamError(thrown: unknown, trail: readonly string[]): GatewayError {
  if (thrown instanceof GatewayError) return thrown;
  if (thrown instanceof ProviderFailure) {
    const isReported = thrown.status !== undefined || thrown.kind !== "unavailable";
    if (isReported) return asCallerError(thrown, trail);
    return new GatewayError("provider_error", "The provider's stream broke.", { cause: thrown });
  }
  const unavailable = asUnavailable(thrown);
  if (unavailable !== undefined) return unavailable;
  return new GatewayError("internal", "Something went wrong inside the gateway.", {
    cause: thrown,
  });
}
