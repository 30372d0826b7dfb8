/** The keywords of one JSON Schema object. */
export type Keywords = Readonly<Record<string, unknown>>;

/**
 * Number of allowed values that are compared with another list. The rest of a longer list is not compared.
 */
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

/** Returns the types that a schema allows, or undefined if it does not say. */
export function typesOf(keywords: Keywords): readonly unknown[] | undefined {
  if (typeof keywords.type === "string") return [keywords.type];
  return Array.isArray(keywords.type) ? keywords.type : undefined;
}

/**
 * Returns the work of merging a schema's keywords: the number of its keys, required keys and allowed values,
 * plus the characters of the compared values.
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
 * Returns the merged keywords of two schemas that must both hold, without combinations and references.
 * Returns undefined if they exclude one another. If a keyword cannot be merged, such as `pattern`, the right
 * schema's wins.
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
  const [leftTypes, rightTypes] = [typesOf(left), typesOf(right)];
  if (leftTypes !== undefined && rightTypes !== undefined) {
    merged.type = sharedTypes(leftTypes, rightTypes);
    if (listOf(merged.type).length === 0) return undefined;
  }
  return haveDifferentConstants(left, right) ? undefined : merged;
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

/**
 * Merges properties. A key that only one schema declares must also satisfy the other's schema for undeclared
 * keys.
 */
function mergeProperties(left: Keywords, right: Keywords): Keywords {
  const leftProperties = isKeywords(left.properties) ? left.properties : {};
  const rightProperties = isKeywords(right.properties) ? right.properties : {};
  const keys = new Set([...Object.keys(leftProperties), ...Object.keys(rightProperties)]);
  return Object.fromEntries(
    [...keys].map((key) => {
      const sides = [
        schemaOfKey(left, leftProperties, key),
        schemaOfKey(right, rightProperties, key),
      ];
      const constraints = sides.filter((side) => side !== true);
      return [key, constraints.length === 1 ? constraints[0] : { allOf: constraints }];
    }),
  );
}

function schemaOfKey(schema: Keywords, properties: Keywords, key: string): unknown {
  return Object.hasOwn(properties, key) ? properties[key] : schemaOfUndeclared(schema);
}

/**
 * Returns the schema of undeclared keys. With `patternProperties` it is true, because only running the
 * patterns would tell which keys they cover.
 */
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

function haveDifferentConstants(left: Keywords, right: Keywords): boolean {
  if (!Object.hasOwn(left, "const") || !Object.hasOwn(right, "const")) return false;
  return !isKeywords(left.const) && !Array.isArray(left.const) && left.const !== right.const;
}

/**
 * Returns the schema that a reference within `root` points to. Returns true, which allows any value, if there
 * is none.
 */
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
