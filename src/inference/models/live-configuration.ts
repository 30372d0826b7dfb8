import type { Database, Query } from "../../../db/client.ts";
import { readConfiguration, type StoredEntry } from "../../../db/queries/configuration.ts";
import { type Clock, sleep } from "../../lib/clock.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { ConfigError, ConfigFaults } from "../../platform/config/config-error.ts";
import {
  isLocalServer,
  type ProviderConfig,
  SANDBOX_PROVIDER_ID,
} from "../../platform/config/providers.ts";
import {
  type RoutingConfig,
  type StoredEntries,
  storedSource,
  withStored,
} from "../../platform/config/stored.ts";
import type { GatewayConfig } from "../../platform/config.ts";
import {
  buildCatalogue,
  type Catalogue,
  type ProviderReport,
} from "../../providers/catalogue/build-catalogue.ts";
import { CatalogueViews, type Restrictions } from "../../providers/catalogue/catalogue-views.ts";
import { createModelIndex } from "../../providers/catalogue/model-index.ts";
import type { ModelLists } from "../../providers/catalogue/model-list-cache.ts";
import { nextPriceChangeMs } from "../../providers/catalogue/price-overrides.ts";
import type { BuiltInModels } from "../../providers/catalogue/provider-models.ts";
import type { Provider, ProviderSettings } from "../../providers/interface.ts";
import { createProviders, type ProviderDependencies } from "../../providers/registry.ts";
import { publishSearch } from "./model-catalogue.ts";

/** Milliseconds between two tries to read changes. */
const RETRY_MS = 250;
/** The longest time that a timer of the platform can wait, in milliseconds. */
const MAX_TIMER_MS = 2_147_483_647;

export interface LiveConfigurationDependencies {
  /** The configuration of environment and file. */
  readonly base: RoutingConfig & Pick<GatewayConfig, "providersOfFile">;
  readonly background: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly shared: ProviderDependencies;
  readonly connectTimeoutMs: number;
  builtIn(typeName: string): Promise<BuiltInModels>;
  read<Result>(query: Query<Result>): Promise<Result>;
  onReport(report: ProviderReport): void;
  onError(error: unknown): void;
}

/** A configuration with everything that follows from it. */
interface Built {
  readonly config: RoutingConfig;
  readonly catalogue: Catalogue;
}

/** The effects of a change of the stored entries. */
export interface Preview {
  /** The faults that the configuration would have in addition. Each is one line that begins with the entry. */
  readonly faults: readonly string[];
  readonly lostProviders: readonly string[];
  readonly lostModels: readonly string[];
  /** Returns true if a request with this model would no longer find it. */
  losesName(name: string): boolean;
}

const READ_ENTRIES: Query<StoredEntry[]> = {
  name: "configuration-entries",
  tables: ["configuration_entries"],
  run: readConfiguration,
};

/**
 * The providers and models that are in force: those of environment and file, with the entries that operators have
 * stored. It is built again after each change of an entry, of a provider's own list, or of a price whose time has come.
 * Requests that are running keep the providers and prices that they were admitted with.
 */
export class LiveConfiguration {
  readonly #dependencies: LiveConfigurationDependencies;
  readonly #providers = new Map<string, Provider>();
  readonly #listeners: ((changedProviders: readonly string[]) => void)[] = [];
  #settings: ReadonlyMap<string, ProviderSettings> = new Map();
  #entries: readonly StoredEntry[] = [];
  #lists: ModelLists = new Map();
  #built: Built | undefined;
  #views: CatalogueViews | undefined;
  #isOutdated = false;
  #isFollowing = false;
  /** The running write of the search index, and those that wait for it. */
  #publishing: Promise<void> = Promise.resolve();
  /** The last report of each provider, as JSON. */
  readonly #reported = new Map<string, string>();
  /** The running build, and those that wait for it. */
  #building: Promise<unknown> = Promise.resolve();
  #cancelPriceChange: (() => void) | undefined;
  #isStopped = false;

  constructor(dependencies: LiveConfigurationDependencies) {
    this.#dependencies = dependencies;
  }

  /** The providers by id. The map follows each change. */
  get providers(): ReadonlyMap<string, Provider> {
    return this.#providers;
  }

  /** The settings of the providers by id. Changes replace the map. */
  get settings(): ReadonlyMap<string, ProviderSettings> {
    return this.#settings;
  }

  get config(): RoutingConfig {
    return this.#built?.config ?? this.#dependencies.base;
  }

  get entries(): readonly StoredEntry[] {
    return this.#entries;
  }

  /** The catalogue as organizations see it. The object follows each change. Undefined before `open`. */
  get views(): CatalogueViews {
    return this.#views!;
  }

  /** Returns the origin of a configured provider. */
  originOf(providerId: string): "environment" | "file" | "stored" | "built_in" {
    const { providersOfFile } = this.#dependencies.base;
    const isStored = this.#entries.some(({ kind, id }) => kind === "provider" && id === providerId);
    if (isStored) return "stored";
    if (providersOfFile.includes(providerId)) return "file";
    return providerId === SANDBOX_PROVIDER_ID ? "built_in" : "environment";
  }

  /** Returns true if the provider did not answer when it was stored or changed. It is then not used. */
  isUnreachable(id: string): boolean {
    const stored = this.#entries.find((entry) => entry.kind === "provider" && entry.id === id);
    return stored !== undefined && stored.unreachableSinceMs !== null;
  }

  /** Creates a configured provider separately from those that requests use. Throws an Error if it cannot be. */
  create(id: string): Provider {
    const config = this.config.providers.find((provider) => provider.id === id);
    if (config === undefined) throw new Error(`no provider ${id} is configured`);
    return this.#create(config);
  }

  #create(config: ProviderConfig): Provider {
    const { connectTimeoutMs, shared } = this.#dependencies;
    return createProviders([settingsOf(config, connectTimeoutMs)], shared).get(config.id)!;
  }

  /** Subscribes to changes. The listener gets the ids of providers that were added, changed or removed. */
  onChanged(listener: (changedProviders: readonly string[]) => void): void {
    this.#listeners.push(listener);
  }

  /** Reads the stored entries and builds the configuration for the first time. */
  async open(lists: ModelLists): Promise<void> {
    this.#lists = lists;
    await this.reload();
    await this.#publishing;
  }

  /** Puts changes of other instances in force. Tries again until it succeeds. Notices meanwhile share the next try. */
  follow(): void {
    this.#isOutdated = true;
    if (this.#isFollowing) return;
    this.#isFollowing = true;
    void this.#catchUp().finally(() => {
      this.#isFollowing = false;
    });
  }

  async #catchUp(): Promise<void> {
    const { clock, onError } = this.#dependencies;
    while (this.#isOutdated && !this.#isStopped) {
      this.#isOutdated = false;
      try {
        await this.reload();
      } catch (error) {
        onError(error);
        this.#isOutdated = true;
        await sleep(clock, RETRY_MS);
      }
    }
  }

  /** Reads the stored entries again and puts them in force. Resolves when they are. */
  reload(): Promise<void> {
    return this.#inTurn(async () => {
      this.#entries = await this.#dependencies.read(READ_ENTRIES);
      await this.#build();
    });
  }

  /** Puts other model lists of providers in force. */
  async replaceLists(lists: ModelLists): Promise<void> {
    await this.#inTurn(async () => {
      this.#lists = lists;
      await this.#build();
    });
    await this.#publishing;
  }

  /** Returns what a change of the stored entries would do, without making it. */
  async preview(before: StoredEntries, after: StoredEntries): Promise<Preview> {
    const present = new ConfigFaults();
    const current = await this.#builtOf(before, present);
    addAliasFaults(current, present);
    const faults = new ConfigFaults();
    const next = await this.#builtOf(after, faults);
    addAliasFaults(next, faults);
    const lost = <One extends { readonly id: string }>(
      all: readonly One[],
      left: readonly One[],
    ) => {
      const ids = new Set(left.map(({ id }) => id));
      return all.filter(({ id }) => !ids.has(id)).map(({ id }) => id);
    };
    const [namesBefore, namesAfter] = [current, next].map(({ config, catalogue }) => {
      const index = createModelIndex(catalogue);
      const aliases = new Set(config.aliases.map(({ id }) => id));
      return (name: string) => aliases.has(name) || index.resolve(name) !== undefined;
    });
    return {
      losesName: (name) => namesBefore!(name) && !namesAfter!(name),
      faults: faults.all.filter((fault) => !present.all.includes(fault)),
      lostProviders: lost(current.config.providers, next.config.providers),
      lostModels: lost(current.catalogue.models, next.catalogue.models),
    };
  }

  /** Returns the stored entries with their secrets. An entry whose secrets cannot be opened lacks them. */
  opened(entries: readonly StoredEntry[]): StoredEntries {
    const { keyring, onError } = this.#dependencies;
    const all: { [Kind in keyof StoredEntries]: unknown[] } = {
      provider: [],
      model: [],
      alias: [],
      price: [],
    };
    for (const { kind, id, body, secret } of entries) {
      const opened = secret === null ? undefined : keyring.tryOpen(secret);
      if (secret !== null && opened === undefined) {
        onError(new ConfigError(`${storedSource(kind, id)} has secrets that no known key opens`));
      }
      const secrets = opened && JSON.parse(new TextDecoder().decode(opened.plain));
      all[kind].push({ ...body, ...secrets, id, source: storedSource(kind, id), isStored: true });
    }
    return all as unknown as StoredEntries;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelPriceChange?.();
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#building.then(work);
    this.#building = turn.catch(() => {});
    return turn;
  }

  async #builtOf(entries: StoredEntries, faults: ConfigFaults): Promise<Built> {
    const { base, builtIn, clock } = this.#dependencies;
    const all = withStored(base, entries, faults);
    const config = {
      ...all,
      providers: all.providers.filter((one) => this.#isUsable(one, faults)),
    };
    const now = new Date(clock.nowMs());
    const shared = { now, discovered: this.#lists, builtIn, faults };
    return { config, catalogue: await buildCatalogue({ ...config, ...shared }) };
  }

  /** Returns false, and adds a fault, if the provider cannot be called: its key cannot be sent. */
  #isUsable(provider: ProviderConfig, faults: ConfigFaults): boolean {
    if (this.#dependencies.base.providers.includes(provider)) return true;
    try {
      this.#create(provider);
      return true;
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      faults.add(new ConfigError(`${storedSource("provider", provider.id)}/api_key: ${reason}`));
      return false;
    }
  }

  async #build(): Promise<void> {
    const { background, onReport, onError } = this.#dependencies;
    // An entry can have a fault only through a change of environment or file. It is then left out.
    const faults = new ConfigFaults();
    const built = await this.#builtOf(this.opened(this.#entries), faults);
    for (const fault of faults.all) onError(new ConfigError(fault));
    const { config, catalogue } = built;
    for (const report of catalogue.reports) {
      const text = JSON.stringify(report);
      if (this.#reported.get(report.provider) !== text) onReport(report);
      this.#reported.set(report.provider, text);
    }
    const changed = this.#replaceProviders(
      config.providers.filter(({ id }) => !this.isUnreachable(id)),
    );
    this.#built = built;
    const restrictions = restrictionsOf(config);
    if (this.#views === undefined) this.#views = new CatalogueViews(catalogue, restrictions);
    else this.#views.replace(catalogue, restrictions);
    this.#awaitPriceChange();
    for (const listener of this.#listeners) listener(changed);
    const views = this.#views;
    // A slow database does not delay the next change.
    this.#publishing = this.#publishing
      .then(() => publishSearch(background, views.all))
      .catch(onError);
  }

  /** Replaces the providers whose settings have changed. Returns their ids. */
  #replaceProviders(configs: readonly ProviderConfig[]): string[] {
    const { shared, connectTimeoutMs } = this.#dependencies;
    const settings = new Map(
      configs.map((config) => [config.id, settingsOf(config, connectTimeoutMs)]),
    );
    const changed = [...settings].filter(
      ([id, entry]) => JSON.stringify(entry) !== JSON.stringify(this.#settings.get(id)),
    );
    const removed = [...this.#settings.keys()].filter((id) => !settings.has(id));
    for (const id of removed) this.#providers.delete(id);
    for (const [id, entry] of changed) {
      this.#providers.set(id, createProviders([entry], shared).get(id)!);
    }
    this.#settings = settings;
    return [...changed.map(([id]) => id), ...removed];
  }

  #awaitPriceChange(): void {
    const { clock } = this.#dependencies;
    this.#cancelPriceChange?.();
    const nowMs = clock.nowMs();
    const atMs = nextPriceChangeMs(this.config.prices, nowMs);
    if (atMs === undefined || this.#isStopped) return;
    this.#cancelPriceChange = clock.after(Math.min(atMs - nowMs, MAX_TIMER_MS), () => {
      this.follow();
    });
  }
}

function settingsOf(provider: ProviderConfig, connectTimeoutMs: number): ProviderSettings {
  return {
    ...provider,
    apiKey: provider.apiKey,
    collectsNoData:
      provider.collectsNoData ?? (provider.type === "sandbox" || isLocalServer(provider)),
    connectTimeoutMs,
  };
}

function restrictionsOf({ providers, models, aliases }: RoutingConfig): Restrictions {
  const restricted = (
    entries: readonly { readonly id: string; readonly organizations?: readonly string[] }[],
  ) =>
    new Map(
      entries.flatMap(({ id, organizations }) =>
        organizations === undefined ? [] : [[id, organizations] as const],
      ),
    );
  return { providers: restricted(providers), models: restricted(models), aliases };
}

/** Adds a fault for each alias that would hide a model, and for each model of an alias that does not exist. */
function addAliasFaults({ config, catalogue }: Built, faults: ConfigFaults): void {
  const { aliases, models: entries } = config;
  const index = createModelIndex(catalogue);
  const names = new Set(aliases.map(({ id }) => id));
  const namesOfFile = new Set(
    entries.flatMap(({ id, alias_of: target }) => (target === undefined ? [] : [id])),
  );
  for (const { id, models, source } of aliases) {
    const hidden = index.resolve(id);
    // A name of the model that it means anyway hides nothing.
    const isSame = models.every((model) => index.resolve(model.id) === hidden) && hidden?.id !== id;
    if (namesOfFile.has(id) || (hidden !== undefined && !isSame)) {
      faults.add(new ConfigError(`${source}/id ${HIDES_A_MODEL} ${hidden?.id ?? id}`));
    }
    for (const [at, model] of models.entries()) {
      const pointer = `${source}/models/${at}/id`;
      if (names.has(model.id) && index.byId(model.id) === undefined) {
        faults.add(new ConfigError(`${pointer} is an alias itself, but must be a model`));
      } else if (index.resolve(model.id) === undefined) {
        faults.add(new ConfigError(`${pointer} is not a model of this gateway`));
      }
    }
  }
}

/** The part of a fault that says that an alias would hide a model. */
export const HIDES_A_MODEL = "would hide the model";
