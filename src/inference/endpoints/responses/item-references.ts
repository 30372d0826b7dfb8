import { GatewayError } from "../../../lib/errors.ts";
import { type Item, inputItems, type ResponsesTurn, typeOfItem } from "./request.ts";
import { withSummary } from "./summary-content.ts";

/**
 * Returns the id that an item refers to, or undefined if the item is not a reference. The type of a reference
 * can be absent.
 */
export function referredId(item: Item): string | undefined {
  if (item.type === "item_reference") return item.id ?? undefined;
  const isBare = (item.type ?? undefined) === undefined && item.role === undefined;
  return isBare ? (item.id ?? undefined) : undefined;
}

/**
 * Returns all items of a turn's conversation in the form that models receive. Throws 400 for an unknown
 * reference.
 */
export function turnItems(turn: ResponsesTurn): readonly Item[] {
  return [...earlierItems(turn), ...resolvedInput(turn)].map(withSummary);
}

function earlierItems({ earlier, removed = [] }: ResponsesTurn): readonly Item[] {
  if (removed.length === 0) return earlier;
  const out = new Set<unknown>(removed);
  return earlier.filter(({ id }) => !out.has(id));
}

/**
 * Returns the input of a turn with references replaced by their items. Items that the conversation already
 * contains are left out, so that many references to one long item add it once.
 */
export function resolvedInput(turn: ResponsesTurn): readonly Item[] {
  const { body, referable } = turn;
  const input = inputItems(body);
  if (!input.some((item) => referredId(item) !== undefined)) return input;
  const byId = new Map<string, Item>();
  for (const item of [...referable, ...input]) addItem(byId, item);
  const included = new Set(earlierItems(turn).map(({ id }) => id));
  return input.flatMap((item, at) => {
    const id = referredId(item);
    if (id === undefined) {
      included.add(item.id);
      return [item];
    }
    if (included.has(id)) return [];
    const referred = byId.get(id);
    if (referred === undefined) throw notFound(at, id);
    included.add(id);
    return [referred];
  });
}

function addItem(byId: Map<string, Item>, item: Item): void {
  if (typeof item.id === "string" && referredId(item) === undefined) byId.set(item.id, item);
}

function notFound(at: number, id: string): GatewayError {
  const param = `input.${at}.id`;
  const message = `Request body field "${param}": there is no item ${JSON.stringify(id.slice(0, 100))}`;
  return new GatewayError("invalid_body", message, { param });
}

/** Throws 400 for an output without an earlier call. */
export function assertCalled(turn: ResponsesTurn): void {
  const called = new Set<unknown>();
  for (const item of earlierItems(turn)) addCall(called, item);
  for (const [at, item] of resolvedInput(turn).entries()) {
    addCall(called, item);
    if (!OUTPUTS.has(typeOfItem(item)) || called.has(item.call_id)) continue;
    const param = `input.${at}.call_id`;
    const message = `Request body field "${param}": there is no call with this id before this item`;
    throw new GatewayError("invalid_body", message, { param });
  }
}

const CALLS: ReadonlySet<string> = new Set(["function_call", "custom_tool_call"]);
const OUTPUTS: ReadonlySet<string> = new Set(["function_call_output", "custom_tool_call_output"]);

function addCall(called: Set<unknown>, item: Item): void {
  if (CALLS.has(typeOfItem(item))) called.add(item.call_id);
}
