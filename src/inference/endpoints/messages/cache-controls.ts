import { isFields } from "../../../lib/json.ts";
import type { Message, MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** The cache breakpoints of a request. */
export interface CacheControls {
  readonly isAny: boolean;
  /** The parameter of the first breakpoint with a lifetime of more than five minutes. */
  readonly longLifetime: string | undefined;
}

export function cacheControlsOf(body: MessagesBody): CacheControls {
  const controls = { isAny: false, longLifetime: undefined as string | undefined };
  changed(body, (control, path) => {
    controls.isAny = true;
    if (isLong(control)) controls.longLifetime ??= path;
    return control;
  });
  return controls;
}

/** Returns the request with all cache lifetimes set to the default of five minutes. */
export function withDefaultLifetime(body: MessagesBody): MessagesBody {
  return changed(body, (control) => {
    if (!isLong(control)) return control;
    const { ttl: _, ...usual } = control;
    return usual;
  });
}

/** Returns the request with breakpoints reduced to type and lifetime, which every platform supports. */
export function withPlainCache(body: MessagesBody): MessagesBody {
  return changed(body, (control) => {
    const { type, ttl, ...rest } = control;
    if (Object.keys(rest).length === 0) return control;
    return typeof ttl === "string" ? { type, ttl } : { type };
  });
}

function isLong({ ttl }: Fields): boolean {
  return ttl !== undefined && ttl !== null && ttl !== "5m";
}

/** Returns the new value of a breakpoint, or the breakpoint itself if nothing changes. */
type Change = (control: Fields, path: string) => Fields;

function changed(body: MessagesBody, change: Change): MessagesBody {
  const messages = mapped(body.messages, "messages.", (message, path) => {
    const content = holdersOf(message.content, `${path}content.`, change);
    return content === message.content ? message : ({ ...message, content } as Message);
  });
  const holder = holderOf(body, "", change) as MessagesBody;
  const system = holdersOf(body.system, "system.", change) as MessagesBody["system"];
  const tools = holdersOf(body.tools, "tools.", change) as MessagesBody["tools"];
  const isUnchanged =
    holder === body && messages === body.messages && system === body.system && tools === body.tools;
  if (isUnchanged) return body;
  return {
    ...holder,
    messages,
    ...(system !== undefined && { system }),
    ...(tools !== undefined && { tools }),
  };
}

/**
 * Applies a change to the breakpoints of blocks. Blocks can contain others: tool results, in a list or alone,
 * and documents.
 */
function holdersOf(holders: unknown, path: string, change: Change): unknown {
  if (isFields(holders)) return nestedOf(holders, path, change);
  if (!Array.isArray(holders)) return holders;
  return mapped(holders, path, (block, at) =>
    isFields(block) ? nestedOf(block, at, change) : block,
  );
}

function nestedOf(block: Fields, path: string, change: Change): Fields {
  const holder = holderOf(block, path, change);
  const content = holdersOf(block.content, `${path}content.`, change);
  const { source } = block;
  const inner = isFields(source)
    ? holdersOf(source.content, `${path}source.content.`, change)
    : undefined;
  const isOuter = content === block.content;
  const isInner = !isFields(source) || inner === source.content;
  if (isOuter && isInner) return holder;
  return {
    ...holder,
    ...(!isOuter && { content }),
    ...(!isInner && { source: { ...source, content: inner } }),
  };
}

function holderOf(holder: Fields, path: string, change: Change): Fields {
  const control = holder.cache_control;
  if (!isFields(control)) return holder;
  const next = change(control, `${path}cache_control.ttl`);
  return next === control ? holder : { ...holder, cache_control: next };
}

/** Maps a list. Returns the list itself if no item changes. */
function mapped<Item>(
  items: readonly Item[],
  path: string,
  map: (item: Item, path: string) => Item,
): readonly Item[] {
  const next = items.map((item, at) => map(item, `${path}${at}.`));
  return next.every((item, at) => item === items[at]) ? items : next;
}
