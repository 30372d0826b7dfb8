/** A row of the table of webhooks, without secrets. Times are in milliseconds since the epoch. */
export interface WebhookRecord {
  readonly id: string;
  readonly organizationId: string;
  readonly url: string;
  /** Event types. `*` means all types. */
  readonly events: readonly string[];
  readonly description: string | null;
  readonly enabled: boolean;
  readonly createdAtMs: number;
  /** Null if the webhook is enabled. */
  readonly disabledAtMs: number | null;
  /** A request of the organization, or six failed attempts, disabled the webhook. Null if it is enabled. */
  readonly disabledBy: "request" | "failures" | null;
}

/** The fields that the organization can set and change. */
export interface WebhookSettings {
  readonly url: string;
  readonly events: readonly string[];
  readonly description: string | null;
  readonly enabled: boolean;
}

export type DeliveryStatus = "pending" | "delivered" | "failed" | "dropped";

/** One delivery attempt, as stored and listed. */
export interface AttemptRecord {
  /** Start of the attempt in ISO 8601. */
  readonly at: string;
  /** HTTP status of the response. Null if there was no response. */
  readonly status_code: number | null;
  /** Null if the status was 2xx. */
  readonly error: string | null;
  readonly latency_ms: number;
}
