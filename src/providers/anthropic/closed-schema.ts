import { isFields } from "../../lib/json.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Keywords that Anthropic's decoder knows (https://platform.claude.com/docs, "Structured outputs"). */
const KEPT: ReadonlySet<string> = new Set([
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
/** By keyword: what its value holds, one schema, a list of them, or schemas by name. */
const HOLDS: Readonly<Record<string, "one" | "list" | "named">> = {
  items: "one",
  anyOf: "list",
  allOf: "list",
  properties: "named",
  $defs: "named",
  definitions: "named",
};
/** Say nothing about values. */
const SILENT: ReadonlySet<string> = new Set(["$schema", "$id", "$comment", "examples"]);

/**
 * A JSON Schema as Anthropic takes it to hold an answer to it: objects are closed, and limits that its decoder
 * does not know go into the description, for the model to read. The caller still checks them.
 */
export function closedSchema(schema: Fields): Fields {
  const closed = new Map<string, unknown>();
  const told: string[] = [];
  for (const [name, value] of Object.entries(schema)) {
    const holds = Object.hasOwn(HOLDS, name) ? HOLDS[name] : undefined;
    if (name === "oneOf") closed.set("anyOf", closedAll(value));
    else if (holds === "list") closed.set(name, closedAll(value));
    else if (holds === "named") closed.set(name, closedNamed(value));
    else if (holds === "one") closed.set(name, closedValue(value));
    else if (KEPT.has(name) || isKeptFormat(name, value)) closed.set(name, value);
    else if (!SILENT.has(name)) told.push(`${name}: ${JSON.stringify(value)}`);
  }
  if (schema.type === "object" || isFields(schema.properties)) {
    closed.set("additionalProperties", false);
  }
  if (told.length > 0) {
    const { description } = schema;
    const before = typeof description === "string" ? `${description}\n` : "";
    closed.set("description", `${before}${told.join("; ")}`);
  }
  return Object.fromEntries(closed);
}

/** Lists of one item at least can be demanded. */
function isKeptFormat(name: string, value: unknown): boolean {
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
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, closedValue(one)]));
}
