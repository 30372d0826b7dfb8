import type { TSchema } from "typebox";
import { GatewayError } from "../lib/errors.ts";
import { parseJson } from "./read-body.ts";
import { INTEGER, validatorOf } from "./validate.ts";

/**
 * Field names for lists and objects in forms, such as `chunking_strategy[type]` and `include[]`.
 */
const NAME = /^([^[\]]+)((?:\[[^[\]]*\])*)$/;
const MAX_DEPTH = 4;
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

type Container = Record<string, unknown> | unknown[];

/**
 * Collects the fields of a form in one object. Converts texts to numbers, booleans, lists and
 * objects if the schema requires it. Fields that are not in the schema stay texts. Validates
 * nothing else.
 */
export class FormFields {
  readonly value: Record<string, unknown> = {};
  readonly #schema: TSchema;

  constructor(schema: TSchema) {
    this.#schema = schema;
  }

  /**
   * Adds a field. Throws 400 if its name is malformed, its text is invalid, or another field already
   * has a value for the member.
   */
  add(name: string, text: string): void {
    if (text.includes("\0") || text.includes("\ufffd")) throw invalid(name, "is not valid text");
    const [, first = "", rest = ""] = NAME.exec(name) ?? [];
    const keys = rest === "" ? [] : rest.slice(1, -1).split("][");
    if (first === "" || keys.length > MAX_DEPTH || [first, ...keys].includes("__proto__")) {
      throw invalid(name, "has a malformed name");
    }
    const schema = memberOf(this.#schema, first);
    // A list is either a repeated field or one field with a JSON array.
    if (keys.length === 0 && isList(schema) && !text.startsWith("[")) keys.push("");
    this.#insert(name, [first, ...keys], text);
  }

  #insert(name: string, keys: readonly string[], text: string): void {
    let container: Container = this.value;
    let schema: TSchema | undefined = this.#schema;
    keys.forEach((key, at) => {
      const isLast = at === keys.length - 1;
      if (Array.isArray(container) !== (key === ""))
        throw invalid(name, "conflicts with another field");
      schema = key === "" ? itemOf(schema) : memberOf(schema, key);
      const isFree = Array.isArray(container) || !Object.hasOwn(container, key);
      if (!isFree && isLast) throw invalid(name, "is given more than once");
      const existing = Array.isArray(container) ? undefined : container[key];
      const member = isLast ? valueIn(text, schema) : (existing ?? (keys[at + 1] === "" ? [] : {}));
      if (!isLast && (typeof member !== "object" || member === null)) {
        throw invalid(name, "conflicts with another field");
      }
      if (Array.isArray(container)) container.push(member);
      else container[key] = member;
      container = member as Container;
    });
  }
}

interface Keywords {
  readonly type?: string;
  readonly anyOf?: readonly TSchema[];
  readonly properties?: Readonly<Record<string, TSchema>>;
  readonly items?: TSchema;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
}

/** Returns the alternatives of a schema: the options of a union, or the schema itself. */
function optionsOf(schema: TSchema | undefined): Keywords[] {
  if (schema === undefined) return [];
  const { anyOf } = schema as Keywords;
  return anyOf === undefined ? [schema as Keywords] : anyOf.flatMap(optionsOf);
}

function memberOf(schema: TSchema | undefined, name: string): TSchema | undefined {
  for (const { properties } of optionsOf(schema)) {
    if (properties !== undefined && Object.hasOwn(properties, name)) return properties[name];
  }
  return undefined;
}

function itemOf(schema: TSchema | undefined): TSchema | undefined {
  return optionsOf(schema).find(({ items }) => items !== undefined)?.items;
}

function isList(schema: TSchema | undefined): boolean {
  return optionsOf(schema).some(({ type }) => type === "array");
}

/**
 * Returns the text as a value of the first type that accepts it. If no type accepts it, returns the
 * nearest conversion.
 */
function valueIn(text: string, schema: TSchema | undefined): unknown {
  let nearest: unknown = text;
  for (const option of optionsOf(schema)) {
    const value = valueOfType(text, option);
    if (value === undefined) continue;
    if (validatorOf(option as TSchema).Check(value)) return value;
    if (typeof value !== "string") nearest = value;
  }
  return nearest;
}

/** Returns the text as a value of the type, or undefined if it is none. */
function valueOfType(text: string, option: Keywords): unknown {
  const type = option.type ?? typeof (option.const ?? option.enum?.[0]);
  switch (type) {
    case "string":
      return text;
    case "integer":
      return INTEGER.test(text) && Number.isSafeInteger(Number(text)) ? Number(text) : undefined;
    case "number":
      return NUMBER.test(text) && Number.isFinite(Number(text)) ? Number(text) : undefined;
    case "boolean":
      return text === "true" ? true : text === "false" ? false : undefined;
    case "object":
    case "array":
      return /^\s*[[{]/.test(text) ? parseJson(text) : undefined;
    default:
      return undefined;
  }
}

function invalid(name: string, what: string): GatewayError {
  const param = name.slice(0, 100);
  return new GatewayError("invalid_body", `The form's field "${param}" ${what}.`, { param });
}
