import type { TSchema } from "typebox";

/** A JSON Schema (draft 2020-12, which OpenAPI 3.1 takes as it is). */
export interface JsonSchema {
  [keyword: string]: unknown;
  type?: string | string[];
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: unknown;
  examples?: unknown;
}

/** Keywords whose members are names, not keywords. */
const NAMED: ReadonlySet<string> = new Set(["properties", "patternProperties", "$defs"]);
/** Keywords that hold values of the API, not schemas. */
const VALUES: ReadonlySet<string> = new Set(["const", "enum", "default", "example", "examples"]);
const ANY_NAME = "^.*$";

/**
 * The schema as plain JSON, in the words that people and generators read best: a union of constants as
 * an enumeration, a union with null as two types, a record as additional properties. It accepts the
 * same values, but for one thing: that integers are safe integers goes without saying.
 */
export function describeSchema(schema: TSchema): JsonSchema {
  return simplify(JSON.parse(JSON.stringify(schema))) as JsonSchema;
}

function simplify(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(simplify);
  if (!isObject(value)) return value;
  const schema: JsonSchema = {};
  for (const [keyword, member] of Object.entries(value)) {
    if (VALUES.has(keyword)) schema[keyword] = member;
    else if (NAMED.has(keyword) && isObject(member)) schema[keyword] = simplifyNamed(member);
    else schema[keyword] = simplify(member);
  }
  const union = unionWithNull(unionOfConstants(flatUnion(schema)));
  return typedEnumeration(recordAsAdditional(withoutNoise(union)));
}

function simplifyNamed(members: JsonSchema): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(members).map(([name, member]) => [name, simplify(member)]),
  );
}

/** The options of a union; none where it says more than that. */
function optionsOf(schema: JsonSchema): JsonSchema[] {
  const { anyOf, type, enum: values } = schema;
  if (!Array.isArray(anyOf) || type !== undefined || values !== undefined) return [];
  return anyOf.every(isObject) ? anyOf : [];
}

function flatUnion(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  if (options.length === 0) return schema;
  const flat = options.flatMap((option) => {
    const inner = Object.keys(option).join() === "anyOf" ? optionsOf(option) : [];
    return inner.length > 0 ? inner : [option];
  });
  return { ...schema, anyOf: flat };
}

function unionOfConstants(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  const constants = options.filter((option) => Object.keys(option).sort().join() === "const,type");
  if (constants.length < 2) return schema;
  const { anyOf: _, ...others } = schema;
  const enumeration = { enum: constants.map((option) => option.const) };
  if (constants.length === options.length) return { ...others, ...enumeration };
  const rest = options.filter((option) => !constants.includes(option));
  return { ...others, anyOf: [typedEnumeration(enumeration), ...rest] };
}

function unionWithNull(schema: JsonSchema): JsonSchema {
  const options = optionsOf(schema);
  const [other, ...more] = options.filter((option) => option.type !== "null");
  if (options.length !== 2 || other === undefined || more.length > 0) return schema;
  const { anyOf: _, ...others } = schema;
  const { type, const: constant, enum: values, ...rest } = other;
  const known = constant === undefined ? values : [constant];
  if (Array.isArray(known)) return { ...rest, ...others, enum: [...known, null] };
  return typeof type === "string" ? { ...rest, ...others, type: [type, "null"] } : schema;
}

function recordAsAdditional(schema: JsonSchema): JsonSchema {
  const { patternProperties, ...others } = schema;
  if (!isObject(patternProperties) || others.additionalProperties !== undefined) return schema;
  if (Object.keys(patternProperties).join() !== ANY_NAME) return schema;
  return { ...others, additionalProperties: patternProperties[ANY_NAME] };
}

function withoutNoise(schema: JsonSchema): JsonSchema {
  const { maximum, minimum, properties, ...others } = schema;
  return {
    ...others,
    ...(properties && Object.keys(properties).length > 0 && { properties }),
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER && { maximum }),
  };
}

/** Readers and generators show an enumeration better when they are told what its values are. */
function typedEnumeration(schema: JsonSchema): JsonSchema {
  if (!Array.isArray(schema.enum) || schema.type !== undefined) return schema;
  const types = [...new Set(schema.enum.map((value) => (value === null ? "null" : typeof value)))];
  return { type: types.length === 1 ? types[0] : types, ...schema };
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
