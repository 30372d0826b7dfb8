/** Most different texts. At this number the map is cleared; records keep their copies. */
const MAX_TEXTS = 10_000;
const MAX_LISTS = 1_000;
/** Longest JSON of a shared list, in characters. Longer lists are rarely equal. */
const MAX_LIST_LENGTH = 2_048;

/**
 * Shares equal strings and lists between many records, such as organization ids and scopes. The driver creates
 * new ones for each record, and a process can have 100,000 records.
 */
export class SharedTexts {
  readonly #texts = new Map<string, string>();
  readonly #lists = new Map<string, readonly string[]>();

  text<Text extends string>(text: Text): Text {
    return share(this.#texts, MAX_TEXTS, text, text) as Text;
  }

  list(list: readonly string[]): readonly string[] {
    const json = JSON.stringify(list);
    return json.length > MAX_LIST_LENGTH ? list : share(this.#lists, MAX_LISTS, json, list);
  }
}

function share<Value>(shared: Map<string, Value>, max: number, key: string, value: Value): Value {
  const first = shared.get(key);
  if (first !== undefined) return first;
  if (shared.size >= max) shared.clear();
  shared.set(key, value);
  return value;
}
