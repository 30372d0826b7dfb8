import {
  isKeywords,
  type Keywords,
  listOf,
  numberOf,
  numericRange,
  resolveReference,
  sameJson,
  typesOf,
} from "./schema-keywords.ts";

/** What may still be spent on one schema: a hostile one ends the work, not the process. */
export interface SchemaWork {
  /** The schema that references are relative to. */
  readonly root: unknown;
  /** Schemas that may still be looked at to make a value. */
  stepsLeft: number;
  /** Comparisons that may still be made to check values. */
  checksLeft: number;
}

/** Multiples of a fraction are met up to this share of the divisor. */
const MULTIPLE_TOLERANCE = 1e-9;

/**
 * Whether a value satisfies a JSON Schema. Patterns and formats are taken as met: running a caller's
 * regular expression could take for ever. So is everything once `checksLeft` is used up.
 */
export function satisfies(value: unknown, schema: unknown, work: SchemaWork): boolean {
  if (schema === false) return false;
  if (!isKeywords(schema) || --work.checksLeft < 0) return true;
  return (
    meetsReference(value, schema, work) &&
    meetsLiterals(value, schema, work) &&
    meetsCombinations(value, schema, work) &&
    meetsKind(value, schema, work)
  );
}

function meetsReference(value: unknown, schema: Keywords, work: SchemaWork): boolean {
  if (typeof schema.$ref !== "string") return true;
  return satisfies(value, resolveReference(work.root, schema.$ref), work);
}

function meetsLiterals(value: unknown, schema: Keywords, work: SchemaWork): boolean {
  const types = typesOf(schema);
  if (types !== undefined && !types.some((type) => isOfType(value, type))) return false;
  if (Object.hasOwn(schema, "const") && !sameJson(value, schema.const)) return false;
  if (!Array.isArray(schema.enum)) return true;
  work.checksLeft -= schema.enum.length;
  return schema.enum.some((allowed) => sameJson(value, allowed));
}

function isOfType(value: unknown, type: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isKeywords(value);
  if (type === "integer") return Number.isInteger(value);
  return typeof value === type;
}

function meetsCombinations(value: unknown, schema: Keywords, work: SchemaWork): boolean {
  const meets = (branch: unknown) => satisfies(value, branch, work);
  if (!listOf(schema.allOf).every(meets)) return false;
  if (Array.isArray(schema.anyOf) && !schema.anyOf.some(meets)) return false;
  if (Array.isArray(schema.oneOf) && schema.oneOf.filter(meets).length !== 1) return false;
  if (schema.not !== undefined && meets(schema.not)) return false;
  if (schema.if === undefined) return true;
  return meets((meets(schema.if) ? schema.then : schema.else) ?? true);
}

function meetsKind(value: unknown, schema: Keywords, work: SchemaWork): boolean {
  if (typeof value === "string") return isWithin([...value].length, schema, "Length");
  if (typeof value === "number") return meetsNumber(value, schema);
  if (Array.isArray(value)) return meetsArray(value, schema, work);
  return isKeywords(value) ? meetsObject(value, schema, work) : true;
}

function isWithin(
  size: number,
  schema: Keywords,
  what: "Length" | "Items" | "Properties",
): boolean {
  const min = numberOf(schema[`min${what}`]) ?? 0;
  const max = numberOf(schema[`max${what}`]) ?? Number.POSITIVE_INFINITY;
  return size >= min && size <= max;
}

/** Whether a number meets the range and the divisor of its schema. */
export function meetsNumber(value: number, schema: Keywords): boolean {
  const { low, high, excludesLow, excludesHigh } = numericRange(schema);
  if (value < low || value > high) return false;
  if ((excludesLow && value === low) || (excludesHigh && value === high)) return false;
  const divisor = numberOf(schema.multipleOf);
  if (divisor === undefined || divisor <= 0) return true;
  const quotient = value / divisor;
  return Math.abs(quotient - Math.round(quotient)) <= MULTIPLE_TOLERANCE;
}

function meetsArray(value: readonly unknown[], schema: Keywords, work: SchemaWork): boolean {
  if (!isWithin(value.length, schema, "Items")) return false;
  if (schema.uniqueItems === true) {
    const distinct = new Set(value.map((item) => JSON.stringify(item)));
    if (distinct.size !== value.length) return false;
  }
  if (schema.contains !== undefined) {
    const found = value.filter((item) => satisfies(item, schema.contains, work)).length;
    if (found < (numberOf(schema.minContains) ?? 1)) return false;
    if (found > (numberOf(schema.maxContains) ?? Number.POSITIVE_INFINITY)) return false;
  }
  const { first, rest } = itemSchemas(schema);
  return value.every((item, index) =>
    satisfies(item, index < first.length ? first[index] : rest, work),
  );
}

/** The schemas of the first items and of those after them, in the words of any draft. */
export function itemSchemas(schema: Keywords): { first: readonly unknown[]; rest: unknown } {
  if (Array.isArray(schema.items)) {
    return { first: schema.items, rest: schema.additionalItems ?? true };
  }
  return { first: listOf(schema.prefixItems), rest: schema.items ?? true };
}

function meetsObject(value: Keywords, schema: Keywords, work: SchemaWork): boolean {
  const keys = Object.keys(value);
  if (!isWithin(keys.length, schema, "Properties")) return false;
  if (!listOf(schema.required).every((key) => Object.hasOwn(value, String(key)))) return false;
  const declared = isKeywords(schema.properties) ? schema.properties : {};
  const dependent = isKeywords(schema.dependentRequired) ? schema.dependentRequired : {};
  return keys.every((key) => {
    if (!listOf(dependent[key]).every((other) => Object.hasOwn(value, String(other)))) return false;
    if (schema.propertyNames !== undefined && !satisfies(key, schema.propertyNames, work)) {
      return false;
    }
    if (Object.hasOwn(declared, key)) return satisfies(value[key], declared[key], work);
    // Which keys a pattern covers is not known without running it.
    if (isKeywords(schema.patternProperties)) return true;
    return satisfies(value[key], schema.additionalProperties ?? true, work);
  });
}
