import type { Database } from "../../db/client.ts";
import { subscribedTypes } from "../../db/queries/webhooks.ts";
import { ALL_EVENTS, EVENT_TYPES, type EventType } from "../events/event-types.ts";

const MAX_ORGANIZATIONS = 50_000;
const ALL_TYPES: ReadonlySet<string> = new Set(EVENT_TYPES);

/** Which event types the webhooks of each organization subscribe to, so that no event is emitted without a receiver. */
export class Subscriptions {
  readonly #sql: Database;
  readonly #types = new Map<string, ReadonlySet<string>>();
  readonly #loading = new Map<string, Promise<ReadonlySet<string>>>();

  constructor(sql: Database) {
    this.#sql = sql;
  }

  /** At once where it is known, which it is but for an organization's first time. */
  wants(organizationId: string, type: EventType): boolean | Promise<boolean> {
    const types = this.#types.get(organizationId);
    if (types !== undefined) return types.has(type);
    return this.#load(organizationId).then((loaded) => loaded.has(type));
  }

  /** They may have changed. */
  forget(organizationId: string): void {
    this.#types.delete(organizationId);
    this.#loading.delete(organizationId);
  }

  forgetAll(): void {
    this.#types.clear();
    this.#loading.clear();
  }

  #load(organizationId: string): Promise<ReadonlySet<string>> {
    const known = this.#loading.get(organizationId);
    if (known !== undefined) return known;
    const loading: Promise<ReadonlySet<string>> = subscribedTypes(this.#sql, organizationId).then(
      (types) => {
        const wanted = types.includes(ALL_EVENTS) ? ALL_TYPES : new Set(types);
        // What was forgotten meanwhile is not to be remembered.
        if (this.#loading.get(organizationId) !== loading) return wanted;
        this.#loading.delete(organizationId);
        if (this.#types.size >= MAX_ORGANIZATIONS) this.#types.clear();
        this.#types.set(organizationId, wanted);
        return wanted;
      },
      () => {
        if (this.#loading.get(organizationId) === loading) this.#loading.delete(organizationId);
        // An event without a subscriber does no harm.
        return ALL_TYPES;
      },
    );
    this.#loading.set(organizationId, loading);
    return loading;
  }
}
