import type { Database } from "./client.ts";
import { isTemplate, whenSent } from "./when-sent.ts";

/** A database whose connections can be given up for new ones. */
export interface RenewableDatabase {
  /** Stands for the connections of the moment. */
  readonly sql: Database;
  /** When what is under way was begun, oldest first: by `performance.now()`. */
  readonly underWay: readonly number[];
  /**
   * Gives the connections up without a word to the other side, which may be out of reach. What is under way
   * on them rejects with CONNECTION_DESTROYED; listeners move to the new ones, and are notified.
   */
  renew(): void;
}

type Listen = Parameters<Database["listen"]>;

/** `open` is called for the connections that are there first, and for each of those that follow. */
export function renewableDatabase(open: () => Database): RenewableDatabase {
  const underWay = new Map<object, number>();
  const listening: Listen[] = [];
  let current = open();
  let isEnded = false;

  const note = <Result>(running: Promise<Result>): Promise<Result> => {
    const entry = {};
    underWay.set(entry, performance.now());
    const end = () => void underWay.delete(entry);
    running.then(end, end);
    return running;
  };
  const sql = new Proxy(current, {
    apply(_, self, parameters) {
      const made: unknown = Reflect.apply(current as never, self, parameters);
      if (!isTemplate(parameters[0])) return made;
      return whenSent(made as Promise<unknown>, (send) => note(send()));
    },
    get(_, name) {
      if (name === "begin") {
        const begin = current.begin as unknown as (...all: unknown[]) => Promise<unknown>;
        return (...parameters: unknown[]) => note(begin(...parameters));
      }
      if (name === "end") isEnded = true;
      if (name === "listen") {
        return (...parameters: Listen) => {
          listening.push(parameters);
          return current.listen(...parameters);
        };
      }
      return Reflect.get(current, name);
    },
  });
  return {
    sql,
    get underWay() {
      return [...underWay.values()];
    },
    renew() {
      if (isEnded) return;
      const earlier = current;
      current = open();
      // Its end is not waited for: in a network that swallows everything it takes a quarter of an hour.
      void earlier.end({ timeout: 0 });
      // One that cannot connect yet is tried again by the driver.
      for (const parameters of listening) current.listen(...parameters).catch(() => {});
    },
  };
}
