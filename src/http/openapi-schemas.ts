import { isDeepStrictEqual } from "node:util";
import type { TSchema } from "typebox";

/** A JSON Schema (draft 2020-12, which OpenAPI 3.1 uses unchanged). */
export interface JsonSchema {
  [keyword: string]: unknown;
  title?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: unknown;
  examples?: unknown;
}

/** Keywords whose member names are names of the API, such as field names, not keywords of JSON Schema. */
const NAMED: ReadonlySet<string> = new Set(["properties", "patternProperties", "$defs"]);
/** Keywords that hold values of the API, not schemas. */
const VALUES: ReadonlySet<string> = new Set(["const", "enum", "default", "example", "examples"]);
const ANY_NAME = "^.*$";

/**
 * Returns the schema as plain JSON, in the form that is best for readers and code generators. A
 * union of constants becomes an enumeration, a union with null becomes two types, and a record
 * becomes additional properties. The result accepts the same values, except that it does not limit
 * integers to safe integers.
 */
export function describeSchema(schema: TSchema): JsonSchema {
  return simplify(JSON.parse(JSON.stringify(schema)), (part) => part);
}

/** A reference to a schema that the document names. */
export interface SchemaReference {
  readonly $ref: string;
}

/**
 * The named schemas of a document, which it refers to instead of repeating them. The `title` of a
 * schema is its name.
 */
export class NamedSchemas {
  readonly #schemas = new Map<string, JsonSchema>();

  /** Returns the schemas by name, sorted by name. */
  byName(): Record<string, JsonSchema> {
    const entries = [...this.#schemas].sort(([left], [right]) => (left < right ? -1 : 1));
    return Object.fromEntries(entries);
  }

  /** Returns the schema as `describeSchema` does, with references to its parts that have names. */
  describe(schema: TSchema): JsonSchema {
    return simplify(JSON.parse(JSON.stringify(schema)), (part) => this.#nameByTitle(part));
  }

  /**
   * Names a described schema by its title, or by `fallback` if it has none. Returns a reference to
   * it. Throws if another schema has this name.
   */
  name({ title, ...described }: JsonSchema, fallback: string): SchemaReference {
    const name = title ?? fallback;
    const schema = this.#nameOptions(described, name);
    const named = this.#schemas.get(name);
    if (named !== undefined && !isDeepStrictEqual(named, schema)) {
      throw new Error(`Two schemas of the OpenAPI document have the name ${name}.`);
    }
    this.#schemas.set(name, schema);
    return { $ref: `#/components/schemas/${name}` };
  }

  /**
   * Names the options of a named union by the constant of their member `type`. Generators then name
   * them well, and some cannot generate unnamed options that contain objects.
   */
  #nameOptions(schema: JsonSchema, union: string): JsonSchema {
    const options = optionsOf(schema);
    if (options.length === 0) return schema;
    const anyOf = options.map((option) => {
      const type = option.properties?.type?.const;
      return typeof type === "string" ? this.name(option, union + pascalCase(type)) : option;
    });
    return { ...schema, anyOf };
  }

  #nameByTitle(part: JsonSchema): JsonSchema {
    return part.title === undefined ? part : { ...this.name(part, part.title) };
  }
}

/** Returns a name in Pascal case: `KeysCreate` for `keys.create`. */
export function pascalCase(name: string): string {
  const words = name.split(/[^A-Za-z0-9]+/);
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join("");
}

/** Returns a schema with simple parts. `name` replaces each part. */
function simplify(schema: JsonSchema, name: (part: JsonSchema) => JsonSchema): JsonSchema {
  const part = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(part);
    return isObject(value) ? name(simplify(value, name)) : value;
  };
  const simplified: JsonSchema = {};
  for (const [keyword, member] of Object.entries(schema)) {
    if (VALUES.has(keyword)) simplified[keyword] = member;
    else if (NAMED.has(keyword) && isObject(member)) {
      const members = Object.entries(member).map(([key, value]) => [key, part(value)] as const);
      simplified[keyword] = Object.fromEntries(members);
    } else simplified[keyword] = part(member);
  }
  const union = unionWithNull(unionOfConstants(flatUnion(simplified)));
  return typedEnumeration(recordAsAdditional(withoutNoise(union)));
}

/** Returns the options of a union, or none if the schema has other constraints too. */
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
  const [nonNull, ...more] = options.filter((option) => option.type !== "null");
  if (options.length !== 2 || nonNull === undefined || more.length > 0) return schema;
  const { anyOf: _, ...others } = schema;
  const { type, const: constant, enum: values, ...rest } = nonNull;
  const allowed = constant === undefined ? values : [constant];
  if (Array.isArray(allowed)) return { ...rest, ...others, enum: [...allowed, null] };
  return typeof type === "string" ? { ...rest, ...others, type: [type, "null"] } : schema;
}

function recordAsAdditional(schema: JsonSchema): JsonSchema {
  const { patternProperties, ...others } = schema;
  if (!isObject(patternProperties) || others.additionalProperties !== undefined) return schema;
  if (Object.keys(patternProperties).join() !== ANY_NAME) return schema;
  return { ...others, additionalProperties: patternProperties[ANY_NAME] };
}

/** An object without declared members is open, which some generators assume only if it is stated. */
function withoutNoise(schema: JsonSchema): JsonSchema {
  const { maximum, minimum, properties, ...others } = schema;
  const isOpen = properties !== undefined && Object.keys(properties).length === 0;
  return {
    ...(isOpen && { additionalProperties: true }),
    ...others,
    ...(properties && !isOpen && { properties }),
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER && { minimum }),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER && { maximum }),
  };
}

/**
 * Adds the types of its values to an enumeration. Documentation and code generators show it better.
 */
function typedEnumeration(schema: JsonSchema): JsonSchema {
  if (!Array.isArray(schema.enum) || schema.type !== undefined) return schema;
  const types = [...new Set(schema.enum.map((value) => (value === null ? "null" : typeof value)))];
  return { type: types.length === 1 ? types[0] : types, ...schema };
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
