import { GatewayError } from "../../../lib/errors.ts";
import { type Item, inputItems, type ResponsesTurn, typeOfItem } from "./request.ts";
import { withSummary } from "./summary-content.ts";

/** The id that an item refers to, if it is a reference. Its type may be left out. */
export function referredId(item: Item): string | undefined {
  if (item.type === "item_reference") return item.id ?? undefined;
  const isBare = (item.type ?? undefined) === undefined && item.role === undefined;
  return isBare ? (item.id ?? undefined) : undefined;
}

/**
 * The items of a turn, from the beginning of its conversation on, as models are sent them. Throws 400 for an unknown
 * reference.
 */
export function turnItems(turn: ResponsesTurn): readonly Item[] {
  return [...earlierItems(turn), ...ownItems(turn)].map(withSummary);
}

function earlierItems({ earlier, removed = [] }: ResponsesTurn): readonly Item[] {
  if (removed.length === 0) return earlier;
  const out = new Set<unknown>(removed);
  return earlier.filter(({ id }) => !out.has(id));
}

/**
 * The input of a turn with items in the place of references. What stands in the conversation already is not
 * said again, so that many references to one long item make no longer conversation than one.
 */
export function ownItems(turn: ResponsesTurn): readonly Item[] {
  const { body, referable } = turn;
  const input = inputItems(body);
  if (!input.some((item) => referredId(item) !== undefined)) return input;
  const known = new Map<string, Item>();
  for (const item of [...referable, ...input]) noteItem(known, item);
  const said = new Set(earlierItems(turn).map(({ id }) => id));
  return input.flatMap((item, at) => {
    const id = referredId(item);
    if (id === undefined) {
      said.add(item.id);
      return [item];
    }
    if (said.has(id)) return [];
    const referred = known.get(id);
    if (referred === undefined) throw notFound(at, id);
    said.add(id);
    return [referred];
  });
}

function noteItem(known: Map<string, Item>, item: Item): void {
  if (typeof item.id === "string" && referredId(item) === undefined) known.set(item.id, item);
}

function notFound(at: number, id: string): GatewayError {
  const param = `input.${at}.id`;
  const message = `Request body field "${param}": there is no item ${JSON.stringify(id.slice(0, 100))}`;
  return new GatewayError("invalid_body", message, { param });
}

/** Calls without outputs behind them, and outputs without calls before them, have no place in a conversation. */
export function assertCalled(turn: ResponsesTurn): void {
  const called = new Set<unknown>();
  for (const item of earlierItems(turn)) noteCall(called, item);
  for (const [at, item] of ownItems(turn).entries()) {
    noteCall(called, item);
    if (!OUTPUTS.has(typeOfItem(item)) || called.has(item.call_id)) continue;
    const param = `input.${at}.call_id`;
    const message = `Request body field "${param}": there is no call with this id before it`;
    throw new GatewayError("invalid_body", message, { param });
  }
}

const CALLS: ReadonlySet<string> = new Set(["function_call", "custom_tool_call"]);
const OUTPUTS: ReadonlySet<string> = new Set(["function_call_output", "custom_tool_call_output"]);

function noteCall(called: Set<unknown>, item: Item): void {
  if (CALLS.has(typeOfItem(item))) called.add(item.call_id);
}
