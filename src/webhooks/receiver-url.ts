import type { Clock } from "../lib/clock.ts";
import { finishesWithin } from "../lib/deadlines.ts";
import { GatewayError } from "../lib/errors.ts";
import { type EgressGuard, EgressRefused, HttpRefused } from "../platform/egress/guard.ts";

/** Longest check of a URL. A host name that resolves more slowly is checked at each attempt. */
const URL_CHECK_MS = 2_000;
const HTTP_HINT =
  " For development, the operator can allow http with GATEWAY_WEBHOOK_ALLOW_HTTP=true.";

/**
 * Throws 400 for a URL that is known to be forbidden. Accepts a host name without an address, because it may have an
 * address by the first message.
 */
export async function assertReceiverUrl(
  { guard, clock }: { readonly guard: EgressGuard; readonly clock: Clock },
  url: string,
): Promise<void> {
  try {
    await finishesWithin(guard.check(url), clock, URL_CHECK_MS);
  } catch (error) {
    if (!(error instanceof EgressRefused)) return;
    const hint = error instanceof HttpRefused ? HTTP_HINT : "";
    throw new GatewayError("invalid_body", `url ${error.message}.${hint}`, {
      param: "url",
      cause: error,
    });
  }
}
