import { createHash } from "node:crypto";
import { GatewayError } from "../../../lib/errors.ts";

/** What a request asks of the response cache. */
export interface CacheOrder {
  /** How long its answer is kept. */
  readonly lifetimeMs: number;
  /** Equal requests that run at once wait for one of them. */
  readonly isSingleFlight: boolean;
}

const CACHE = "x-gateway-cache";
const LIFETIME = "x-gateway-cache-ttl";
const SINGLE_FLIGHT = "x-gateway-cache-single-flight";
const ON = "on";
const DEFAULT_LIFETIME_SECONDS = 3_600;
const MAX_LIFETIME_SECONDS = 86_400;
const WHOLE_NUMBER = /^[0-9]{1,5}$/;

/** Undefined where the request does not ask for the cache. Throws 400. */
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

/** What names a request in the cache of its organization. */
interface AskedAnswer {
  readonly organizationId: string;
  readonly route: string;
  /** The resolved models, in their order. */
  readonly models: readonly string[];
  /** What else decides about its answer: JSON. */
  readonly identity: Readonly<Record<string, unknown>>;
}

/** SHA-256 in hex: equal where nothing differs but the order of members, and members that are null. */
export function answerKey({ organizationId, route, models, identity }: AskedAnswer): string {
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

/** JSON with the members of each object in the order of their names. */
function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, member: unknown) =>
    typeof member === "object" && member !== null && !Array.isArray(member)
      ? sorted(member as Record<string, unknown>)
      : member,
  );
}

/** Pairs, since an object would put names that are numbers first, and `__proto__` nowhere. */
function sorted(members: Record<string, unknown>): unknown {
  const names = Object.keys(members).sort();
  return { members: names.map((name) => [name, members[name]]) };
}
