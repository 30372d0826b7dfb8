import type { TSchema } from "typebox";
import { Compile } from "typebox/schema";
import { type ErrorCode, GatewayError } from "../lib/errors.ts";

/**
 * Validates a value against a schema and throws 400 with the invalid field. Converts and removes
 * nothing.
 */
export type Check = (value: unknown) => void;

const MAX_SHOWN_CHARACTERS = 300;

export function createCheck(schema: TSchema, code: ErrorCode, subject: string): Check {
  let validator: Validator | undefined;
  return (value) => {
    validator ??= validatorOf(schema);
    if (validator.Check(value)) return;
    const { path, message } = findValidationError(schema, value);
    const param = path.length === 0 ? null : path.join(".").slice(0, MAX_SHOWN_CHARACTERS);
    throw new GatewayError(
      code,
      `${subject}${param === null ? "" : ` field "${param}"`}: ${message}`.slice(
        0,
        MAX_SHOWN_CHARACTERS,
      ),
      { param },
    );
  };
}

type Validator = ReturnType<typeof Compile>;

/**
 * Compiled validators by schema. The number is bounded, because schemas are created only at the
 * start.
 */
const VALIDATORS = new WeakMap<TSchema, Validator>();

/**
 * Returns the validator of a schema. Compiles it at the first use, so that an idle gateway does not
 * hold dozens of unused ones.
 */
export function validatorOf(schema: TSchema): Validator {
  let validator = VALIDATORS.get(schema);
  if (validator === undefined) {
    validator = Compile(schema);
    VALIDATORS.set(schema, validator);
  }
  return validator;
}

/** The first mismatch between a value and its schema. */
interface Fault {
  /** Names and indexes that lead to the mismatch, outermost first. */
  readonly path: readonly string[];
  readonly message: string;
}

/** The keywords used by the schemas of bodies and queries. */
interface Keywords {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: unknown;
  readonly patternProperties?: Readonly<Record<string, TSchema>>;
  readonly propertyNames?: TSchema;
  readonly items?: TSchema;
  readonly maxItems?: number;
  readonly anyOf?: readonly TSchema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
}

/** Validators of schemas without their parts, by whole schema. */
const WITHOUT_PARTS = new WeakMap<TSchema, Validator>();

/**
 * Returns the first fault of a value that its schema rejects. Descends only into the part at fault.
 * The validator's list of errors would visit everything after the first fault too, which takes
 * seconds for a body of many megabytes.
 */
export function findValidationError(schema: TSchema, value: unknown): Fault {
  const path: string[] = [];
  let at: { schema: TSchema; value: unknown } = { schema, value };
  for (;;) {
    const fault = nameFault(at.schema as Keywords, at.value);
    if (fault !== undefined) return { path: [...path, fault.name], message: fault.message };
    const inner = innerFault(at.schema as Keywords, at.value);
    if (inner === undefined) return { path, message: leafMessage(at.schema, at.value) };
    if (inner.name !== undefined) path.push(inner.name);
    at = inner;
  }
}

/**
 * Returns the fault of an object's member names: a required name is missing, or a name is unknown.
 */
function nameFault(schema: Keywords, value: unknown): MemberFault | undefined {
  const { type, properties = {}, required = [], additionalProperties, patternProperties } = schema;
  if (!isObject(value)) return undefined;
  if (schema.anyOf !== undefined) return kindFault(schema.anyOf, value);
  if (type !== "object") return undefined;
  const missing = required.find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return { name: missing, message: "is required" };
  if (additionalProperties !== false || patternProperties !== undefined) return undefined;
  for (const name in value) {
    if (!Object.hasOwn(properties, name)) return { name, message: "is not a known field" };
  }
  return undefined;
}

interface MemberFault {
  readonly name: string;
  readonly message: string;
}

/**
 * Returns the fault of a value for a union of objects that a constant distinguishes, if its
 * constant is none of theirs.
 */
function kindFault(
  branches: readonly TSchema[],
  value: Record<string, unknown>,
): MemberFault | undefined {
  const kinds = branches.filter((branch) => (branch as Keywords).type === "object") as Keywords[];
  if (kinds.length < 2 || kinds.some((kind) => hasConstants(kind, value))) return undefined;
  const name = Object.keys(kinds[0]!.properties ?? {}).find((member) =>
    constantsOf(kinds[0]!, member),
  );
  if (name === undefined || !Object.hasOwn(value, name)) return undefined;
  const names = kinds.flatMap((kind) => constantsOf(kind, name) ?? []);
  return { name, message: `must be ${listed(names)}` };
}

interface Inner {
  readonly schema: TSchema;
  readonly value: unknown;
  /** The name of the part. Undefined if the value is the same and only the schema is narrower. */
  readonly name: string | undefined;
}

/** Returns the first part that the schema rejects, or undefined if the value itself is at fault. */
function innerFault(schema: Keywords, value: unknown): Inner | undefined {
  if (schema.anyOf !== undefined) {
    const branch = meantBranch(schema.anyOf, value);
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
  const [patternSchema] = Object.values(patternProperties ?? {});
  if (patternSchema === undefined) return undefined;
  for (const name in value) {
    if (!fits(patternSchema, value[name]))
      return { schema: patternSchema, value: value[name], name };
  }
  return undefined;
}

/**
 * Returns the schema that the author of the value most likely meant: one of its type and, if
 * members distinguish the schemas, with its constants. Returns undefined if no schema has the type
 * of the value.
 */
function meantBranch(branches: readonly TSchema[], value: unknown): TSchema | undefined {
  const matching = branches.filter((branch) => isOfType(branch as Keywords, value));
  return matching.find((branch) => hasConstants(branch as Keywords, value)) ?? matching[0];
}

function isOfType(schema: Keywords, value: unknown): boolean {
  if (schema.anyOf !== undefined)
    return schema.anyOf.some((branch) => isOfType(branch as Keywords, value));
  const type = schema.type ?? typeof (schema.const ?? schema.enum?.[0]);
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isObject(value);
  if (type === "integer") return typeof value === "number";
  return type === typeof value;
}

function hasConstants(schema: Keywords, value: unknown): boolean {
  if (!isObject(value)) return true;
  return Object.keys(schema.properties ?? {}).every(
    (name) => constantsOf(schema, name)?.includes(value[name]) ?? true,
  );
}

/** Returns the constants that a member can have, or undefined if it is not limited to constants. */
function constantsOf(schema: Keywords, name: string): readonly unknown[] | undefined {
  const { const: constant, enum: values } = schema.properties![name] as Keywords;
  return values ?? (constant === undefined ? undefined : [constant]);
}

function typesOf(branches: readonly TSchema[]): string {
  const types = branches.flatMap((branch) => {
    const { anyOf, type, const: constant, enum: values = [constant] } = branch as Keywords;
    return anyOf === undefined ? [type ?? typeof values[0]] : [typesOf(anyOf)];
  });
  return [...new Set(types.filter((type) => type !== "null"))].join(" or ");
}

/** Returns the message for a fault of the value itself. Its parts are valid. */
function leafMessage(schema: TSchema, value: unknown): string {
  const { maxItems, propertyNames, anyOf, const: constant } = schema as Keywords;
  const { enum: values = [constant] } = schema as Keywords;
  if (anyOf !== undefined) return `must be ${typesOf(anyOf)}`;
  if (values[0] !== undefined) return `must be ${listed(values)}`;
  // Checked first, because comparing too many items with each other is slow.
  if (Array.isArray(value) && maxItems !== undefined && value.length > maxItems) {
    return `must not have more than ${maxItems} items`;
  }
  if (propertyNames !== undefined && isObject(value)) {
    const misnamed = Object.keys(value).find((name) => !fits(propertyNames, name));
    if (misnamed !== undefined)
      return `the names of its members ${leafMessage(propertyNames, misnamed)}`;
  }
  let alone = WITHOUT_PARTS.get(schema);
  if (alone === undefined) {
    const { items: _, properties: __, patternProperties: ___, ...rest } = schema as Keywords;
    alone = validatorOf(rest as TSchema);
    WITHOUT_PARTS.set(schema, alone);
  }
  const [, [first]] = alone.Errors(value);
  return first?.message ?? "is not valid";
}

function listed(values: readonly unknown[]): string {
  const texts = values.map((value) => JSON.stringify(value));
  return texts.length === 1 ? texts[0]! : `one of ${texts.join(", ")}`;
}

function fits(schema: TSchema, value: unknown): boolean {
  return validatorOf(schema).Check(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const INTEGER = /^-?(?:0|[1-9]\d*)$/;

/**
 * Returns a strict reader for queries: integers in plain digits (no 1e2), booleans as true or
 * false, no parameter twice, no unknown parameter. The reader throws 400 invalid_query.
 */
export function createQueryReader(
  schema: TSchema,
): (url: string) => Readonly<Record<string, unknown>> {
  const { properties = {}, required = [] } = schema as QuerySchema;
  const check: Check = createCheck(schema, "invalid_query", "Query");
  const mayBeEmpty = required.length === 0;
  return (url) => {
    const start = url.indexOf("?");
    if (start < 0 && mayBeEmpty) return NO_QUERY;
    const query: Record<string, unknown> = {};
    if (start >= 0) readPairs(url.slice(start + 1), properties, query);
    check(query);
    return query;
  };
}

interface QuerySchema {
  readonly properties?: Record<string, { readonly type?: string }>;
  readonly required?: readonly string[];
}

export const NO_QUERY: Readonly<Record<string, unknown>> = Object.freeze({});

function readPairs(
  text: string,
  properties: NonNullable<QuerySchema["properties"]>,
  query: Record<string, unknown>,
): void {
  for (const [name, value] of new URLSearchParams(text)) {
    if (!Object.hasOwn(properties, name))
      throw invalid(name, "is not a parameter of this endpoint");
    if (Object.hasOwn(query, name)) throw invalid(name, "is given more than once");
    if (value.includes("\0") || !value.isWellFormed() || value.includes("\ufffd"))
      throw invalid(name, "is not valid text");
    query[name] = readValue(name, value, properties[name]?.type);
  }
}

function readValue(name: string, value: string, type: string | undefined): unknown {
  if (type === "integer") {
    const number = Number(value);
    if (!INTEGER.test(value) || !Number.isSafeInteger(number))
      throw invalid(name, "must be an integer");
    return number;
  }
  if (type === "boolean") {
    if (value !== "true" && value !== "false") throw invalid(name, "must be true or false");
    return value === "true";
  }
  return value;
}

function invalid(name: string, what: string): GatewayError {
  return new GatewayError("invalid_query", `Query parameter "${name.slice(0, 100)}" ${what}.`, {
    param: name.slice(0, 100),
  });
}
