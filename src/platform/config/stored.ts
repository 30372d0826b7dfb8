import { ConfigError, type ConfigFaults, refuse } from "./config-error.ts";
import {
  type AliasConfig,
  type ModelConfig,
  mixedEntry,
  type PriceConfig,
  type ProviderOfFile,
} from "./file.ts";
import { type ProviderConfig, providerOfFile } from "./providers.ts";

/** The parts of the configuration that operators can change while the gateway runs. */
export interface RoutingConfig {
  readonly providers: readonly ProviderConfig[];
  readonly models: readonly ModelConfig[];
  readonly aliases: readonly AliasConfig[];
  readonly prices: readonly PriceConfig[];
  readonly sandbox: boolean;
}

/** The entries that operators have stored, with their secrets. */
export interface StoredEntries {
  readonly provider: readonly ProviderOfFile[];
  readonly model: readonly ModelConfig[];
  readonly alias: readonly AliasConfig[];
  readonly price: readonly PriceConfig[];
}

export type StoredKind = keyof StoredEntries;

/** Returns the name of a stored entry in messages. */
export function storedSource(kind: StoredKind, id: string): string {
  return `${kind} ${id}`;
}

/**
 * Returns the configuration of environment and file, with the stored entries added. A stored entry replaces the one
 * with its id. Adds faults to `faults` and leaves the faulty entries out.
 */
export function withStored(
  base: RoutingConfig,
  stored: StoredEntries,
  faults: ConfigFaults,
): RoutingConfig {
  const providers = stored.provider.flatMap((entry) =>
    // No variable of the environment is sent to an address that is stored.
    faults.attempt(() => [providerOfFile({}, entry, base.sandbox)], []),
  );
  const all = {
    providers: replacing(base.providers, providers),
    models: replacing(base.models, stored.model),
    aliases: replacing(base.aliases, stored.alias),
    prices: replacing(base.prices, stored.price),
    sandbox: base.sandbox,
  };
  const ids = new Set(all.providers.map(({ id }) => id));
  const models = all.models.filter((model) => {
    const at = model.endpoints?.findIndex(({ provider }) => !ids.has(provider)) ?? -1;
    if (at < 0) return true;
    const name = model.endpoints![at]!.provider;
    faults.add(refuse(`${model.source}/endpoints/${at}/provider`, name, "a configured provider"));
    return false;
  });
  for (const entry of stored.model) {
    const mixed = mixedEntry(entry);
    if (mixed.length > 0) faults.add(new ConfigError(...mixed));
  }
  for (const entry of [...stored.model, ...stored.price]) {
    faults.attempt(() => assertPricesExact(entry.source, entry), undefined);
  }
  return { ...all, models };
}

function replacing<Entry extends { readonly id: string }>(
  base: readonly Entry[],
  stored: readonly Entry[],
): Entry[] {
  const byId = new Map(base.map((entry) => [entry.id, entry]));
  for (const entry of stored) byId.set(entry.id, entry);
  return [...byId.values()];
}

/** Decimals of a price in USD: a price of one token is exact in femto-USD, so a million tokens in nano-USD. */
const MAX_DECIMALS = 15;

const MAX_RELATIVE_REST = 1e-12;

/** Throws ConfigError for a price with more digits than the gateway calculates with. */
function assertPricesExact(pointer: string, value: unknown): void {
  for (const [name, member] of Object.entries(Object(value))) {
    const at = `${pointer}/${name}`;
    if (typeof member === "object") assertPricesExact(at, member);
    if (typeof member !== "number" || !/cost_per_/.test(name)) continue;
    // Floating-point arithmetic of a client, such as 0.2 / 1e6 * 25, leaves a much smaller rest.
    const exact = Number(member.toFixed(MAX_DECIMALS));
    if (Math.abs(member - exact) > member * MAX_RELATIVE_REST) {
      throw new ConfigError(`${at} is ${member}, but must have at most ${MAX_DECIMALS} decimals`);
    }
  }
}
