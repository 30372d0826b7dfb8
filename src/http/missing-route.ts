/** The parts of a path that is mounted; a parameter begins with a colon. */
type Segments = readonly string[];

const MAX_SHOWN_CHARACTERS = 100;
const MAX_SEGMENTS = 8;
/** Longer ones are nothing that was mistyped. */
const MAX_SEGMENT_CHARACTERS = 40;
/** Letters that may differ between a path and the one that is meant. */
const MAX_DISTANCE = 3;

/** Endpoints of OpenAI's API that are not here, and what serves instead. */
const INSTEAD: Readonly<Record<string, string>> = {
  "/v1/completions": "/v1/chat/completions",
  "/v1/engines": "/v1/models",
  "/v1/chat": "/v1/chat/completions",
  "/v1": "/v1/models",
  "/health": "/healthz",
  "/ready": "/readyz",
  "/swagger": "/docs",
  "/redoc": "/docs",
};

/** Finds the path that the caller of an unknown one most likely meant. */
export class MissingRoutes {
  readonly #paths: ReadonlyMap<string, Segments>;

  constructor(paths: Iterable<string>) {
    this.#paths = new Map([...paths].map((path) => [path, segmentsOf(path)]));
  }

  /** What is said of a path that is mounted nowhere. */
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

/** What clients put before, or leave out: `/v1/v1/models`, `/api/v1/models`, `/openai/v1/models`, `/models`. */
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
  // A path of parameters alone is near to everything.
  return segments.every((segment) => segment.startsWith(":")) ? Number.POSITIVE_INFINITY : distance;
}

/** Levenshtein's distance. */
function lettersBetween(one: string, other: string): number {
  if (one === other) return 0;
  const isFar = Math.abs(one.length - other.length) > MAX_DISTANCE;
  if (isFar || one.length > MAX_SEGMENT_CHARACTERS) return Number.POSITIVE_INFINITY;
  // Of two short words any may become the other.
  if (Math.min(one.length, other.length) < MAX_DISTANCE) return Number.POSITIVE_INFINITY;
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const replaced = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
