/* The answers of the routes below /dashboard/api/operation. */

export interface Sums {
  readonly requests: number;
  readonly errors: number;
  readonly cost_usd: number;
  readonly fee_usd: number;
  readonly provider_cost_usd: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
}

export interface NamedSums extends Sums {
  /** Null for requests without a model or a provider. */
  readonly id: string | null;
  /** Cost of the period before. */
  readonly before_usd: number;
}

export interface OrganizationSums extends NamedSums {
  readonly id: string;
  readonly name: string;
}

export interface GatewayFigures {
  readonly is_complete: boolean;
  readonly total: Sums;
  readonly before: Sums;
  readonly organizations: readonly OrganizationSums[];
  readonly movers: readonly OrganizationSums[];
  readonly providers: readonly NamedSums[];
  readonly models: readonly NamedSums[];
}

export interface Failure {
  /** Such as "rate_limited". */
  readonly failure_kind: string | null;
  /** Status of the provider's answer. Null if it sent none. */
  readonly failure_status: number | null;
}

export interface CircuitPeriod extends Failure {
  readonly provider: string;
  readonly endpoint: string;
  readonly instance_id: string;
  readonly opened_at: string;
  readonly last_open_at: string;
  readonly openings: number;
  readonly is_open: boolean;
}

export interface KeyFailure extends Failure {
  readonly provider: string;
  /** Position of the key, from 1. */
  readonly key: number;
  readonly endpoint: string;
  readonly failed_at: string;
}

export interface WaitingPayment {
  readonly kind: "topup" | "replenishment" | "refund" | "dispute";
  readonly state: string;
  readonly organization_id: string;
  readonly organization_name: string;
  readonly amount_usd: number;
  readonly since: string | null;
}

export interface Instance {
  readonly id: string;
  /** Null: an earlier version, which does not state it. */
  readonly version: string | null;
  readonly started_at: string;
  readonly draining_since: string | null;
}

export interface GatewayState {
  readonly payments: readonly WaitingPayment[];
  readonly instances: readonly Instance[];
  readonly unhealthy: readonly { readonly provider: string; readonly since: string }[];
  readonly circuits: readonly CircuitPeriod[];
  readonly key_failures: readonly KeyFailure[];
}

/** Formats a failure such as "Rate limited, status 429". */
export function failureText({ failure_kind: kind, failure_status: status }: Failure): string {
  const text = kind === null ? "Unknown failure" : (FAILURES[kind] ?? kind);
  return status === null ? text : `${text}, status ${status}`;
}

const FAILURES: Readonly<Record<string, string>> = {
  rate_limited: "Rate limited",
  unavailable: "Unavailable",
  timeout: "Timed out",
  misconfigured: "Key or model rejected",
};
