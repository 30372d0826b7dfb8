import type { TSchema } from "typebox";
import { Compile } from "typebox/compile";

/** Where a value first departs from its schema, and how. */
export interface Fault {
  /** Names and positions on the way there, from the outside in. */
  readonly path: readonly string[];
  readonly message: string;
}

/** The keywords that schemas of bodies and queries are made of. */
interface Keywords {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: unknown;
  readonly patternProperties?: Readonly<Record<string, TSchema>>;
  readonly items?: TSchema;
  readonly maxItems?: number;
  readonly anyOf?: readonly TSchema[];
}

type Validator = ReturnType<typeof Compile>;

/** Schemas are made once, at the start, so this is bounded by their parts. */
const VALIDATORS = new WeakMap<TSchema, Validator>();
/** Of a schema without its parts. */
const WITHOUT_PARTS = new WeakMap<TSchema, Validator>();

/**
 * The first fault of a value that a schema refuses. Goes straight to it: listing faults, as the validator
 * does, walks through everything that is right or wrong behind the first one too, which a body of many
 * megabytes makes a matter of seconds.
 */
export function firstFault(schema: TSchema, value: unknown): Fault {
  const path: string[] = [];
  let at: { schema: TSchema; value: unknown } = { schema, value };
  for (;;) {
    const own = ownFault(at.schema as Keywords, at.value);
    if (own !== undefined) return { path: [...path, own.name], message: own.message };
    const inner = innerFault(at.schema as Keywords, at.value);
    if (inner === undefined) return { path, message: leafMessage(at.schema, at.value) };
    if (inner.name !== undefined) path.push(inner.name);
    at = inner;
  }
}

/** Of an object's names: one that is missing, or one too many. */
function ownFault(
  { type, properties = {}, required = [], additionalProperties, patternProperties }: Keywords,
  value: unknown,
): { readonly name: string; readonly message: string } | undefined {
  if (type !== "object" || !isObject(value)) return undefined;
  const missing = required.find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return { name: missing, message: "is required" };
  if (additionalProperties !== false || patternProperties !== undefined) return undefined;
  for (const name in value) {
    if (!Object.hasOwn(properties, name)) return { name, message: "is not a known field" };
  }
  return undefined;
}

interface Inner {
  readonly schema: TSchema;
  readonly value: unknown;
  /** Undefined where it is the same value under a part of the schema. */
  readonly name: string | undefined;
}

/** The first part that is refused; undefined where the value itself is. */
function innerFault(schema: Keywords, value: unknown): Inner | undefined {
  if (schema.anyOf !== undefined) {
    const branch = schema.anyOf.find((one) => (one as Keywords).type !== "null");
    return branch && { schema: branch, value, name: undefined };
  }
  if (schema.type === "array" && schema.items !== undefined && Array.isArray(value)) {
    const { items } = schema;
    const index = value.findIndex((item) => !fits(items, item));
    return index < 0 ? undefined : { schema: items, value: value[index], name: String(index) };
  }
  if (schema.type !== "object" || !isObject(value)) return undefined;
  const { properties = {}, patternProperties } = schema;
  for (const name in properties) {
    if (!Object.hasOwn(value, name) || fits(properties[name]!, value[name])) continue;
    return { schema: properties[name]!, value: value[name], name };
  }
  const [ofNames] = Object.values(patternProperties ?? {});
  if (ofNames === undefined) return undefined;
  for (const name in value) {
    if (!fits(ofNames, value[name])) return { schema: ofNames, value: value[name], name };
  }
  return undefined;
}

/** What is wrong with the value itself, its parts left aside: they are right. */
function leafMessage(schema: TSchema, value: unknown): string {
  const { maxItems } = schema as Keywords;
  // Whether they differ from one another is not asked of too many.
  if (Array.isArray(value) && maxItems !== undefined && value.length > maxItems) {
    return `must not have more than ${maxItems} items`;
  }
  let alone = WITHOUT_PARTS.get(schema);
  if (alone === undefined) {
    const { items: _, properties: __, patternProperties: ___, ...rest } = schema as Keywords;
    alone = Compile(rest as TSchema);
    WITHOUT_PARTS.set(schema, alone);
  }
  const [first] = alone.Errors(value);
  return first?.message ?? "is not valid";
}

function fits(schema: TSchema, value: unknown): boolean {
  let validator = VALIDATORS.get(schema);
  if (validator === undefined) {
    validator = Compile(schema);
    VALIDATORS.set(schema, validator);
  }
  return validator.Check(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
