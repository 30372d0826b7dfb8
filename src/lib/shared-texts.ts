/** Above this many different texts, or lists, they are gathered anew; records keep the copies they have. */
const MAX_TEXTS = 10_000;
const MAX_LISTS = 1_000;
/** Of a list as JSON: longer ones are hardly ever alike, and stay with their records. */
const MAX_LIST_LENGTH = 2_048;

/**
 * One copy of what many records say alike, such as the id of their organization and their list of scopes:
 * each record comes out of the database with strings of its own, and a process may hold 100,000.
 */
export class SharedTexts {
  readonly #texts = new Map<string, string>();
  readonly #lists = new Map<string, readonly string[]>();

  text<Text extends string>(text: Text): Text {
    return one(this.#texts, MAX_TEXTS, text, text) as Text;
  }

  list(list: readonly string[]): readonly string[] {
    const json = JSON.stringify(list);
    return json.length > MAX_LIST_LENGTH ? list : one(this.#lists, MAX_LISTS, json, list);
  }
}

function one<Value>(known: Map<string, Value>, max: number, key: string, value: Value): Value {
  const found = known.get(key);
  if (found !== undefined) return found;
  if (known.size >= max) known.clear();
  known.set(key, value);
  return value;
}
