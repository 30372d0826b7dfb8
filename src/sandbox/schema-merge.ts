/** The keywords of one JSON Schema object. */
export type Keywords = Readonly<Record<string, unknown>>;

/** Of longer lists of allowed values only the beginning is compared with another list. */
const MAX_COMPARED_VALUES = 256;

export function isKeywords(value: unknown): value is Keywords {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function numberOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) ? value : undefined;
}

/** The types that a schema allows; undefined when it does not say. */
export function typesOf(keywords: Keywords): readonly unknown[] | undefined {
  if (typeof keywords.type === "string") return [keywords.type];
  return Array.isArray(keywords.type) ? keywords.type : undefined;
}

/**
 * What merging a schema's keywords goes through: its keys, required keys and allowed values, and the
 * characters of those that are compared.
 */
export function sizeOf({ properties, required, enum: values, const: value }: Keywords): number {
  const compared = [value, ...listOf(values).slice(0, MAX_COMPARED_VALUES)];
  return compared.reduce(
    (sum: number, text) => sum + (typeof text === "string" ? text.length : 0),
    (isKeywords(properties) ? Object.keys(properties).length : 0) +
      listOf(required).length +
      listOf(values).length,
  );
}

/**
 * The keywords of two schemas that must both hold, without combinations and references; undefined if
 * they exclude one another. Of a keyword that cannot be merged, such as `pattern`, the right one's is
 * kept.
 */
export function mergeKeywords(left: Keywords, right: Keywords): Keywords | undefined {
  const merged: Record<string, unknown> = { ...left, ...right };
  for (const name of Object.keys(left)) {
    if (left[name] === undefined || right[name] === undefined) continue;
    if (LARGEST_OF.has(name)) merged[name] = extremeOf(Math.max, left[name], right[name]);
    if (SMALLEST_OF.has(name)) merged[name] = extremeOf(Math.min, left[name], right[name]);
    if (BOTH_OF.has(name)) merged[name] = { allOf: [left[name], right[name]] };
  }
  if (left.required) merged.required = [...listOf(left.required), ...listOf(right.required)];
  if (left.uniqueItems === true) merged.uniqueItems = true;
  if (isKeywords(left.properties) || isKeywords(right.properties)) {
    merged.properties = mergeProperties(left, right);
  }
  if (Array.isArray(left.enum) && Array.isArray(right.enum)) {
    const allowed = new Set(right.enum.slice(0, MAX_COMPARED_VALUES));
    merged.enum = left.enum.slice(0, MAX_COMPARED_VALUES).filter((value) => allowed.has(value));
  }
  const [ofLeft, ofRight] = [typesOf(left), typesOf(right)];
  if (ofLeft !== undefined && ofRight !== undefined) {
    merged.type = sharedTypes(ofLeft, ofRight);
    if (listOf(merged.type).length === 0) return undefined;
  }
  return haveOtherConstants(left, right) ? undefined : merged;
}

const LARGEST_OF = new Set([
  "minimum",
  "exclusiveMinimum",
  "minLength",
  "minItems",
  "minProperties",
]);
const SMALLEST_OF = new Set([
  "maximum",
  "exclusiveMaximum",
  "maxLength",
  "maxItems",
  "maxProperties",
]);
const BOTH_OF = new Set(["items", "additionalProperties", "additionalItems"]);

function extremeOf(pick: typeof Math.max, left: unknown, right: unknown): unknown {
  const [a, b] = [numberOf(left), numberOf(right)];
  return a === undefined ? right : b === undefined ? left : pick(a, b);
}

/** A key declared by one side alone must also meet what the other says of undeclared keys. */
function mergeProperties(left: Keywords, right: Keywords): Keywords {
  const ofLeft = isKeywords(left.properties) ? left.properties : {};
  const ofRight = isKeywords(right.properties) ? right.properties : {};
  const keys = new Set([...Object.keys(ofLeft), ...Object.keys(ofRight)]);
  return Object.fromEntries(
    [...keys].map((key) => {
      const sides = [schemaOfKey(left, ofLeft, key), schemaOfKey(right, ofRight, key)];
      const wanted = sides.filter((side) => side !== true);
      return [key, wanted.length === 1 ? wanted[0] : { allOf: wanted }];
    }),
  );
}

function schemaOfKey(schema: Keywords, properties: Keywords, key: string): unknown {
  return Object.hasOwn(properties, key) ? properties[key] : schemaOfUndeclared(schema);
}

/** Which keys a pattern of `patternProperties` covers is unknown without running it: all may be allowed. */
export function schemaOfUndeclared(schema: Keywords): unknown {
  return isKeywords(schema.patternProperties) ? true : (schema.additionalProperties ?? true);
}

function sharedTypes(left: readonly unknown[], right: readonly unknown[]): unknown[] {
  const allows = (types: readonly unknown[], type: unknown) =>
    types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...left, ...right])].filter(
    (type) => allows(left, type) && allows(right, type),
  );
}

function haveOtherConstants(left: Keywords, right: Keywords): boolean {
  if (!Object.hasOwn(left, "const") || !Object.hasOwn(right, "const")) return false;
  return !isKeywords(left.const) && !Array.isArray(left.const) && left.const !== right.const;
}

/** The schema that a reference within `root` points at; true, which allows anything, if there is none. */
export function resolveReference(root: unknown, reference: string): unknown {
  if (reference === "#") return root;
  if (!reference.startsWith("#/")) return true;
  let target: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    const key = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof target !== "object" || target === null || !Object.hasOwn(target, key)) return true;
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
