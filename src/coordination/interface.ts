/** What instances ask of one another. Nothing whose loss would cost money, order or security. */
export interface RateDecision {
  readonly isAdmitted: boolean;
  readonly limit: number;
  /** Admissions left in the window that ends now. */
  readonly remaining: number;
  /** Milliseconds since the epoch at which the oldest admission leaves the window. */
  readonly resetMs: number;
  /** For a refusal: milliseconds until one more would be admitted. */
  readonly retryAfterMs: number;
}

export interface RateWindows {
  /** Takes one of `limit` admissions in any 60 s window, or refuses; never admits more. */
  take(key: string, limit: number): RateDecision | Promise<RateDecision>;
}
