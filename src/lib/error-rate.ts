/** Requests of an organization between two samples. */
export interface RequestCounts {
  readonly requests: number;
  /** Requests that ended with a status of 400 or above. */
  readonly errors: number;
}

/** Share of failed requests from which the rate is high. */
const HIGH_SHARE = 0.2;
/** Share below which it is low again. In between it stays as it was, so that it does not flap. */
const LOW_SHARE = 0.1;
/** Least number of requests that are judged, because a few failures are a high share of fewer. */
const MIN_REQUESTS = 20;

/** Returns whether the error rate is high now. With too few requests it stays as it was. */
export function isErrorRateHigh({ requests, errors }: RequestCounts, wasHigh: boolean): boolean {
  if (requests < MIN_REQUESTS) return wasHigh;
  const share = errors / requests;
  return wasHigh ? share >= LOW_SHARE : share >= HIGH_SHARE;
}
