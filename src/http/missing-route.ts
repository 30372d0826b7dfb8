import { editDistance } from "../lib/nearest-names.ts";

/** The segments of a path. In a registered path, a parameter begins with a colon. */
type Segments = readonly string[];

const MAX_SHOWN_CHARACTERS = 100;
const MAX_SEGMENTS = 8;
/** Longer segments are not treated as typing mistakes. */
const MAX_SEGMENT_CHARACTERS = 40;
/** The maximum number of letters that differ between a path and its suggestion. */
const MAX_DISTANCE = 3;

/** Paths that the gateway does not have, with their replacements. */
const INSTEAD: Readonly<Record<string, string>> = {
  "/v1/completions": "/v1/chat/completions",
  "/v1/engines": "/v1/models",
  "/v1/chat": "/v1/chat/completions",
  "/v1": "/v1/models",
  "/health": "/healthz",
  "/ready": "/readyz",
  "/swagger": "/docs/api-reference",
  "/redoc": "/docs/api-reference",
};

/** Finds the path that the caller of an unknown path most likely meant. */
export class MissingRoutes {
  readonly #paths: ReadonlyMap<string, Segments>;

  constructor(paths: Iterable<string>) {
    this.#paths = new Map([...paths].map((path) => [path, segmentsOf(path)]));
  }

  /** Returns the error message for an unknown path. */
  message(method: string, pathname: string): string {
    const shown = JSON.stringify(`${method} ${pathname}`.slice(0, MAX_SHOWN_CHARACTERS));
    const meant = this.#meant(pathname);
    const hint =
      meant === undefined
        ? "All endpoints are described at /docs."
        : `Did you mean ${meant}?${baseUrlHint(pathname, meant)}`;
    return `There is no endpoint ${shown}. ${hint}`;
  }

  #meant(pathname: string): string | undefined {
    const wanted = segmentsOf(pathname);
    if (wanted.length > MAX_SEGMENTS) return undefined;
    const path = `/${wanted.join("/")}`;
    const instead = Object.hasOwn(INSTEAD, path) ? INSTEAD[path] : undefined;
    if (instead !== undefined) return this.#paths.has(instead) ? instead : undefined;
    const withoutVersions = wanted.filter((segment, at) => at > 2 || !isPrefix(segment));
    return this.#nearest(wanted) ?? this.#nearest(["v1", ...withoutVersions]);
  }

  #nearest(wanted: Segments): string | undefined {
    let nearest: string | undefined;
    let least = MAX_DISTANCE + 1;
    for (const [path, segments] of this.#paths) {
      const distance = distanceOf(wanted, segments);
      if (distance >= least) continue;
      nearest = path;
      least = distance;
    }
    return nearest;
  }
}

/**
 * Returns true for a segment that clients add by mistake: `/v1/v1/models`, `/api/v1/models`,
 * `/openai/v1/models`.
 */
function isPrefix(segment: string): boolean {
  return /^(?:v\d+|api|openai)$/i.test(segment);
}

function baseUrlHint(pathname: string, meant: string): string {
  if (!meant.startsWith("/v1/") || /^\/v1(?:$|\/(?!v1))/.test(pathname)) return "";
  return " The base URL of clients ends in /v1, once.";
}

function segmentsOf(path: string): Segments {
  return path
    .slice(0, 1_000)
    .split("/")
    .filter((segment) => segment !== "");
}

function distanceOf(wanted: Segments, segments: Segments): number {
  if (wanted.length !== segments.length) return Number.POSITIVE_INFINITY;
  let distance = 0;
  for (let at = 0; at < segments.length && distance <= MAX_DISTANCE; at++) {
    if (!segments[at]!.startsWith(":")) distance += lettersBetween(wanted[at]!, segments[at]!);
  }
  // A path that has only parameters would match everything.
  return segments.every((segment) => segment.startsWith(":")) ? Number.POSITIVE_INFINITY : distance;
}

/**
 * Returns the number of letters that differ. Returns infinity if the words are too long, too short or too
 * different.
 */
function lettersBetween(left: string, right: string): number {
  if (left === right) return 0;
  if (left.length > MAX_SEGMENT_CHARACTERS) return Number.POSITIVE_INFINITY;
  // Very short words are all near to each other.
  if (Math.min(left.length, right.length) < MAX_DISTANCE) return Number.POSITIVE_INFINITY;
  return editDistance(left, right, MAX_DISTANCE);
}
