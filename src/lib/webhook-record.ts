/** A webhook as it stands in its table, without its secrets; times in milliseconds since the epoch. */
export interface WebhookRecord {
  readonly id: string;
  readonly organizationId: string;
  readonly url: string;
  /** Event types; `*` stands for all. */
  readonly events: readonly string[];
  readonly description: string | null;
  readonly enabled: boolean;
  readonly createdAtMs: number;
  /** Null while it is enabled. */
  readonly disabledAtMs: number | null;
  /** By a request of its organization, or by six failed attempts. */
  readonly disabledBy: "request" | "failures" | null;
}

/** What its organization may set and change. */
export interface WebhookSettings {
  readonly url: string;
  readonly events: readonly string[];
  readonly description: string | null;
  readonly enabled: boolean;
}

export type DeliveryStatus = "pending" | "delivered" | "failed" | "dropped";

/** One attempt as it is kept and listed. */
export interface AttemptRecord {
  /** ISO 8601. */
  readonly at: string;
  /** Null where no answer came. */
  readonly status_code: number | null;
  /** Null where the answer was 2xx. */
  readonly error: string | null;
  readonly latency_ms: number;
}
