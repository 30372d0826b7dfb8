import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Keywords that Anthropic's decoder supports (https://platform.claude.com/docs, "Structured outputs"). */
const SUPPORTED: ReadonlySet<string> = new Set([
  "$ref",
  "title",
  "description",
  "default",
  "const",
  "enum",
  "type",
  "required",
  "additionalProperties",
]);
const FORMATS: ReadonlySet<unknown> = new Set([
  "date-time",
  "time",
  "date",
  "duration",
  "email",
  "hostname",
  "uri",
  "ipv4",
  "ipv6",
  "uuid",
]);
/** Keywords whose value contains schemas: one schema, a list of them, or schemas by name. */
const HOLDS: Readonly<Record<string, "one" | "list" | "named">> = {
  items: "one",
  anyOf: "list",
  allOf: "list",
  properties: "named",
  $defs: "named",
  definitions: "named",
};
/** Keywords that do not constrain values. They are dropped. */
const ANNOTATIONS: ReadonlySet<string> = new Set(["$schema", "$id", "$comment", "examples"]);

/**
 * Returns a JSON Schema in the form that Anthropic's structured outputs accept. Objects are closed. Limits
 * that the decoder does not support go into the description for the model to read, and the caller still
 * checks them.
 */
export function closedSchema(schema: Fields): Fields {
  const closed = new Map<string, unknown>();
  const unsupported: string[] = [];
  for (const [name, value] of Object.entries(schema)) {
    const holds = Object.hasOwn(HOLDS, name) ? HOLDS[name] : undefined;
    if (name === "oneOf") closed.set("anyOf", closedAll(value));
    else if (holds === "list") closed.set(name, closedAll(value));
    else if (holds === "named") closed.set(name, closedNamed(value));
    else if (holds === "one") closed.set(name, closedValue(value));
    else if (SUPPORTED.has(name) || isSupportedLimit(name, value)) closed.set(name, value);
    else if (!ANNOTATIONS.has(name)) unsupported.push(`${name}: ${JSON.stringify(value)}`);
  }
  if (schema.type === "object" || isFields(schema.properties)) {
    closed.set("additionalProperties", false);
  }
  if (unsupported.length > 0) {
    const { description } = schema;
    const stated = typeof description === "string" ? `${description}\n` : "";
    closed.set("description", `${stated}${unsupported.join("; ")}`);
  }
  return Object.fromEntries(closed);
}

/**
 * Returns true if the decoder supports this format or minimum list length. It supports minimum lengths of 0
 * and 1.
 */
function isSupportedLimit(name: string, value: unknown): boolean {
  if (name === "format") return FORMATS.has(value);
  return name === "minItems" && (value === 0 || value === 1);
}

function closedValue(value: unknown): unknown {
  return isFields(value) ? closedSchema(value) : value;
}

function closedAll(value: unknown): unknown {
  return Array.isArray(value) ? value.map(closedValue) : value;
}

function closedNamed(value: unknown): unknown {
  if (!isFields(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, schema]) => [name, closedValue(schema)]),
  );
}
