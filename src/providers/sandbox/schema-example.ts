import { numberExample, stringExample } from "./scalar-example.ts";
import { itemSchemas, type SchemaWork, satisfies } from "./schema-check.ts";
import { type Alternatives, type FlatSchema, flatten, mergeFlat } from "./schema-flatten.ts";
import { isKeywords, type Keywords, listOf, numberOf, typesOf } from "./schema-keywords.ts";

const MAX_STEPS = 20_000;
const MAX_CHECKS = 50_000;
const MAX_DEPTH = 24;
/** Optional properties are filled in down to this level, and left out below it. */
const MAX_OPTIONAL_DEPTH = 4;
const MAX_ITEMS = 1_000;
const MAX_EXTRA_PROPERTIES = 100;
/** Other values that are tried when one is taken already, or forbidden by `not`. */
const MAX_OTHER_VALUES = 16;

/** Stands for "no value can be made", which no JSON value does. */
const NONE = Symbol("no value");
type Made = unknown | typeof NONE;

interface Place {
  readonly depth: number;
  /** The references followed on the way here. */
  readonly references: readonly string[];
  /** Another number asks for another value. */
  readonly salt: number;
}

const TOP: Place = { depth: 0, references: [], salt: 0 };

/**
 * A value that satisfies a JSON Schema (drafts 4 to 2020-12): always the same for the same schema.
 * Bounded in work, depth and size whatever the schema is; `{}` or null where nothing fits. Patterns
 * are met as far as they are understood, formats as far as they are known.
 */
export function exampleOf(schema: unknown): unknown {
  const made = new ExampleMaker(schema).make(schema, TOP);
  if (made !== NONE) return made;
  const types = isKeywords(schema) ? typesOf(schema) : undefined;
  return types?.includes("object") ? {} : null;
}

/** Such a value for the arguments of a function: an object, unless the schema has no room for one. */
export function argumentsOf(schema: unknown): unknown {
  const made = new ExampleMaker(schema).make({ allOf: [schema, { type: "object" }] }, TOP);
  return made === NONE ? exampleOf(schema) : made;
}

class ExampleMaker {
  readonly #work: SchemaWork;

  constructor(root: unknown) {
    this.#work = { root, stepsLeft: MAX_STEPS, checksLeft: MAX_CHECKS };
  }

  make(schema: unknown, place: Place): Made {
    if (place.depth > MAX_DEPTH) return NONE;
    const flat = flatten(schema, this.#work, place.references);
    return flat === undefined ? NONE : this.#makeFlat(flat, place);
  }

  #makeFlat(flat: FlatSchema, place: Place): Made {
    const [alternatives, ...others] = flat.alternatives;
    if (alternatives !== undefined) {
      return this.#makeAlternative({ ...flat, alternatives: others }, alternatives, place);
    }
    const { keywords } = flat;
    const here = { ...place, references: flat.references };
    if (Object.hasOwn(keywords, "const")) return this.#firstThatFits([keywords.const], keywords);
    if (Array.isArray(keywords.enum)) {
      const start = keywords.enum.length === 0 ? 0 : place.salt % keywords.enum.length;
      const turned = [...keywords.enum.slice(start), ...keywords.enum.slice(0, start)];
      return this.#firstThatFits(turned, keywords);
    }
    const offered = [
      ...(Object.hasOwn(keywords, "default") ? [keywords.default] : []),
      ...listOf(keywords.examples),
    ];
    const fitting = place.salt === 0 ? this.#firstThatFits(offered, keywords) : NONE;
    return fitting === NONE ? this.#makeAllowed(keywords, here) : fitting;
  }

  /** The first branch that yields a value which the whole accepts, else the first that yields any. */
  #makeAlternative(rest: FlatSchema, alternatives: Alternatives, place: Place): Made {
    let fallback: Made = NONE;
    for (const branch of alternatives.branches) {
      const flatBranch = flatten(branch, this.#work, rest.references);
      const merged = flatBranch && mergeFlat(rest, flatBranch, rest.references.length, this.#work);
      if (merged === undefined) continue;
      const made = this.#makeFlat(merged, place);
      if (made === NONE) continue;
      if (satisfies(made, alternatives.whole, this.#work)) return made;
      if (fallback === NONE) fallback = made;
    }
    return fallback;
  }

  #firstThatFits(values: readonly unknown[], keywords: Keywords): Made {
    for (const value of values) if (satisfies(value, keywords, this.#work)) return value;
    return NONE;
  }

  /** Values of the allowed types, until one is met by `not`'s complement too. */
  #makeAllowed(keywords: Keywords, place: Place): Made {
    let fallback: Made = NONE;
    const { not: forbidden, ...wanted } = keywords;
    const tries = forbidden === undefined ? 1 : MAX_OTHER_VALUES;
    for (const type of orderedTypes(keywords)) {
      for (let other = 0; other < tries; other++) {
        const made = this.#makeTyped(type, wanted, { ...place, salt: place.salt + other });
        if (made === NONE) break;
        if (forbidden === undefined || !satisfies(made, forbidden, this.#work)) return made;
        if (fallback === NONE) fallback = made;
      }
    }
    return fallback;
  }

  #makeTyped(type: unknown, keywords: Keywords, place: Place): Made {
    switch (type) {
      case "null":
        return null;
      case "boolean":
        return place.salt % 2 === 0;
      case "string":
        return stringExample(keywords, place.salt) ?? NONE;
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
    const minItems = Math.max(0, numberOf(keywords.minItems) ?? 0);
    const maxItems = Math.min(MAX_ITEMS, numberOf(keywords.maxItems) ?? MAX_ITEMS);
    const { first, rest } = itemSchemas(keywords);
    const found = keywords.contains === undefined ? 0 : (numberOf(keywords.minContains) ?? 1);
    const count = Math.min(Math.max(minItems, found, first.length, 1), maxItems);
    const foundFrom = Math.max(0, Math.min(first.length, count - found));
    const items: unknown[] = [];
    const seen = new Set<string>();
    while (items.length < count) {
      const index = items.length;
      const own = index < first.length ? first[index] : rest;
      const isFound = index >= foundFrom && index < foundFrom + found;
      const schema = isFound ? { allOf: [own, keywords.contains] } : own;
      const item =
        keywords.uniqueItems === true
          ? this.#makeUnseen(schema, place, index, seen)
          : this.make(schema, inside(place, index === 0 ? place.salt : 0));
      if (item === NONE) return index >= Math.max(minItems, found) ? items : NONE;
      items.push(item);
    }
    return items.length >= Math.min(minItems, MAX_ITEMS) ? items : NONE;
  }

  #makeUnseen(schema: unknown, place: Place, index: number, seen: Set<string>): Made {
    for (let other = 0; other < MAX_OTHER_VALUES; other++) {
      const made = this.make(schema, inside(place, place.salt + index + other));
      if (made === NONE) return NONE;
      const json = JSON.stringify(made);
      if (seen.has(json)) continue;
      seen.add(json);
      return made;
    }
    return NONE;
  }

  #makeObject(keywords: Keywords, place: Place): Made {
    const declared = isKeywords(keywords.properties) ? keywords.properties : {};
    const required = new Set(listOf(keywords.required).map(String));
    addDependents(required, keywords.dependentRequired);
    const maxProperties = numberOf(keywords.maxProperties) ?? Number.POSITIVE_INFINITY;
    const undeclared = keywords.additionalProperties ?? true;
    const made = new Map<string, unknown>();
    for (const key of required) {
      const schema = Object.hasOwn(declared, key) ? declared[key] : undeclared;
      const value = this.make(schema, inside(place, place.salt));
      if (value === NONE) return NONE;
      made.set(key, value);
    }
    const dependent = isKeywords(keywords.dependentRequired) ? keywords.dependentRequired : {};
    for (const [key, schema] of Object.entries(declared)) {
      if (made.size >= maxProperties || place.depth >= MAX_OPTIONAL_DEPTH) break;
      if (made.has(key) || !listOf(dependent[key]).every((other) => made.has(String(other)))) {
        continue;
      }
      const value = this.make(schema, inside(place, place.salt));
      if (value !== NONE) made.set(key, value);
    }
    if (!this.#addProperties(made, keywords, undeclared, place)) return NONE;
    return Object.fromEntries(inDeclaredOrder(made, declared));
  }

  /** Fills an object up to `minProperties`, first with declared ones, then with made-up keys. */
  #addProperties(
    made: Map<string, unknown>,
    keywords: Keywords,
    undeclared: unknown,
    place: Place,
  ): boolean {
    const wanted = Math.min(numberOf(keywords.minProperties) ?? 0, MAX_EXTRA_PROPERTIES);
    const declared = isKeywords(keywords.properties) ? keywords.properties : {};
    const pending = Object.keys(declared).filter((key) => !made.has(key));
    for (let other = 0; made.size < wanted; other++) {
      if (other > wanted + pending.length + MAX_OTHER_VALUES) return false;
      const key = pending[other] ?? this.#makeKey(keywords.propertyNames, place, other);
      if (key === undefined || made.has(key)) continue;
      const schema = Object.hasOwn(declared, key) ? declared[key] : undeclared;
      const value = this.make(schema, inside(place, place.salt));
      if (value !== NONE) made.set(key, value);
    }
    return true;
  }

  #makeKey(names: unknown, place: Place, salt: number): string | undefined {
    if (names === undefined) return `property${salt}`;
    const key = this.make({ allOf: [{ type: "string" }, names] }, inside(place, salt));
    return typeof key === "string" ? key : undefined;
  }
}

function inside(place: Place, salt: number): Place {
  return { depth: place.depth + 1, references: place.references, salt };
}

/** The types to try, null last; where none is named, the one that the other keywords speak of. */
function orderedTypes(keywords: Keywords): readonly unknown[] {
  const types = typesOf(keywords);
  if (types !== undefined) {
    const distinct = new Set(types);
    return distinct.delete("null") ? [...distinct, "null"] : [...distinct];
  }
  const speaks = (...names: string[]) => names.some((name) => keywords[name] !== undefined);
  if (speaks("properties", "required", "additionalProperties", "minProperties", "propertyNames")) {
    return ["object"];
  }
  if (speaks("items", "prefixItems", "minItems", "contains", "uniqueItems")) return ["array"];
  if (speaks("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")) {
    return ["number"];
  }
  return ["string", "number", "boolean", "object", "array", "null"];
}

function addDependents(required: Set<string>, dependentRequired: unknown): void {
  if (!isKeywords(dependentRequired)) return;
  // A set visits what is added while it is walked.
  for (const key of required) {
    if (!Object.hasOwn(dependentRequired, key)) continue;
    for (const other of listOf(dependentRequired[key])) required.add(String(other));
  }
}

function inDeclaredOrder(made: Map<string, unknown>, declared: Keywords): [string, unknown][] {
  const known = Object.keys(declared).filter((key) => made.has(key));
  const others = [...made.keys()].filter((key) => !Object.hasOwn(declared, key));
  return [...known, ...others].map((key) => [key, made.get(key)]);
}
