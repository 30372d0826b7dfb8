import { patternExample } from "./pattern-example.ts";
import {
  isKeywords,
  type Keywords,
  listOf,
  mergeKeywords,
  numberOf,
  resolveReference,
  schemaOfUndeclared,
  sizeOf,
  typesOf,
} from "./schema-merge.ts";

/** What the examples of one answer may cost: a step is a schema that is looked at, about 10 µs. */
const MAX_STEPS = 2_000;
/** Characters of output for the price of a step. */
const CHARACTERS_A_STEP = 64;
/** Keys and values that are merged, and characters of patterns that are parsed, for the price of a step. */
const MERGED_A_STEP = 16;
/** Schemas nested in one another, alternatives included: the depth of the recursion. */
const MAX_NESTING = 64;
/** Optional properties are made down to this depth of the value. */
const MAX_OPTIONAL_DEPTH = 4;
/** How often a reference is followed on the way to a value: a tree shows one level of itself. */
const MAX_REFERENCE_VISITS = 2;
const MAX_BRANCHES = 64;
const MAX_ITEMS = 1_000;
const MAX_EXTRA_PROPERTIES = 100;
const MAX_STRING_CHARACTERS = 10_000;
/** Values tried to find one that an array with `uniqueItems` does not hold yet. */
const MAX_OTHER_VALUES = 16;
/** Multiples tried on either side of the preferred number. */
const MAX_NUMBER_TRIES = 64;
/** How far a multiple of a fraction may be off, as a share of the divisor. */
const MULTIPLE_TOLERANCE = 1e-9;

const FORMAT_EXAMPLES: ReadonlyMap<unknown, string> = new Map([
  ["date-time", "2026-01-01T12:00:00Z"],
  ["date", "2026-01-01"],
  ["time", "12:00:00Z"],
  ["duration", "P1D"],
  ["email", "user@example.com"],
  ["idn-email", "user@example.com"],
  ["hostname", "example.com"],
  ["idn-hostname", "example.com"],
  ["ipv4", "192.0.2.1"],
  ["ipv6", "2001:db8::1"],
  ["uri", "https://example.com/"],
  ["uri-reference", "https://example.com/"],
  ["iri", "https://example.com/"],
  ["url", "https://example.com/"],
  ["uuid", "00000000-0000-4000-8000-000000000000"],
  ["json-pointer", "/example"],
  ["regex", "^example$"],
  ["byte", "ZXhhbXBsZQ=="],
]);

/** Stands for "there is no such value"; null is a value. */
const NONE = Symbol("no value");
type Made = unknown | typeof NONE;

/** Where in the value, and on which way through the schema, a part of the example is made. */
interface Place {
  readonly depth: number;
  readonly nesting: number;
  /** References followed to the values around this one. */
  readonly outer: readonly string[];
  /** References followed for this value: a second conjunct with one of them adds nothing. */
  readonly own: ReadonlySet<string>;
  /** Another number asks for another value. */
  readonly salt: number;
}

const TOP: Place = { depth: 0, nesting: 0, outer: [], own: new Set(), salt: 0 };

/**
 * A value that satisfies a JSON Schema, the same one each time; work, depth and size are bounded
 * whatever the schema is. Understood are `type`, `const`, `enum`, `properties`, `required`,
 * `additionalProperties`, `items`, `prefixItems`, `uniqueItems`, `pattern`, `format`, `multipleOf`, all
 * bounds, `$ref` within the schema, `allOf`, and `anyOf` and `oneOf` by their first possible branch.
 * Other keywords (`not`, `if`, `contains`, `dependentRequired`, `propertyNames`, …) are ignored, so the
 * value may violate them. Where no value is found it is `{}` for an object's schema and null for others.
 */
export function exampleOf(schema: unknown): unknown {
  const made = new ExampleMaker(schema, exampleBudget()).make(schema, TOP);
  if (made !== NONE) return made;
  return isKeywords(schema) && typesOf(schema)?.includes("object") ? {} : null;
}

/** Such a value for the arguments of a function: an object, unless the schema excludes objects. */
export function argumentsOf(schema: unknown, budget: ExampleBudget): unknown {
  const maker = new ExampleMaker(schema, budget);
  const made = maker.make({ allOf: [schema, { type: "object" }] }, TOP);
  if (made !== NONE) return made;
  const other = maker.make(schema, TOP);
  return other === NONE ? {} : other;
}

/** What may still be spent. Examples that share a budget together cost no more than one. */
export interface ExampleBudget {
  stepsLeft: number;
}

export function exampleBudget(): ExampleBudget {
  return { stepsLeft: MAX_STEPS };
}

class ExampleMaker {
  readonly #root: unknown;
  readonly #budget: ExampleBudget;

  constructor(root: unknown, budget: ExampleBudget) {
    this.#root = root;
    this.#budget = budget;
  }

  make(schema: unknown, place: Place): Made {
    if (place.nesting > MAX_NESTING) return NONE;
    const flat = this.#flatten(schema, place);
    if (flat === undefined) return NONE;
    const [branches, ...others] = flat.alternatives;
    if (branches === undefined) return this.#makeFlat(flat.keywords, flat.place);
    const rest = [flat.keywords, ...others.map((anyOf) => ({ anyOf }))];
    const nested = { ...flat.place, nesting: place.nesting + 1 };
    for (const branch of branches.slice(0, MAX_BRANCHES)) {
      const made = this.make({ allOf: [...rest, branch] }, nested);
      if (made !== NONE) return made;
    }
    return NONE;
  }

  /** Takes steps from the budget; false when it is used up. */
  #spend(steps: number): boolean {
    this.#budget.stepsLeft -= Math.floor(steps);
    return this.#budget.stepsLeft >= 0;
  }

  #spendCharacters(characters: number): boolean {
    return this.#spend(characters / CHARACTERS_A_STEP);
  }

  /** Follows references and merges conjuncts; undefined if they exclude one another. */
  #flatten(schema: unknown, place: Place) {
    const pending = [schema];
    const own = new Set(place.own);
    const alternatives: (readonly unknown[])[] = [];
    let keywords: Keywords = {};
    for (let index = 0; index < pending.length; index++) {
      const part = pending[index];
      if (part === false || !this.#spend(1)) return undefined;
      if (!isKeywords(part)) continue;
      const { $ref, allOf, anyOf, oneOf, ...rest } = part;
      if (typeof $ref === "string" && !own.has($ref)) {
        const visits = place.outer.filter((name) => name === $ref).length;
        if (visits >= MAX_REFERENCE_VISITS || !this.#spendCharacters($ref.length)) return undefined;
        own.add($ref);
        pending.push(resolveReference(this.#root, $ref));
      }
      for (const conjunct of listOf(allOf)) pending.push(conjunct);
      if (Array.isArray(anyOf)) alternatives.push(anyOf);
      if (Array.isArray(oneOf)) alternatives.push(oneOf);
      if (!this.#spend((sizeOf(keywords) + sizeOf(rest)) / MERGED_A_STEP)) return undefined;
      const merged = mergeKeywords(keywords, rest);
      if (merged === undefined) return undefined;
      keywords = merged;
    }
    return { keywords, alternatives, place: { ...place, own } };
  }

  #makeFlat(keywords: Keywords, place: Place): Made {
    const types = typesOf(keywords);
    const isAllowed = (value: unknown) => types?.some((type) => isOfType(value, type)) ?? true;
    const values = Object.hasOwn(keywords, "const") ? [keywords.const] : keywords.enum;
    if (Array.isArray(values)) {
      const allowed = values.filter(isAllowed);
      if (allowed.length === 0) return NONE;
      const value: unknown = allowed[place.salt % allowed.length];
      return this.#spendCharacters(JSON.stringify(value).length) ? value : NONE;
    }
    for (const type of typesToTry(keywords, types)) {
      const made = this.#makeOfType(type, keywords, place);
      if (made !== NONE) return made;
    }
    return NONE;
  }

  #makeOfType(type: unknown, keywords: Keywords, place: Place): Made {
    switch (type) {
      case "null":
        return null;
      case "boolean":
        return place.salt % 2 === 0;
      case "string": {
        const { pattern } = keywords;
        if (typeof pattern === "string" && !this.#spend(pattern.length / MERGED_A_STEP))
          return NONE;
        const text = stringExample(keywords, place.salt);
        return text !== undefined && this.#spendCharacters(text.length) ? text : NONE;
      }
      case "number":
      case "integer":
        return numberExample(keywords, type === "integer", place.salt) ?? NONE;
      case "array":
        return this.#makeArray(keywords, place);
      case "object":
        return this.#makeObject(keywords, place);
      default:
        return NONE;
    }
  }

  #makeArray(keywords: Keywords, place: Place): Made {
    const first = Array.isArray(keywords.items) ? keywords.items : listOf(keywords.prefixItems);
    const rest = Array.isArray(keywords.items) ? keywords.additionalItems : keywords.items;
    const minItems = Math.min(MAX_ITEMS, numberOf(keywords.minItems) ?? 0);
    const maxItems = Math.min(MAX_ITEMS, numberOf(keywords.maxItems) ?? MAX_ITEMS);
    if (minItems > maxItems) return NONE;
    const count = Math.min(Math.max(minItems, first.length, 1), maxItems);
    const seen = keywords.uniqueItems === true ? new Set<string>() : undefined;
    const items: unknown[] = [];
    while (items.length < count) {
      const schema = items.length < first.length ? first[items.length] : rest;
      const item = this.#makeItem(schema, place, items.length, seen);
      if (item === NONE) return items.length >= minItems ? items : NONE;
      items.push(item);
    }
    return items;
  }

  #makeItem(schema: unknown, place: Place, index: number, seen: Set<string> | undefined): Made {
    if (seen === undefined) return this.make(schema, inside(place, index === 0 ? place.salt : 0));
    for (let other = 0; other < MAX_OTHER_VALUES; other++) {
      const made = this.make(schema, inside(place, place.salt + index + other));
      if (made === NONE) return NONE;
      const json = JSON.stringify(made);
      if (!seen.has(json)) {
        seen.add(json);
        return made;
      }
    }
    return NONE;
  }

  #makeObject(keywords: Keywords, place: Place): Made {
    const declared = isKeywords(keywords.properties) ? keywords.properties : {};
    const undeclared = schemaOfUndeclared(keywords);
    const minProperties = Math.min(MAX_EXTRA_PROPERTIES, numberOf(keywords.minProperties) ?? 0);
    const maxProperties = numberOf(keywords.maxProperties) ?? Number.POSITIVE_INFINITY;
    const required = new Set(listOf(keywords.required).map(String));
    const made = new Map<string, unknown>();
    const add = (key: string): boolean => {
      const schema = Object.hasOwn(declared, key) ? declared[key] : undeclared;
      const value = this.#spendCharacters(key.length)
        ? this.make(schema, inside(place, place.salt))
        : NONE;
      if (value !== NONE) made.set(key, value);
      return value !== NONE;
    };
    for (const key of required) if (!add(key)) return NONE;
    for (const key of Object.keys(declared)) {
      const isWanted = place.depth < MAX_OPTIONAL_DEPTH || made.size < minProperties;
      if (made.size >= maxProperties || !isWanted || !this.#spend(0)) break;
      if (!made.has(key)) add(key);
    }
    for (let extra = 0; made.size < minProperties; extra++) {
      if (extra >= 2 * MAX_EXTRA_PROPERTIES) return NONE;
      if (!made.has(`property${extra}`)) add(`property${extra}`);
    }
    const known = Object.keys(declared).filter((key) => made.has(key));
    return Object.fromEntries(
      [...new Set([...known, ...made.keys()])].map((k) => [k, made.get(k)]),
    );
  }
}

function inside(place: Place, salt: number): Place {
  return {
    depth: place.depth + 1,
    nesting: place.nesting + 1,
    outer: [...place.outer, ...place.own],
    own: new Set(),
    salt,
  };
}

/** Null last; without `type`, what the other keywords are about. */
function typesToTry(keywords: Keywords, types: readonly unknown[] | undefined): unknown[] {
  if (types !== undefined)
    return types.toSorted((a, b) => Number(a === "null") - Number(b === "null"));
  const has = (...names: string[]) => names.some((name) => keywords[name] !== undefined);
  if (has("properties", "required", "additionalProperties", "minProperties")) return ["object"];
  if (has("items", "prefixItems", "minItems", "uniqueItems")) return ["array"];
  if (has("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")) {
    return ["number"];
  }
  return ["string", "number", "boolean", "object", "array", "null"];
}

function isOfType(value: unknown, type: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return isKeywords(value);
  if (type === "integer") return Number.isInteger(value);
  return typeof value === type;
}

/** A string of the pattern, format or length asked for. */
function stringExample(keywords: Keywords, salt: number): string | undefined {
  const minLength = numberOf(keywords.minLength) ?? 0;
  const maxLength = numberOf(keywords.maxLength) ?? Number.POSITIVE_INFINITY;
  if (minLength > maxLength) return undefined;
  const wanted = Math.min(minLength, MAX_STRING_CHARACTERS);
  if (typeof keywords.pattern === "string") {
    const example = patternExample(keywords.pattern, wanted, MAX_STRING_CHARACTERS);
    if (example !== undefined) return example;
  }
  const formatted = FORMAT_EXAMPLES.get(keywords.format);
  if (formatted !== undefined && formatted.length >= minLength && formatted.length <= maxLength) {
    return formatted;
  }
  const plain = salt === 0 ? "example" : `${salt}-example`;
  const length = Math.min(maxLength, Math.max(wanted, plain.length));
  return plain.repeat(Math.ceil(length / plain.length)).slice(0, length);
}

/** The number nearest to 1 in the range that is a multiple of the divisor. */
function numberExample(keywords: Keywords, isInteger: boolean, salt: number): number | undefined {
  const above = numberOf(keywords.exclusiveMinimum) ?? Number.NEGATIVE_INFINITY;
  const below = numberOf(keywords.exclusiveMaximum) ?? Number.POSITIVE_INFINITY;
  const low = Math.max(above, numberOf(keywords.minimum) ?? Number.NEGATIVE_INFINITY);
  const high = Math.min(below, numberOf(keywords.maximum) ?? Number.POSITIVE_INFINITY);
  const divisor = Math.max(0, numberOf(keywords.multipleOf) ?? 0);
  const step = divisor || 1;
  const fits = (candidate: number) => {
    const quotient = candidate / step;
    const isMultiple = Math.abs(quotient - Math.round(quotient)) <= MULTIPLE_TOLERANCE;
    const isInRange = candidate >= low && candidate <= high;
    if (!isInRange || candidate === above || candidate === below) return false;
    return isInteger ? Number.isInteger(candidate) && isMultiple : divisor === 0 || isMultiple;
  };
  const nearest = Math.round(Math.min(Math.max(1, low), high) / step);
  let skipped = salt;
  for (let tries = 0; tries < 2 * MAX_NUMBER_TRIES; tries++) {
    const away = Math.ceil(tries / 2);
    const candidate = (nearest + (tries % 2 === 0 ? -away : away)) * step;
    if (fits(candidate) && skipped-- === 0) return candidate;
  }
  const between = low + (high - low) / (2 + salt);
  return fits(between) ? between : undefined;
}
