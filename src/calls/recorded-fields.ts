import { GatewayError } from "../lib/errors.ts";
import type { CommonFields } from "./endpoint.ts";

/**
 * Of each object that is kept with a charge, in UTF-8 bytes of JSON. They go through the one connection
 * that all charges go through, and stay: a body's worth of them would delay every charge.
 */
export const MAX_RECORDED_BYTES = 16_384;

const RECORDED_OBJECTS = ["metadata", "trace"] as const;

/** Throws 400 where more is to be kept with the charge than is kept. */
export function assertRecordable(request: CommonFields): void {
  for (const field of RECORDED_OBJECTS) {
    const value = request[field];
    if (value === undefined || value === null) continue;
    if (Buffer.byteLength(JSON.stringify(value)) <= MAX_RECORDED_BYTES) continue;
    throw new GatewayError(
      "invalid_body",
      `Request body field "${field}": must not take more than ${MAX_RECORDED_BYTES} bytes of JSON.`,
      { param: field },
    );
  }
}

const RECORDED_FIELDS = ["user", "session_id", "trace", "metadata"] as const;

/** What is kept of the request for its owner: no prompt. */
export function recordedDetails(fields: CommonFields): Record<string, unknown> | null {
  let details: Record<string, unknown> | null = null;
  for (const field of RECORDED_FIELDS) {
    const value = fields[field];
    if (value === undefined || value === null) continue;
    details ??= {};
    details[field] = value;
  }
  return details;
}
