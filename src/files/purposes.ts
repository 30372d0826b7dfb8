import { type FilePurpose, UPLOAD_PURPOSES, type UploadPurpose } from "../lib/file-record.ts";

const MEGABYTE = 1024 * 1024;
const GIGABYTE = 1024 * MEGABYTE;

/** Largest file of any purpose (spec 8). */
export const MAX_FILE_BYTES = 512 * MEGABYTE;
const MAX_VISION_BYTES = 20 * MEGABYTE;
const VISION_LIFETIME_SECONDS = 24 * 60 * 60;

export function maxBytes(purpose: FilePurpose): number {
  return purpose === "vision" ? MAX_VISION_BYTES : MAX_FILE_BYTES;
}

/** Null: kept until it is deleted. */
export function lifetimeSeconds(purpose: FilePurpose): number | null {
  return purpose === "vision" ? VISION_LIFETIME_SECONDS : null;
}

export function isUploadPurpose(text: string): text is UploadPurpose {
  return (UPLOAD_PURPOSES as readonly string[]).includes(text);
}

/** What an organization may store (spec 8), by its plan; the plan of own provider keys has Free's, Enterprise has Pro's. */
const QUOTA_BYTES: Readonly<Record<string, number>> = {
  free: 100 * GIGABYTE,
  pro: 1024 * GIGABYTE,
  byok: 100 * GIGABYTE,
  enterprise: 1024 * GIGABYTE,
};

/** Of an organization: its own, or that of its plan. */
export function quotaOfTerms(terms: {
  readonly plan: string;
  readonly fileQuotaBytes: number | null;
}): number {
  return terms.fileQuotaBytes ?? planQuotaBytes(terms.plan);
}

export function planQuotaBytes(plan: string): number {
  const quota = QUOTA_BYTES[plan];
  if (quota === undefined) throw new Error(`unknown plan ${plan}`);
  return quota;
}
