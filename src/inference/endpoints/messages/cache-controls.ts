import { isFields } from "../../../lib/json.ts";
import type { Message, MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The breakpoints of Anthropic's cache in a request. */
export interface CacheControls {
  readonly isAny: boolean;
  /** Where the first one stands that asks for more than five minutes. */
  readonly longLifetime: string | undefined;
}

export function cacheControlsOf(body: MessagesBody): CacheControls {
  const found = { isAny: false, longLifetime: undefined as string | undefined };
  changed(body, (control, place) => {
    found.isAny = true;
    if (isLong(control)) found.longLifetime ??= place;
    return control;
  });
  return found;
}

/** The request with caches of the usual five minutes. */
export function withUsualCache(body: MessagesBody): MessagesBody {
  return changed(body, (control) => {
    if (!isLong(control)) return control;
    const { ttl: _, ...usual } = control;
    return usual;
  });
}

/** The request with breakpoints of what every platform knows: their type and lifetime. */
export function withPlainCache(body: MessagesBody): MessagesBody {
  return changed(body, (control) => {
    const { type, ttl, ...others } = control;
    if (Object.keys(others).length === 0) return control;
    return typeof ttl === "string" ? { type, ttl } : { type };
  });
}

function isLong({ ttl }: Fields): boolean {
  return ttl !== undefined && ttl !== null && ttl !== "5m";
}

/** Returns what stands in the place of a breakpoint: itself, where nothing changes. */
type Change = (control: Fields, place: string) => Fields;

function changed(body: MessagesBody, change: Change): MessagesBody {
  const messages = mapped(body.messages, "messages.", (message, place) => {
    const content = holdersOf(message.content, `${place}content.`, change);
    return content === message.content ? message : ({ ...message, content } as Message);
  });
  const holder = holderOf(body, "", change) as MessagesBody;
  const system = holdersOf(body.system, "system.", change) as MessagesBody["system"];
  const tools = holdersOf(body.tools, "tools.", change) as MessagesBody["tools"];
  const isSame =
    holder === body && messages === body.messages && system === body.system && tools === body.tools;
  if (isSame) return body;
  return {
    ...holder,
    messages,
    ...(system !== undefined && { system }),
    ...(tools !== undefined && { tools }),
  };
}

/** Blocks may hold others: results of tools, in a list or by themselves, and documents. */
function holdersOf(holders: unknown, place: string, change: Change): unknown {
  if (isFields(holders)) return nestedOf(holders, place, change);
  if (!Array.isArray(holders)) return holders;
  return mapped(holders, place, (one, at) => (isFields(one) ? nestedOf(one, at, change) : one));
}

function nestedOf(one: Fields, place: string, change: Change): Fields {
  const holder = holderOf(one, place, change);
  const content = holdersOf(one.content, `${place}content.`, change);
  const { source } = one;
  const inner = isFields(source)
    ? holdersOf(source.content, `${place}source.content.`, change)
    : undefined;
  const isOuter = content === one.content;
  const isInner = !isFields(source) || inner === source.content;
  if (isOuter && isInner) return holder;
  return {
    ...holder,
    ...(!isOuter && { content }),
    ...(!isInner && { source: { ...source, content: inner } }),
  };
}

function holderOf(holder: Fields, place: string, change: Change): Fields {
  const control = holder.cache_control;
  if (!isFields(control)) return holder;
  const next = change(control, `${place}cache_control.ttl`);
  return next === control ? holder : { ...holder, cache_control: next };
}

/** The same list where no item changes. */
function mapped<Item>(
  items: readonly Item[],
  place: string,
  map: (item: Item, place: string) => Item,
): readonly Item[] {
  const next = items.map((item, at) => map(item, `${place}${at}.`));
  return next.every((item, at) => item === items[at]) ? items : next;
}
