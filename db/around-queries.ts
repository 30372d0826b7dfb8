import type { Database } from "./client.ts";

/** Sends a query and returns its result, or another result instead. */
export type AroundQuery = (send: () => Promise<unknown>) => Promise<unknown>;

type Members = Partial<Record<keyof Database, (...parameters: never[]) => unknown>>;

/**
 * Returns a database that sends each query through `around` and has additional `members`. It is a proxy, because the
 * driver's `sql` is a function with members and has no hook around a query.
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

/** Returns false for the parameters of a name or a list, which become a part of another query. */
function isTemplate(first: unknown): boolean {
  return Array.isArray(first) && "raw" in first;
}

/**
 * Returns a query that is sent when `then` is first called. A part of another query is never sent by itself.
 */
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
