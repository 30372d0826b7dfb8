import type { Clock } from "../../lib/clock.ts";
import type { ProviderConfig } from "../../platform/config/providers.ts";
import type { ModelLists, StoredModelList } from "../../providers/catalogue/model-list-cache.ts";
import type { DiscoveredModel } from "../../providers/catalogue/read-model-list.ts";

const FIRST_RETRY_MS = 60_000;
/**
 * The random part of the interval between two readings, so that instances do not send their requests at the
 * same time.
 */
const JITTER = 0.1;

export interface ModelListsDependencies {
  /** Returns the providers whose lists are read. */
  providers(): readonly ProviderConfig[];
  readonly clock: Clock;
  readonly intervalMs: number;
  random(): number;
  /** Reads a provider's list. Rejects with an Error whose message has one line. */
  readList(provider: ProviderConfig): Promise<readonly DiscoveredModel[]>;
  /** The lists that an earlier process saved. */
  readonly saved: ReadonlyMap<string, StoredModelList>;
  save(lists: ReadonlyMap<string, StoredModelList>): Promise<void>;
  /** Called once after each reading with changed models. If it rejects, the lists are read again soon. */
  onChanged(lists: ModelLists): Promise<void>;
  onUnanswered(provider: ProviderConfig, reason: string): void;
  onError(error: unknown): void;
}

/**
 * The model lists of providers, read in the background. Nothing waits for them, and a provider that does not
 * answer keeps its previous list. Each instance reads the lists itself. A request is priced by the list that
 * its instance had at admission.
 */
export class ProvidersModelLists {
  readonly #dependencies: ModelListsDependencies;
  readonly #lists: Map<string, StoredModelList>;
  #cancelNext: (() => void) | undefined;
  /** The lists of the last successful call of `changed`. */
  #published: string;
  #failures = 0;
  #isStopped = false;
  /** The latest reading. Readings run one after another. */
  #reading: Promise<void> = Promise.resolve();
  #isReadingAll = false;

  constructor(dependencies: ModelListsDependencies) {
    this.#dependencies = dependencies;
    this.#lists = new Map(dependencies.saved);
    this.#published = JSON.stringify([...this.lists]);
  }

  get lists(): ModelLists {
    return new Map([...this.#lists].map(([id, { models }]) => [id, models]));
  }

  /** Reads all lists now, and then periodically until it is stopped. */
  start(): void {
    this.#cancelNext?.();
    if (this.#isReadingAll) return;
    this.#isReadingAll = true;
    this.#reading = this.#reading.then(async () => {
      const providers = this.#dependencies.providers();
      const failed = await this.#read(providers);
      this.#failures = failed === 0 ? 0 : this.#failures + 1;
      await this.#publish(failed < providers.length);
      this.#isReadingAll = false;
      this.#schedule();
    });
  }

  /** Reads the list of one provider. A server that was down can have other models after its recovery. */
  readAgain(providerId: string): void {
    const selected = this.#dependencies.providers().filter(({ id }) => id === providerId);
    this.#reading = this.#reading.then(async () => {
      const failed = await this.#read(selected);
      await this.#publish(failed < selected.length);
    });
  }

  /** Drops the list of a provider whose settings have changed. */
  forget(providerId: string): void {
    this.#lists.delete(providerId);
  }

  /** Resolves when all started readings have ended. */
  async settled(): Promise<void> {
    await this.#reading;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelNext?.();
  }

  /** Reads lists. Returns the number of providers that did not answer. */
  async #read(providers: readonly ProviderConfig[]): Promise<number> {
    const { clock } = this.#dependencies;
    let failed = 0;
    await Promise.all(
      providers.map(async (provider) => {
        const models = this.#isStopped ? undefined : await this.#tryRead(provider);
        if (models === undefined) failed++;
        else this.#lists.set(provider.id, { models, readAtMs: clock.nowMs() });
      }),
    );
    return failed;
  }

  /** @param isRead true if there are lists to save */
  async #publish(isRead: boolean): Promise<void> {
    const { save, onError } = this.#dependencies;
    if (this.#isStopped) return;
    try {
      await this.#publishLists();
      if (isRead) await save(this.#lists);
    } catch (error) {
      onError(error);
    }
  }

  async #publishLists(): Promise<void> {
    const lists = JSON.stringify([...this.lists]);
    if (lists === this.#published) return;
    try {
      await this.#dependencies.onChanged(this.lists);
      this.#published = lists;
    } catch (error) {
      this.#failures = Math.max(1, this.#failures);
      throw error;
    }
  }

  async #tryRead(provider: ProviderConfig): Promise<readonly DiscoveredModel[] | undefined> {
    try {
      return await this.#dependencies.readList(provider);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (!this.#isStopped) this.#dependencies.onUnanswered(provider, reason);
      return undefined;
    }
  }

  /** Schedules the next reading. After a failure it is sooner, with exponential backoff. */
  #schedule(): void {
    if (this.#isStopped) return;
    const { clock, intervalMs, random } = this.#dependencies;
    const retryMs = this.#failures === 0 ? intervalMs : FIRST_RETRY_MS * 2 ** (this.#failures - 1);
    const delayMs = Math.min(retryMs, intervalMs) * (1 + JITTER * random());
    this.#cancelNext = clock.after(delayMs, () => this.start());
  }
}
