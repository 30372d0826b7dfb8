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

/** Work limit for the examples of one answer. A step visits one schema and takes about 10 µs. */
const MAX_STEPS = 2_000;
/** Number of output characters that cost one step. */
const CHARACTERS_A_STEP = 64;
/** Number of merged keys and values, or parsed pattern characters, that cost one step. */
const MERGED_A_STEP = 16;
/** Maximum nesting of schemas, alternatives included: the depth of the recursion. */
const MAX_NESTING = 64;
/** Depth of the value down to which optional properties are created. */
const MAX_OPTIONAL_DEPTH = 4;
/** How often a reference is followed on the way to a value. A tree therefore contains one level of itself. */
const MAX_REFERENCE_VISITS = 2;
const MAX_BRANCHES = 64;
const MAX_ITEMS = 1_000;
const MAX_EXTRA_PROPERTIES = 100;
const MAX_STRING_CHARACTERS = 10_000;
/** Number of values tried to find one that an array with `uniqueItems` does not contain yet. */
const MAX_OTHER_VALUES = 16;
/** Number of multiples tried on either side of the preferred number. */
const MAX_NUMBER_TRIES = 64;
/** Tolerance for a multiple of a fraction, as a share of the divisor. */
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

/** Means that no value satisfies the schema. Null is a value. */
const NONE = Symbol("no value");
type Example = unknown | typeof NONE;

/** The position in the value, and the path through the schema, at which a part of the example is created. */
interface Context {
  readonly depth: number;
  readonly nesting: number;
  /** References followed for the enclosing values. */
  readonly outer: readonly string[];
  /** References followed for this value. A second conjunct with the same reference adds nothing. */
  readonly references: ReadonlySet<string>;
  /** Selects a value: a different number gives a different value. */
  readonly salt: number;
}

const TOP: Context = { depth: 0, nesting: 0, outer: [], references: new Set(), salt: 0 };

/**
 * Returns a value that satisfies a JSON Schema, always the same one. Work, depth and size are bounded,
 * whatever the schema is. Supports `type`, `const`, `enum`, `properties`, `required`, `additionalProperties`,
 * `items`, `prefixItems`, `uniqueItems`, `pattern`, `format`, `multipleOf`, all bounds, `$ref` within the
 * schema, `allOf`, and the first possible branch of `anyOf` and `oneOf`.
 *
 * Ignores other keywords (`not`, `if`, `contains`, `dependentRequired`, `propertyNames`, …), so the value can
 * violate them. If it finds no value, it returns `{}` for an object's schema and null for others.
 */
export function exampleOf(schema: unknown): unknown {
  const example = new ExampleMaker(schema, exampleBudget()).make(schema, TOP);
  if (example !== NONE) return example;
  return isKeywords(schema) && typesOf(schema)?.includes("object") ? {} : null;
}

/** Returns a value for the arguments of a function: an object, unless the schema excludes objects. */
export function argumentsOf(schema: unknown, budget: ExampleBudget): unknown {
  const maker = new ExampleMaker(schema, budget);
  const example = maker.make({ allOf: [schema, { type: "object" }] }, TOP);
  if (example !== NONE) return example;
  const fallback = maker.make(schema, TOP);
  return fallback === NONE ? {} : fallback;
}

/** Remaining work. Examples that share a budget cost no more than one example in total. */
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

  make(schema: unknown, context: Context): Example {
    if (context.nesting > MAX_NESTING) return NONE;
    const flat = this.#flatten(schema, context);
    if (flat === undefined) return NONE;
    const [branches, ...others] = flat.alternatives;
    if (branches === undefined) return this.#makeFlat(flat.keywords, flat.context);
    const rest = [flat.keywords, ...others.map((anyOf) => ({ anyOf }))];
    const nested = { ...flat.context, nesting: context.nesting + 1 };
    for (const branch of branches.slice(0, MAX_BRANCHES)) {
      const example = this.make({ allOf: [...rest, branch] }, nested);
      if (example !== NONE) return example;
    }
    return NONE;
  }

  /** Takes steps from the budget. Returns false if the budget is used up. */
  #spend(steps: number): boolean {
    this.#budget.stepsLeft -= Math.floor(steps);
    return this.#budget.stepsLeft >= 0;
  }

  #spendCharacters(characters: number): boolean {
    return this.#spend(characters / CHARACTERS_A_STEP);
  }

  /** Follows references and merges conjuncts. Returns undefined if they exclude one another. */
  #flatten(schema: unknown, context: Context) {
    const pending = [schema];
    const references = new Set(context.references);
    const alternatives: (readonly unknown[])[] = [];
    let keywords: Keywords = {};
    for (let index = 0; index < pending.length; index++) {
      const part = pending[index];
      if (part === false || !this.#spend(1)) return undefined;
      if (!isKeywords(part)) continue;
      const { $ref, allOf, anyOf, oneOf, ...rest } = part;
      if (typeof $ref === "string" && !references.has($ref)) {
        const visits = context.outer.filter((name) => name === $ref).length;
        if (visits >= MAX_REFERENCE_VISITS || !this.#spendCharacters($ref.length)) return undefined;
        references.add($ref);
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
    return { keywords, alternatives, context: { ...context, references } };
  }

  #makeFlat(keywords: Keywords, context: Context): Example {
    const types = typesOf(keywords);
    const isAllowed = (value: unknown) => types?.some((type) => isOfType(value, type)) ?? true;
    const values = Object.hasOwn(keywords, "const") ? [keywords.const] : keywords.enum;
    if (Array.isArray(values)) {
      const allowed = values.filter(isAllowed);
      if (allowed.length === 0) return NONE;
      const value: unknown = allowed[context.salt % allowed.length];
      return this.#spendCharacters(JSON.stringify(value).length) ? value : NONE;
    }
    for (const type of typesToTry(keywords, types)) {
      const example = this.#makeOfType(type, keywords, context);
      if (example !== NONE) return example;
    }
    return NONE;
  }

  #makeOfType(type: unknown, keywords: Keywords, context: Context): Example {
    switch (type) {
      case "null":
        return null;
      case "boolean":
        return context.salt % 2 === 0;
      case "string": {
        const { pattern } = keywords;
        if (typeof pattern === "string" && !this.#spend(pattern.length / MERGED_A_STEP))
          return NONE;
        const text = stringExample(keywords, context.salt);
        return text !== undefined && this.#spendCharacters(text.length) ? text : NONE;
      }
      case "number":
      case "integer":
        return numberExample(keywords, type === "integer", context.salt) ?? NONE;
      case "array":
        return this.#makeArray(keywords, context);
      case "object":
        return this.#makeObject(keywords, context);
      default:
        return NONE;
    }
  }

  #makeArray(keywords: Keywords, context: Context): Example {
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
      const item = this.#makeItem(schema, context, items.length, seen);
      if (item === NONE) return items.length >= minItems ? items : NONE;
      items.push(item);
    }
    return items;
  }

  #makeItem(
    schema: unknown,
    context: Context,
    index: number,
    seen: Set<string> | undefined,
  ): Example {
    if (seen === undefined)
      return this.make(schema, inside(context, index === 0 ? context.salt : 0));
    for (let attempt = 0; attempt < MAX_OTHER_VALUES; attempt++) {
      const made = this.make(schema, inside(context, context.salt + index + attempt));
      if (made === NONE) return NONE;
      const json = JSON.stringify(made);
      if (!seen.has(json)) {
        seen.add(json);
        return made;
      }
    }
    return NONE;
  }

  #makeObject(keywords: Keywords, context: Context): Example {
    const declared = isKeywords(keywords.properties) ? keywords.properties : {};
    const undeclared = schemaOfUndeclared(keywords);
    const minProperties = Math.min(MAX_EXTRA_PROPERTIES, numberOf(keywords.minProperties) ?? 0);
    const maxProperties = numberOf(keywords.maxProperties) ?? Number.POSITIVE_INFINITY;
    const required = new Set(listOf(keywords.required).map(String));
    const properties = new Map<string, unknown>();
    const add = (key: string): boolean => {
      const schema = Object.hasOwn(declared, key) ? declared[key] : undeclared;
      const value = this.#spendCharacters(key.length)
        ? this.make(schema, inside(context, context.salt))
        : NONE;
      if (value !== NONE) properties.set(key, value);
      return value !== NONE;
    };
    for (const key of required) if (!add(key)) return NONE;
    for (const key of Object.keys(declared)) {
      const isWanted = context.depth < MAX_OPTIONAL_DEPTH || properties.size < minProperties;
      if (properties.size >= maxProperties || !isWanted || !this.#spend(0)) break;
      if (!properties.has(key)) add(key);
    }
    for (let extra = 0; properties.size < minProperties; extra++) {
      if (extra >= 2 * MAX_EXTRA_PROPERTIES) return NONE;
      if (!properties.has(`property${extra}`)) add(`property${extra}`);
    }
    const declaredKeys = Object.keys(declared).filter((key) => properties.has(key));
    return Object.fromEntries(
      [...new Set([...declaredKeys, ...properties.keys()])].map((k) => [k, properties.get(k)]),
    );
  }
}

function inside(context: Context, salt: number): Context {
  return {
    depth: context.depth + 1,
    nesting: context.nesting + 1,
    outer: [...context.outer, ...context.references],
    references: new Set(),
    salt,
  };
}

/** Returns the types to try, null last. Without `type` the other keywords decide. */
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

/** Returns a string with the demanded pattern, format or length. */
function stringExample(keywords: Keywords, salt: number): string | undefined {
  const minLength = numberOf(keywords.minLength) ?? 0;
  const maxLength = numberOf(keywords.maxLength) ?? Number.POSITIVE_INFINITY;
  if (minLength > maxLength) return undefined;
  const targetLength = Math.min(minLength, MAX_STRING_CHARACTERS);
  if (typeof keywords.pattern === "string") {
    const example = patternExample(keywords.pattern, targetLength, MAX_STRING_CHARACTERS);
    if (example !== undefined) return example;
  }
  const formatted = FORMAT_EXAMPLES.get(keywords.format);
  if (formatted !== undefined && formatted.length >= minLength && formatted.length <= maxLength) {
    return formatted;
  }
  const plain = salt === 0 ? "example" : `${salt}-example`;
  const length = Math.min(maxLength, Math.max(targetLength, plain.length));
  return plain.repeat(Math.ceil(length / plain.length)).slice(0, length);
}

/** Returns the number nearest to 1 in the range that is a multiple of the divisor. */
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
    const distance = Math.ceil(tries / 2);
    const candidate = (nearest + (tries % 2 === 0 ? -distance : distance)) * step;
    if (fits(candidate) && skipped-- === 0) return candidate;
  }
  const between = low + (high - low) / (2 + salt);
  return fits(between) ? between : undefined;
}
