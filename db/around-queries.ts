import type { Database } from "./client.ts";

/** Sends a query, and returns its result or what is to be had in its place. */
export type AroundQuery = (send: () => Promise<unknown>) => Promise<unknown>;

type Members = Partial<Record<keyof Database, (...parameters: never[]) => unknown>>;

/**
 * The database of the moment, whose queries are sent through `around`, with some `members` of its own.
 * A proxy, because the driver's `sql` is a function with members and knows no hook around a query.
 */
export function aroundQueries(
  current: () => Database,
  around: AroundQuery,
  members: Members,
): Database {
  return new Proxy(current(), {
    apply(_, self, parameters) {
      const made: unknown = Reflect.apply(current() as never, self, parameters);
      return isTemplate(parameters[0]) ? sentThrough(made as Promise<unknown>, around) : made;
    },
    get(_, name) {
      return Object.hasOwn(members, name)
        ? members[name as keyof Database]
        : Reflect.get(current(), name);
    },
  });
}

/** False for the parameters of a name or a list, which become a part of another query. */
function isTemplate(first: unknown): boolean {
  return Array.isArray(first) && "raw" in first;
}

/** Each query sends itself when `then` is first called, and a part of another one never: so does this. */
function sentThrough(query: Promise<unknown>, around: AroundQuery): Promise<unknown> {
  const { then } = query;
  const send = () => new Promise((resolve, reject) => void then.call(query, resolve, reject));
  let sent: Promise<unknown> | undefined;
  // biome-ignore lint/suspicious/noThenProperty: the driver's queries are thenables that begin here
  return Object.defineProperty(query, "then", {
    configurable: true,
    value(onDone?: never, onFailed?: never) {
      sent ??= around(send);
      return sent.then(onDone, onFailed);
    },
  });
}
