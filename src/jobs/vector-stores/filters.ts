import { GatewayError } from "../../lib/errors.ts";
import type { AttributeFilter } from "../../lib/vector-store.ts";

const MAX_DEPTH = 8;
const MAX_COMPARISONS = 100;
const MAX_VALUES = 100;
const MAX_KEY_CHARACTERS = 64;
const MAX_VALUE_CHARACTERS = 512;
const MEMBERS = { compound: ["type", "filters"], comparison: ["type", "key", "value"] } as const;
const COMPARISONS = ["eq", "ne", "gt", "gte", "lt", "lte"] as const;

/** Parses the `filters` of a search, in OpenAI's form. Throws 400 if a filter is invalid. */
export function readFilter(value: unknown): AttributeFilter {
  return new FilterReader().read(value, 1);
}

class FilterReader {
  #comparisons = 0;

  read(value: unknown, depth: number): AttributeFilter {
    if (typeof value !== "object" || value === null) throw invalid("must be an object");
    const filter = value as Readonly<Record<string, unknown>>;
    if (depth > MAX_DEPTH) throw invalid(`must not nest deeper than ${MAX_DEPTH} levels`);
    if (filter.type === "and" || filter.type === "or") return this.#compound(filter, depth);
    this.#comparisons += 1;
    if (this.#comparisons > MAX_COMPARISONS) {
      throw invalid(`must not have more than ${MAX_COMPARISONS} comparisons`);
    }
    return comparison(filter);
  }

  #compound(filter: Readonly<Record<string, unknown>>, depth: number): AttributeFilter {
    assertMembers(filter, MEMBERS.compound);
    const { filters } = filter;
    if (!Array.isArray(filters) || filters.length === 0) {
      throw invalid('of the types "and" and "or" must have a list of filters');
    }
    return {
      type: filter.type as "and" | "or",
      filters: filters.map((entry) => this.read(entry, depth + 1)),
    };
  }
}

function comparison(filter: Readonly<Record<string, unknown>>): AttributeFilter {
  assertMembers(filter, MEMBERS.comparison);
  const { type, key, value } = filter;
  if (typeof key !== "string" || key === "" || key.length > MAX_KEY_CHARACTERS) {
    throw invalid(`must have a key of 1 to ${MAX_KEY_CHARACTERS} characters`);
  }
  if (type === "in" || type === "nin") {
    if (!Array.isArray(value) || value.length > MAX_VALUES || !value.every(isValue)) {
      throw invalid(`of the type "${type}" must have a list of at most ${MAX_VALUES} values`);
    }
    return { type, key, value };
  }
  const comparisonType = COMPARISONS.find((name) => name === type);
  if (comparisonType === undefined) {
    throw invalid(
      `must have one of the types ${[...COMPARISONS, "in", "nin", "and", "or"].join(", ")}`,
    );
  }
  if (!isValue(value)) throw invalid("must have a string, a number or a boolean as its value");
  return { type: comparisonType, key, value };
}

function isValue(value: unknown): value is string | number | boolean {
  if (typeof value === "string") return value.length <= MAX_VALUE_CHARACTERS;
  return typeof value === "number" || typeof value === "boolean";
}

function assertMembers(
  filter: Readonly<Record<string, unknown>>,
  allowed: readonly string[],
): void {
  const unknown = Object.keys(filter).find((name) => !allowed.includes(name));
  if (unknown !== undefined) throw invalid(`must not have the member "${unknown.slice(0, 64)}"`);
}

function invalid(what: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "filters": a filter ${what}.`, {
    param: "filters",
  });
}
