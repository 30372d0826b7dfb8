import type { Clock } from "../../lib/clock.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import type { KeptList, ModelLists } from "../../providers/catalogue/model-list-cache.ts";
import type { DiscoveredModel } from "../../providers/catalogue/read-model-list.ts";

const FIRST_RETRY_MS = 60_000;
/** Of the time between two readings, so that instances do not ask all at once. */
const JITTER = 0.1;

export interface ModelListsDependencies {
  readonly providers: readonly ProviderConfig[];
  readonly clock: Clock;
  readonly intervalMs: number;
  random(): number;
  /** Rejects with an Error of one line. */
  ask(provider: ProviderConfig): Promise<readonly DiscoveredModel[]>;
  /** What an earlier run kept. */
  readonly kept: ReadonlyMap<string, KeptList>;
  keep(lists: ReadonlyMap<string, KeptList>): Promise<void>;
  /** Called once after each reading that brought other models. Where it rejects they are read again soon. */
  changed(lists: ModelLists): Promise<void>;
  onUnanswered(provider: ProviderConfig, reason: string): void;
  onError(error: unknown): void;
}

/**
 * What providers list themselves, asked for in the background: nothing waits for it, and a provider that
 * does not answer keeps the list that it had. Each instance asks for itself; a request is priced by what
 * its own instance knew when it was admitted.
 */
export class ProvidersModelLists {
  readonly #dependencies: ModelListsDependencies;
  readonly #lists: Map<string, KeptList>;
  #cancelNext: (() => void) | undefined;
  /** The lists of which `changed` was the last to succeed. */
  #published: string;
  #failures = 0;
  #isStopped = false;
  /** The last of the readings, which run one after another. */
  #reading: Promise<void> = Promise.resolve();
  #isReadingAll = false;

  constructor(dependencies: ModelListsDependencies) {
    this.#dependencies = dependencies;
    this.#lists = new Map(dependencies.kept);
    this.#published = JSON.stringify([...this.lists]);
  }

  get lists(): ModelLists {
    return new Map([...this.#lists].map(([id, { models }]) => [id, models]));
  }

  /** Asks at once, and again from time to time until it is stopped. */
  start(): void {
    this.#cancelNext?.();
    if (this.#isReadingAll) return;
    this.#isReadingAll = true;
    this.#reading = this.#reading.then(async () => {
      const { providers } = this.#dependencies;
      const failed = await this.#read(providers);
      this.#failures = failed === 0 ? 0 : this.#failures + 1;
      await this.#publish(failed < providers.length);
      this.#isReadingAll = false;
      this.#schedule();
    });
  }

  /** Reads the list of one provider: a server that was away may have come back with other models. */
  readAgain(providerId: string): void {
    const asked = this.#dependencies.providers.filter(({ id }) => id === providerId);
    this.#reading = this.#reading.then(async () => {
      const failed = await this.#read(asked);
      await this.#publish(failed < asked.length);
    });
  }

  /** Resolves when the readings that were begun have ended. */
  async settled(): Promise<void> {
    await this.#reading;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelNext?.();
  }

  /** Returns how many did not answer. */
  async #read(providers: readonly ProviderConfig[]): Promise<number> {
    const { clock } = this.#dependencies;
    let failed = 0;
    await Promise.all(
      providers.map(async (provider) => {
        const models = this.#isStopped ? undefined : await this.#asked(provider);
        if (models === undefined) failed++;
        else this.#lists.set(provider.id, { models, readAtMs: clock.nowMs() });
      }),
    );
    return failed;
  }

  /** @param isRead whether there is something to keep */
  async #publish(isRead: boolean): Promise<void> {
    const { keep, onError } = this.#dependencies;
    if (this.#isStopped) return;
    try {
      await this.#publishLists();
      if (isRead) await keep(this.#lists);
    } catch (error) {
      onError(error);
    }
  }

  async #publishLists(): Promise<void> {
    const lists = JSON.stringify([...this.lists]);
    if (lists === this.#published) return;
    try {
      await this.#dependencies.changed(this.lists);
      this.#published = lists;
    } catch (error) {
      this.#failures = Math.max(1, this.#failures);
      throw error;
    }
  }

  async #asked(provider: ProviderConfig): Promise<readonly DiscoveredModel[] | undefined> {
    try {
      return await this.#dependencies.ask(provider);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (!this.#isStopped) this.#dependencies.onUnanswered(provider, reason);
      return undefined;
    }
  }

  /** A provider that did not answer is asked again sooner, ever less so. */
  #schedule(): void {
    if (this.#isStopped) return;
    const { clock, intervalMs, random } = this.#dependencies;
    const retryMs = this.#failures === 0 ? intervalMs : FIRST_RETRY_MS * 2 ** (this.#failures - 1);
    const delayMs = Math.min(retryMs, intervalMs) * (1 + JITTER * random());
    this.#cancelNext = clock.after(delayMs, () => this.start());
  }
}
