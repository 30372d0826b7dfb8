import { jsonrepair } from "jsonrepair";
import { isFields, jsonValue } from "../../../lib/json.ts";
import { AnswerRead } from "../../../providers/thread-work.ts";

export interface HealedJson {
  /** The repaired JSON. Undefined if the text contains no JSON. */
  readonly json: string | undefined;
}

/**
 * Returns the JSON that a text was meant to be: without the surrounding text, with its syntax repaired and
 * its values cast to the types of a schema. Runs in a work thread, because some texts take a second.
 */
export const healedJson = new AnswerRead(
  import.meta.url,
  (text, { schema }: { readonly schema: unknown }): HealedJson => {
    const value = valueIn(text);
    return { json: value === undefined ? undefined : JSON.stringify(fitted(value, schema, 0)) };
  },
);

const FENCED = /```(?:json[c5]?)?[^\S\n]*\n([\s\S]*?)(?:\n[^\S\n]*```|$)/i;

/**
 * Returns the object or list in a text. Plain strings and numbers do not count, because any prose could be
 * repaired to one.
 */
function valueIn(text: string): unknown {
  const fenced = FENCED.exec(text)?.[1];
  const bare = fenced ?? text;
  const begin = bare.search(/[{[]/);
  if (begin < 0) return undefined;
  const end = Math.max(bare.lastIndexOf("}"), bare.lastIndexOf("]"));
  const candidates = [bare, bare.slice(begin, end + 1), bare.slice(begin)];
  for (const candidate of candidates) {
    const value = jsonValue(candidate.trim());
    if (isStructure(value)) return value;
  }
  for (const candidate of candidates.slice(1)) {
    const value = repaired(candidate);
    if (isStructure(value)) return value;
  }
  return undefined;
}

function isStructure(value: unknown): boolean {
  return typeof value === "object" && value !== null;
}

function repaired(text: string): unknown {
  try {
    return jsonValue(jsonrepair(text));
  } catch {
    // The text is not JSON, or its nesting exceeds the stack.
    return undefined;
  }
}

const MAX_DEPTH = 64;
const NUMBER = /^-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?$/i;

/**
 * Returns the value with members cast to the types of a JSON schema if the cast is unambiguous. Other members
 * stay unchanged.
 */
export function fitted(value: unknown, schema: unknown, depth: number): unknown {
  if (!isFields(schema) || depth > MAX_DEPTH) return value;
  const types = typesOf(schema.type);
  const cast = types.length === 0 || types.includes(typeOf(value)) ? value : castTo(types, value);
  if (Array.isArray(cast)) return cast.map((item) => fitted(item, schema.items, depth + 1));
  return isFields(cast) ? fittedMembers(cast, schema, depth) : cast;
}

function fittedMembers(
  value: Readonly<Record<string, unknown>>,
  { properties, additionalProperties: additional }: Readonly<Record<string, unknown>>,
  depth: number,
): Record<string, unknown> {
  const schemas = isFields(properties) ? properties : {};
  const members: [string, unknown][] = [];
  for (const [name, member] of Object.entries(value)) {
    const isDeclared = Object.hasOwn(schemas, name);
    if (!isDeclared && additional === false) continue;
    members.push([name, fitted(member, isDeclared ? schemas[name] : additional, depth + 1)]);
  }
  return Object.fromEntries(members);
}

/** JSON has seven types. A longer list is ignored, because it would be read again for each value. */
const MAX_TYPES = 7;

function typesOf(type: unknown): readonly unknown[] {
  if (typeof type === "string") return type === "number" ? ["number", "integer"] : [type];
  if (!Array.isArray(type) || type.length > MAX_TYPES) return [];
  return type.includes("number") ? [...type, "integer"] : type;
}

function typeOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return Number.isInteger(value) ? "integer" : typeof value;
}

function castTo(types: readonly unknown[], value: unknown): unknown {
  if (typeof value === "string") {
    const isInteger = /^-?\d{1,15}$/.test(value);
    if (types.includes("integer") && isInteger) return Number(value);
    if (types.includes("number") && NUMBER.test(value)) return Number(value);
    if (types.includes("boolean") && /^(?:true|false)$/i.test(value)) return /^t/i.test(value);
    if (types.includes("null") && /^(?:null|none)?$/i.test(value)) return null;
  }
  if (types.includes("string") && (typeof value === "number" || typeof value === "boolean")) {
    return String(value);
  }
  if (types.includes("object") && Array.isArray(value) && value.length === 1) return value[0];
  if (types.includes("array") && value !== null) return [value];
  return value;
}
