import type { SchemaWork } from "./schema-check.ts";
import {
  isKeywords,
  type Keywords,
  listOf,
  numberOf,
  resolveReference,
  sameJson,
  sortedJson,
  typesOf,
} from "./schema-keywords.ts";

/** How often a reference may be followed on one way from the root: a tree shows one level of itself. */
const MAX_REFERENCE_VISITS = 2;
const MAX_FLATTEN_DEPTH = 32;
/** Of longer lists of alternatives only the beginning is tried. */
const MAX_BRANCHES = 64;
/** Of longer lists of allowed values only the beginning is compared with another list. */
const MAX_COMPARED_VALUES = 256;

/** Properties, required keys and allowed values that are merged for the price of looking at one schema. */
const MERGED_MEMBERS_A_STEP = 32;

/** Alternatives of which one must hold besides the rest of the schema. */
export interface Alternatives {
  readonly branches: readonly unknown[];
  /** The schema that the chosen value is checked against. */
  readonly whole: Keywords;
}

/** A schema without references and conjunctions. */
export interface FlatSchema {
  readonly keywords: Keywords;
  readonly alternatives: readonly Alternatives[];
  /** The references that were followed, those of the way here included. */
  readonly references: readonly string[];
}

/**
 * Follows `$ref` and merges `allOf`, so that one set of keywords and a list of alternatives remain.
 * Undefined when nothing can satisfy the schema or when it runs in circles.
 */
export function flatten(
  schema: unknown,
  work: SchemaWork,
  references: readonly string[],
  depth = 0,
): FlatSchema | undefined {
  if (schema === false || depth > MAX_FLATTEN_DEPTH || --work.stepsLeft < 0) return undefined;
  if (!isKeywords(schema)) return { keywords: {}, alternatives: [], references };
  const { $ref, allOf, anyOf: _, oneOf: __, if: ___, then: ____, else: _____, ...own } = schema;
  const conjuncts = [...listOf(allOf)];
  let followed = references;
  if (typeof $ref === "string") {
    if (references.filter((seen) => seen === $ref).length >= MAX_REFERENCE_VISITS) return undefined;
    followed = [...references, $ref];
    conjuncts.unshift(resolveReference(work.root, $ref) ?? true);
  }
  let flat: FlatSchema | undefined = {
    keywords: own,
    alternatives: alternativesOf(schema),
    references: followed,
  };
  for (const conjunct of conjuncts) {
    const other = flatten(conjunct, work, followed, depth + 1);
    flat = other && mergeFlat(flat, other, followed.length, work);
    if (flat === undefined) return undefined;
  }
  return flat;
}

function alternativesOf(schema: Keywords): Alternatives[] {
  const { anyOf, oneOf, if: condition, then = true, else: otherwise = true } = schema;
  const alternatives: Alternatives[] = [];
  if (Array.isArray(anyOf)) {
    alternatives.push({ branches: anyOf.slice(0, MAX_BRANCHES), whole: { anyOf } });
  }
  if (Array.isArray(oneOf)) {
    const tried = oneOf.slice(0, MAX_BRANCHES);
    const branches = tried.map((branch, index) => {
      const others = tried.filter((_, other) => other !== index);
      return { allOf: [branch, { not: { anyOf: others } }] };
    });
    alternatives.push({ branches, whole: { oneOf } });
  }
  if (condition !== undefined) {
    const branches = [{ allOf: [condition, then] }, otherwise];
    alternatives.push({ branches, whole: { if: condition, then, else: otherwise } });
  }
  return alternatives;
}

/**
 * Both at once; undefined when they exclude one another, or where too much was merged already. The first
 * `shared` references were followed on the way to both.
 */
export function mergeFlat(
  left: FlatSchema,
  right: FlatSchema,
  shared: number,
  work: SchemaWork,
): FlatSchema | undefined {
  const members = membersOf(left.keywords) + membersOf(right.keywords);
  work.stepsLeft -= Math.floor(members / MERGED_MEMBERS_A_STEP);
  if (work.stepsLeft < 0) return undefined;
  const keywords = mergeKeywords(left.keywords, right.keywords);
  if (keywords === undefined) return undefined;
  const ofLeft = left.references.slice(shared);
  // What two conjuncts have in common is no recursion.
  const ofRight = right.references.slice(shared).filter((name) => !ofLeft.includes(name));
  return {
    keywords,
    alternatives: [...left.alternatives, ...right.alternatives],
    references: [...left.references, ...ofRight],
  };
}

/** What a merge goes through: of a long list of conjuncts, all that came before for each of them. */
function membersOf({ properties, required, enum: values }: Keywords): number {
  const declared = isKeywords(properties) ? Object.keys(properties).length : 0;
  return declared + listOf(required).length + Math.min(listOf(values).length, MAX_COMPARED_VALUES);
}

const LARGEST_OF = [
  "minimum",
  "exclusiveMinimum",
  "minLength",
  "minItems",
  "minProperties",
  "minContains",
];
const SMALLEST_OF = [
  "maximum",
  "exclusiveMaximum",
  "maxLength",
  "maxItems",
  "maxProperties",
  "maxContains",
];
const BOTH_OF = ["items", "contains", "propertyNames", "additionalProperties", "additionalItems"];

function mergeKeywords(left: Keywords, right: Keywords): Keywords | undefined {
  const merged: Record<string, unknown> = { ...left, ...right };
  const isShared = (name: string) => left[name] !== undefined && right[name] !== undefined;
  for (const name of LARGEST_OF)
    if (isShared(name)) merged[name] = extreme(left, right, name, Math.max);
  for (const name of SMALLEST_OF)
    if (isShared(name)) merged[name] = extreme(left, right, name, Math.min);
  for (const name of BOTH_OF) if (isShared(name)) merged[name] = both(left[name], right[name]);
  if (isShared("not")) merged.not = { anyOf: [left.not, right.not] };
  if (isShared("multipleOf")) merged.multipleOf = commonMultiple(left.multipleOf, right.multipleOf);
  if (isShared("required")) merged.required = [...listOf(left.required), ...listOf(right.required)];
  if (isShared("uniqueItems"))
    merged.uniqueItems = left.uniqueItems === true || right.uniqueItems === true;
  const properties = mergedProperties(left, right);
  if (properties !== undefined) merged.properties = properties;
  if (isShared("type")) {
    const types = sharedTypes(typesOf(left) ?? [], typesOf(right) ?? []);
    if (types.length === 0) return undefined;
    merged.type = types;
  }
  if (Array.isArray(left.enum) && Array.isArray(right.enum)) {
    const allowed = new Set(right.enum.slice(0, MAX_COMPARED_VALUES).map(sortedJson));
    merged.enum = left.enum
      .slice(0, MAX_COMPARED_VALUES)
      .filter((value) => allowed.has(sortedJson(value)));
  }
  if (Object.hasOwn(left, "const") && Object.hasOwn(right, "const")) {
    if (!sameJson(left.const, right.const)) return undefined;
  }
  return merged;
}

function extreme(left: Keywords, right: Keywords, name: string, pick: typeof Math.max): unknown {
  const [a, b] = [numberOf(left[name]), numberOf(right[name])];
  return a === undefined ? right[name] : b === undefined ? left[name] : pick(a, b);
}

function both(left: unknown, right: unknown): unknown {
  return { allOf: [left, right] };
}

/** A key that only one side declares must also meet what the other says of undeclared keys. */
function mergedProperties(left: Keywords, right: Keywords): Keywords | undefined {
  if (!isKeywords(left.properties) && !isKeywords(right.properties)) return undefined;
  const ofLeft = isKeywords(left.properties) ? left.properties : {};
  const ofRight = isKeywords(right.properties) ? right.properties : {};
  const keys = new Set([...Object.keys(ofLeft), ...Object.keys(ofRight)]);
  return Object.fromEntries(
    [...keys].map((key) => {
      const sides = [schemaOfKey(left, ofLeft, key), schemaOfKey(right, ofRight, key)].filter(
        (side) => side !== true,
      );
      return [key, sides.length === 1 ? sides[0] : { allOf: sides }];
    }),
  );
}

function schemaOfKey(schema: Keywords, properties: Keywords, key: string): unknown {
  if (Object.hasOwn(properties, key)) return properties[key];
  return isKeywords(schema.patternProperties) ? true : (schema.additionalProperties ?? true);
}

function sharedTypes(left: readonly unknown[], right: readonly unknown[]): unknown[] {
  const allows = (types: readonly unknown[], type: unknown) =>
    types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...left, ...right])].filter(
    (type) => allows(left, type) && allows(right, type),
  );
}

function commonMultiple(left: unknown, right: unknown): unknown {
  if (!Number.isSafeInteger(left) || !Number.isSafeInteger(right)) return right;
  let [a, b] = [Math.abs(left as number), Math.abs(right as number)];
  while (b > 0) [a, b] = [b, a % b];
  return a === 0 ? right : Math.abs((left as number) * (right as number)) / a;
}
