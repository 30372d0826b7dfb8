import { createHash } from "node:crypto";
import { GatewayError } from "../../../lib/errors.ts";

/** The cache options of a request. */
export interface CacheOrder {
  /** The time that the answer is stored. */
  readonly lifetimeMs: number;
  /** True if equal requests that run at the same time wait for one of them. */
  readonly isSingleFlight: boolean;
}

const CACHE = "x-gateway-cache";
const LIFETIME = "x-gateway-cache-ttl";
const SINGLE_FLIGHT = "x-gateway-cache-single-flight";
const ON = "on";
const DEFAULT_LIFETIME_SECONDS = 3_600;
const MAX_LIFETIME_SECONDS = 86_400;
const WHOLE_NUMBER = /^[0-9]{1,5}$/;

/**
 * Returns the cache options of a request, or undefined if it does not use the cache. Throws 400 if a cache
 * header is invalid.
 */
export function cacheOrderOf(headers: Headers): CacheOrder | undefined {
  if (!isOn(headers, CACHE)) return undefined;
  return {
    lifetimeMs: lifetimeSeconds(headers.get(LIFETIME)) * 1_000,
    isSingleFlight: isOn(headers, SINGLE_FLIGHT),
  };
}

function isOn(headers: Headers, name: string): boolean {
  const value = headers.get(name);
  if (value === null) return false;
  if (value === ON) return true;
  throw new GatewayError("invalid_header", `The header ${name} can only be "${ON}".`, {
    param: name,
  });
}

function lifetimeSeconds(value: string | null): number {
  if (value === null) return DEFAULT_LIFETIME_SECONDS;
  const seconds = WHOLE_NUMBER.test(value) ? Number(value) : 0;
  if (seconds >= 1 && seconds <= MAX_LIFETIME_SECONDS) return seconds;
  throw new GatewayError(
    "invalid_header",
    `The header ${LIFETIME} must be a whole number of seconds from 1 to ${MAX_LIFETIME_SECONDS}.`,
    { param: LIFETIME },
  );
}

/** The parts that identify a request in the cache of its organization. */
interface KeyParts {
  readonly organizationId: string;
  readonly route: string;
  /** The resolved models, in the request's order. */
  readonly models: readonly string[];
  /** All other parts that affect the answer, as JSON. */
  readonly identity: Readonly<Record<string, unknown>>;
}

/**
 * Returns a SHA-256 hash in hex. Requests that differ only in the order of members, or in members that are
 * null, have the same hash.
 */
export function answerKey({ organizationId, route, models, identity }: KeyParts): string {
  const hash = createHash("sha256");
  hash.update(JSON.stringify([organizationId, route, models]));
  hash.update(canonicalJson(withoutNulls(identity)));
  return hash.digest("hex");
}

function withoutNulls(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== null && value !== undefined),
  );
}

/** Returns JSON with the members of each object sorted by name. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    typeof member === "object" && member !== null && !Array.isArray(member)
      ? sorted(member as Record<string, unknown>)
      : member,
  );
}

/**
 * Returns the members as pairs, because an object would move numeric names to the front and drop `__proto__`.
 */
function sorted(members: Record<string, unknown>): unknown {
  const names = Object.keys(members).sort();
  return { members: names.map((name) => [name, members[name]]) };
}
