/** The keywords of one JSON Schema object. */
export type Keywords = Readonly<Record<string, unknown>>;

export function isKeywords(value: unknown): value is Keywords {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** The types a schema allows; undefined when it does not say. */
export function typesOf(keywords: Keywords): readonly unknown[] | undefined {
  if (typeof keywords.type === "string") return [keywords.type];
  return Array.isArray(keywords.type) ? keywords.type : undefined;
}

/** The lowest and highest number allowed, and whether the bound itself is excluded. */
export function numericRange(keywords: Keywords): {
  readonly low: number;
  readonly high: number;
  readonly excludesLow: boolean;
  readonly excludesHigh: boolean;
} {
  const minimum = numberOf(keywords.minimum) ?? Number.NEGATIVE_INFINITY;
  const maximum = numberOf(keywords.maximum) ?? Number.POSITIVE_INFINITY;
  const above = numberOf(keywords.exclusiveMinimum) ?? Number.NEGATIVE_INFINITY;
  const below = numberOf(keywords.exclusiveMaximum) ?? Number.POSITIVE_INFINITY;
  return {
    low: Math.max(minimum, above),
    high: Math.min(maximum, below),
    // In draft 4 the exclusive bounds are booleans beside the bound.
    excludesLow: keywords.exclusiveMinimum === true || (Number.isFinite(above) && above >= minimum),
    excludesHigh:
      keywords.exclusiveMaximum === true || (Number.isFinite(below) && below <= maximum),
  };
}

/** Whether two JSON values are the same; the order of keys counts for nothing. */
export function sameJson(left: unknown, right: unknown): boolean {
  return left === right || sortedJson(left) === sortedJson(right);
}

/** One text for all ways to write a value. Kept, as a value of a list is compared with many others. */
export function sortedJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const known = SORTED_JSON.get(value);
  if (known !== undefined) return known;
  const text = Array.isArray(value)
    ? `[${value.map(sortedJson).join()}]`
    : `{${Object.entries(value)
        .sort(([left], [right]) => (left < right ? -1 : 1))
        .map(([key, member]) => `${JSON.stringify(key)}:${sortedJson(member)}`)
        .join()}}`;
  SORTED_JSON.set(value, text);
  return text;
}

const SORTED_JSON = new WeakMap<object, string>();

/** The schema that a reference within `root` points at; undefined when there is none. */
export function resolveReference(root: unknown, reference: string): unknown {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return undefined;
  let target: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    const key = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof target !== "object" || target === null || !Object.hasOwn(target, key))
      return undefined;
    target = (target as Record<string, unknown>)[key];
  }
  return target;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
