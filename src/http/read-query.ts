import type { TSchema } from "typebox";
import { GatewayError } from "../lib/errors.ts";
import { type Check, createCheck } from "./validate.ts";

const INTEGER = /^-?(?:0|[1-9]\d*)$/;

/**
 * Reads a query strictly: integers in plain digits (no 1e2), booleans as true or false, no parameter
 * twice, none unknown. Throws 400 invalid_query.
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
