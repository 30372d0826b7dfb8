import { BodyRender, type RenderedBody } from "../../../providers/chat-body.ts";
import { AnswerRead } from "../../../providers/thread-work.ts";
import { resolvedInput } from "./item-references.ts";
import { type Item, type Part, type ResponsesTurn, typeOfItem } from "./request.ts";
import { responseId } from "./response-json.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Prefixes of item ids by type. */
const PREFIXES: Readonly<Record<string, string>> = {
  message: "msg",
  function_call: "fc",
  function_call_output: "fco",
  custom_tool_call: "ctc",
  custom_tool_call_output: "ctco",
  reasoning: "rs",
  compaction: "cmp",
};
const OF_RESPONSE = /^[a-z]+_([0-9a-f]{32})(?:\d{2,}|i\d+)$/;

/** Returns the response that an item's id names, or undefined for an id that a client has set. */
export function responseOfItem(id: string): string | undefined {
  const [, name] = OF_RESPONSE.exec(id) ?? [];
  return name === undefined ? undefined : responseId(name);
}

/**
 * Returns the input of a turn as it is stored and listed: in the form of output, with an id for each item.
 * Ids set by clients are kept.
 */
export function storedInput(turn: ResponsesTurn, name: string): Item[] {
  return resolvedInput(turn).map((item, at) => {
    const type = typeOfItem(item);
    const prefix = Object.hasOwn(PREFIXES, type) ? PREFIXES[type] : "item";
    const { id, type: _, ...rest } = item;
    return { id: id ?? `${prefix}_${name}i${at}`, type, ...inFormOfOutput(type, rest) };
  });
}

function inFormOfOutput(type: string, item: Fields): Fields {
  if (type === "compaction") return withoutNulls(item);
  if (type === "reasoning") return { summary: [], ...withoutNulls(item) };
  const status = item.status ?? "completed";
  if (type !== "message") return { ...withParts(item, "output"), status };
  const text = item.role === "assistant" ? "output_text" : "input_text";
  const content =
    typeof item.content === "string" ? [{ type: text, text: item.content }] : item.content;
  return { ...withParts({ ...item, content }, "content"), status };
}

function withParts(item: Fields, member: "content" | "output"): Fields {
  const parts = item[member];
  return Array.isArray(parts) ? { ...item, [member]: parts.map(partInFormOfOutput) } : item;
}

function partInFormOfOutput(part: Part): Part {
  if (part.type === "input_image") return { ...part, detail: part.detail ?? "auto" };
  return part.type === "output_text" ? { annotations: [], ...part } : part;
}

function withoutNulls(item: Fields): Fields {
  return Object.fromEntries(Object.entries(item).filter(([, value]) => value !== null));
}

/** Returns the JSON of items, separated by commas. */
export function itemsJson(items: readonly Item[]): string {
  return items.map((item) => JSON.stringify(item)).join(",");
}

/** Renders the stored input of a turn in a work thread. */
export const storedInputRender = new BodyRender(
  import.meta.url,
  ({ items }): RenderedBody => ({ body: itemsJson(items as readonly Item[]) }),
);

export interface PageOptions {
  readonly limit: number;
  readonly order: "asc" | "desc";
  readonly after: string | undefined;
  /** Ids of items that are left out. */
  readonly removed?: readonly string[];
  /** The id of a single item to return instead of a page. */
  readonly only?: string;
}

/** Returns a page of items, or a single item, as JSON. The body is null if the item does not exist. */
export const itemsPage = new AnswerRead(
  import.meta.url,
  (json, { limit, order, after, removed, only }: PageOptions): { readonly body: string | null } => {
    const items = itemsIn(json, removed);
    if (only !== undefined) {
      const item = items.find(({ id }) => id === only);
      return { body: item === undefined ? null : JSON.stringify(item) };
    }
    if (order === "desc") items.reverse();
    const from = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
    if (after !== undefined && from === 0) return { body: null };
    const data = items.slice(from, from + limit);
    const page = {
      object: "list",
      data,
      first_id: data[0]?.id ?? null,
      last_id: data.at(-1)?.id ?? null,
      has_more: from + limit < items.length,
    };
    return { body: JSON.stringify(page) };
  },
);

/** Returns the items without removed ones. */
function itemsIn(json: string, removed: readonly string[] = []): Item[] {
  const items = JSON.parse(`[${json}]`) as Item[];
  if (removed.length === 0) return items;
  const out = new Set<unknown>(removed);
  return items.filter(({ id }) => !out.has(id));
}
