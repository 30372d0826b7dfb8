import { asArray, asCount, asObject, type JsonObject } from "./json.ts";

const DEEPEST = 12;

/** A small value that satisfies a JSON Schema of the kind that tools and structured outputs use. */
export function valueForSchema(schema: unknown): unknown {
  return valueFor(asObject(schema), asObject(schema), 0);
}

function valueFor(schema: JsonObject, root: JsonObject, depth: number): unknown {
  if (depth > DEEPEST) return null;
  if ("const" in schema) return schema.const;
  const choices = asArray(schema.enum);
  if (choices.length > 0) return choices[0];
  const alternative = asArray(schema.anyOf ?? schema.oneOf)[0] ?? referenced(schema.$ref, root);
  if (alternative !== undefined) return valueFor(asObject(alternative), root, depth + 1);
  switch (typeOf(schema)) {
    case "object":
      return Object.fromEntries(
        Object.entries(asObject(schema.properties)).map(([name, property]) => [
          name,
          valueFor(asObject(property), root, depth + 1),
        ]),
      );
    case "array":
      return Array.from({ length: Math.max(1, asCount(schema.minItems)) }, () =>
        valueFor(asObject(schema.items), root, depth + 1),
      );
    case "integer":
    case "number":
      return typeof schema.minimum === "number" ? schema.minimum : 1;
    case "boolean":
      return true;
    case "null":
      return null;
    default:
      return "text".padEnd(asCount(schema.minLength), "t");
  }
}

function typeOf(schema: JsonObject): unknown {
  if (schema.type === undefined && schema.properties !== undefined) return "object";
  return Array.isArray(schema.type) ? schema.type[0] : schema.type;
}

/** Follows a reference inside the document, such as `#/$defs/address`. */
function referenced(reference: unknown, root: JsonObject): unknown {
  if (typeof reference !== "string" || !reference.startsWith("#/")) return undefined;
  return reference
    .slice(2)
    .split("/")
    .reduce<unknown>((found, member) => asObject(found)[member], root);
}
