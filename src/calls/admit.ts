import type { RateDecision, RateWindows } from "../cluster/interface.ts";
import { GatewayError } from "../lib/errors.ts";
import type { Caller } from "./caller.ts";

export type RateHeaders = Readonly<Record<string, string>>;

const NO_HEADERS: RateHeaders = {};

/** Takes one admission of the key's rate limit. Throws 429; returns the headers of spec 4.5. */
export function takeRate(rates: RateWindows, { key }: Caller): RateHeaders | Promise<RateHeaders> {
  if (key.rateLimitRpm === null) return NO_HEADERS;
  const taken = rates.take(key.id, key.rateLimitRpm);
  return taken instanceof Promise ? taken.then(judged) : judged(taken);
}

function judged(decision: RateDecision): RateHeaders {
  const headers = rateHeaders(decision);
  if (decision.isAdmitted) return headers;
  throw new GatewayError(
    "rate_limit_exceeded",
    `This API key is limited to ${decision.limit} requests a minute.`,
    // A millisecond of it is over before the client can ask again.
    { retryAfterSeconds: (decision.retryAfterMs - 1) / 1_000, headers },
  );
}

function rateHeaders(decision: RateDecision): RateHeaders {
  return {
    "x-ratelimit-limit": String(decision.limit),
    "x-ratelimit-remaining": String(decision.remaining),
    "x-ratelimit-reset": String(Math.ceil(decision.resetMs / 1_000)),
  };
}
