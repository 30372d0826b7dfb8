import { authored } from "../../../db/authored.ts";
import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import {
  type ConfigurationUse,
  changeConfiguration,
  configurationUses,
  type EntryWrite,
  modelsOfOpenBatches,
  noteReachable,
  type StoredEntry,
} from "../../../db/queries/configuration.ts";
import { createCheck } from "../../http/validate.ts";
import {
  HIDES_A_MODEL,
  type LiveConfiguration,
  type Preview,
} from "../../inference/models/live-configuration.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { type ErrorCode, GatewayError } from "../../lib/errors.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { ENTRY_SCHEMAS } from "../../platform/config/file-schema.ts";
import { type StoredEntries, type StoredKind, storedSource } from "../../platform/config/stored.ts";
import { changedEntry, splitSecrets } from "./entry-secrets.ts";
import { isReachable } from "./test-provider.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface StoredConfigurationDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keyring: Keyring;
  readonly live: LiveConfiguration;
  /** Returns true if this instance checks providers that did not answer, for all instances. */
  isReporter(): boolean;
  onError(error: unknown): void;
}

/** A change of one entry. `entry` null deletes it. */
export interface EntryChange {
  readonly kind: StoredKind;
  readonly id: string;
  /** The whole entry after the change, with its secrets. */
  readonly entry: Fields | null;
}

/** Milliseconds between two checks of providers that did not answer. */
const RECHECK_MS = 10_000;
/** Entries of all kinds. Each change builds the configuration of all of them. */
const MAX_ENTRIES = 5_000;

const NOT_FOUND: Readonly<Record<StoredKind, ErrorCode>> = {
  provider: "provider_not_found",
  model: "model_not_found",
  alias: "alias_not_found",
  price: "price_not_found",
};

/**
 * The providers, models, aliases and prices that operators store (contract §13). A change is in force on this instance
 * when its method resolves, and on the others when they have read the notification of the change.
 */
export class StoredConfiguration {
  readonly #dependencies: StoredConfigurationDependencies;
  #cancelRecheck: (() => void) | undefined;
  #isChecking = false;
  #isStopped = false;

  constructor(dependencies: StoredConfigurationDependencies) {
    this.#dependencies = dependencies;
  }

  /** Creates an entry. Throws 409 name_taken if a stored entry of the kind has the id. */
  async create(kind: StoredKind, entry: Fields & { readonly id: string }, author: Author) {
    const { id } = entry;
    return this.#change(author, (before) => {
      if (before.some((other) => other.kind === kind && other.id === id)) {
        throw new GatewayError("name_taken", `There is already a stored ${kind} "${id}".`, {
          param: "id",
        });
      }
      return [{ kind, id, entry }];
    }).then((entries) => found(entries, kind, id));
  }

  /**
   * Changes members of an entry. Null removes a member. Throws 409 version_conflict if the entry has another version.
   */
  async update(
    kind: StoredKind,
    id: string,
    { version, changes }: { readonly version: string | null; readonly changes: Fields },
    author: Author,
  ): Promise<StoredEntry> {
    const { live, keyring } = this.#dependencies;
    return this.#change(author, (before) => {
      const current = this.#current(before, kind, id, version);
      // Secrets that cannot be opened here must not be lost by a change.
      if (current.secret !== null) keyring.open(current.secret);
      const [whole] = live.opened([current])[kind];
      const { source: _, isStored: __, ...members } = whole!;
      const entry = { ...changedEntry(members, changes), id };
      createCheck(ENTRY_SCHEMAS[kind], "invalid_body", "Request body")(withoutPrefix(entry));
      return [{ kind, id, entry }];
    }).then((entries) => found(entries, kind, id));
  }

  /** Deletes an entry. Throws 409 in_use if other entries, or running work, need it. */
  async remove(kind: StoredKind, id: string, version: string | null, author: Author) {
    await this.#change(author, (before) => {
      this.#current(before, kind, id, version);
      return [{ kind, id, entry: null }];
    });
  }

  /** Puts a provider in force that did not answer when it was stored, because it has answered now. */
  async noteAnswer(id: string): Promise<void> {
    const { sql, live } = this.#dependencies;
    if (!live.isUnreachable(id)) return;
    await noteReachable(sql, id, true);
    await live.reload();
  }

  start(): void {
    this.#scheduleRecheck();
    this.#dependencies.live.onChanged(() => void this.#recheck());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelRecheck?.();
  }

  #scheduleRecheck(): void {
    if (this.#isStopped) return;
    this.#cancelRecheck = this.#dependencies.clock.after(RECHECK_MS, async () => {
      await this.#recheck();
      this.#scheduleRecheck();
    });
  }

  /** Checks the providers that are not used because they did not answer, or were added on another way. */
  async #recheck(): Promise<void> {
    const { isReporter, live, onError } = this.#dependencies;
    if (this.#isChecking || !isReporter()) return;
    this.#isChecking = true;
    try {
      for (const { id } of live.config.providers) {
        if (live.isUnreachable(id) && (await isReachable(live.create(id))))
          await this.noteAnswer(id);
      }
    } catch (error) {
      onError(error);
    } finally {
      this.#isChecking = false;
    }
  }

  /** Returns the stored entry. Throws 404 if no entry has the id, and 409 if it cannot be changed. */
  #current(
    entries: readonly StoredEntry[],
    kind: StoredKind,
    id: string,
    version: string | null,
  ): StoredEntry {
    const entry = entries.find((other) => other.kind === kind && other.id === id);
    if (entry === undefined) {
      if (!this.#isConfigured(kind, id)) throw notFound(kind, id);
      const message = `The ${kind} "${id}" comes from the environment, the file or a list, so it cannot be changed here.`;
      throw new GatewayError("read_only", message);
    }
    if (version !== "*" && version !== `"${entry.version}"` && version !== `${entry.version}`) {
      const etag = `"${entry.version}"`;
      throw new GatewayError(
        "version_conflict",
        `The ${kind} "${id}" has version ${entry.version}. Send the header If-Match: ${etag} to change it.`,
        { param: "if-match", headers: { etag } },
      );
    }
    return entry;
  }

  #isConfigured(kind: StoredKind, id: string): boolean {
    const { config, views } = this.#dependencies.live;
    if (kind === "model") return views.all.byId(id) !== undefined;
    const lists = { provider: config.providers, alias: config.aliases, price: config.prices };
    return lists[kind].some((entry) => entry.id === id);
  }

  async #change(
    author: Author,
    decide: (before: readonly StoredEntry[]) => readonly EntryChange[],
  ): Promise<readonly StoredEntry[]> {
    const { sql, live } = this.#dependencies;
    const { entries, toCheck } = await changeEntries(
      { ...this.#dependencies, sql: authored(sql, author) },
      decide,
    );
    await live.reload();
    if (toCheck.length === 0) return entries;
    await Promise.all(toCheck.map((id) => this.#checkReachable(id)));
    await live.reload();
    return live.entries;
  }

  async #checkReachable(id: string): Promise<void> {
    const { sql, live } = this.#dependencies;
    // Another operator may have deleted it in the meantime.
    if (!this.#isConfigured("provider", id)) return;
    await noteReachable(sql, id, await isReachable(live.create(id)));
  }
}

interface ChangeDependencies {
  readonly sql: Database;
  readonly clock: Pick<Clock, "nowMs">;
  readonly keyring: Keyring;
  readonly live: Pick<LiveConfiguration, "config" | "opened" | "preview">;
}

/**
 * Makes all changes that `decide` returns, or none, in one transaction. `toCheck` are the providers that are not used
 * before they have answered. Throws 400, or 409, if the configuration would have faults afterwards, or if a deleted
 * entry is in use.
 *
 * @param isDryRun checks the changes without making them
 */
export async function changeEntries(
  { sql, clock, keyring, live }: ChangeDependencies,
  decide: (before: readonly StoredEntry[]) => readonly EntryChange[],
  isDryRun = false,
): Promise<{ readonly entries: readonly StoredEntry[]; readonly toCheck: readonly string[] }> {
  let toCheck: readonly string[] = [];
  const entries = await changeConfiguration(sql, clock.nowMs(), async (before, transaction) => {
    const changes = decide(before);
    const stored = live.opened(before);
    const preview = await live.preview(stored, afterChanges(stored, changes));
    await assertUnused(transaction, changes, preview);
    assertSound(preview.faults);
    if (before.length + changes.length > MAX_ENTRIES) throw tooMany();
    toCheck = changes.filter((change) => hasNewAddress(change, stored)).map(({ id }) => id);
    return isDryRun ? [] : changes.map((change) => writeOf(change, keyring, live));
  });
  return { entries, toCheck };
}

/** A fault that the configuration would have, in one line that begins with the entry. */
export interface EntryFault {
  readonly kind: StoredKind;
  readonly id: string;
  readonly message: string;
  /** The model that an alias would hide, if that is the fault. */
  readonly hiddenModel: string | undefined;
}

/** Returns the faults that the configuration would have after the changes, without making them. */
export async function faultsAfter(
  changes: readonly EntryChange[],
  before: readonly StoredEntry[],
  live: Pick<LiveConfiguration, "opened" | "preview">,
): Promise<EntryFault[]> {
  const stored = live.opened(before);
  const { faults } = await live.preview(stored, afterChanges(stored, changes));
  return faults.flatMap((message) => {
    const subject = faultSubject(message);
    if (subject === undefined) return [];
    const hiddenModel = message.split(`${HIDES_A_MODEL} `)[1];
    return [{ kind: subject.kind, id: subject.id, message, hiddenModel }];
  });
}

function writeOf(
  { kind, id, entry }: EntryChange,
  keyring: Keyring,
  live: Pick<LiveConfiguration, "config">,
): EntryWrite {
  if (entry === null) return { kind, id, body: null };
  const { id: _, ...members } = entry;
  const { body, secrets } = splitSecrets(members);
  const plain = secrets && new TextEncoder().encode(JSON.stringify(secrets));
  const secret = (keyId: string) => (plain === undefined ? null : keyring.sealUnder(keyId, plain));
  // A provider that replaces another one is used immediately, so that no request finds neither.
  const isUnproven =
    kind === "provider" && !live.config.providers.some((provider) => provider.id === id);
  return { kind, id, body, secret, isUnproven };
}

/** Returns true for a provider that is new, or that calls go to another address of. */
function hasNewAddress({ kind, id, entry }: EntryChange, before: StoredEntries): boolean {
  if (kind !== "provider" || entry === null) return false;
  const current = before.provider.find((provider) => provider.id === id);
  return current?.base_url !== entry.base_url || current?.type !== entry.type;
}

function afterChanges(before: StoredEntries, changes: readonly EntryChange[]): StoredEntries {
  const after: Record<StoredKind, object[]> = {
    provider: [...before.provider],
    model: [...before.model],
    alias: [...before.alias],
    price: [...before.price],
  };
  for (const { kind, id, entry } of changes) {
    const others = after[kind].filter((other) => "id" in other && other.id !== id);
    const changed = { ...entry, id, source: storedSource(kind, id), isStored: true };
    after[kind] = entry === null ? others : [...others, changed];
  }
  return after as unknown as StoredEntries;
}

/**
 * Throws 409 in_use if a deleted entry is needed by entries that stay, or if running work needs a provider or a model
 * that would no longer exist.
 */
async function assertUnused(
  transaction: DatabaseTransaction,
  changes: readonly EntryChange[],
  { faults, lostModels, lostProviders, losesName }: Preview,
): Promise<void> {
  const deleted = changes.filter(({ entry }) => entry === null);
  const written = new Set(
    changes.flatMap(({ kind, id, entry }) => (entry === null ? [] : storedSource(kind, id))),
  );
  const needing = new Map(
    (deleted.length === 0 ? [] : faults).flatMap((fault) => {
      const { kind, id } = faultSubject(fault) ?? {};
      if (kind === undefined || id === undefined || written.has(storedSource(kind, id))) return [];
      return [[storedSource(kind, id), { type: kind, id }] as const];
    }),
  );
  const names = (await modelsOfOpenBatches(transaction)).filter(losesName);
  const lost = { providers: lostProviders, models: lostModels, names };
  const isAnyLost = Object.values(lost).some((ids) => ids.length > 0);
  const running = isAnyLost ? await configurationUses(transaction, lost) : [];
  const uses: { readonly type: StoredKind | ConfigurationUse["type"]; readonly id: string }[] = [
    ...needing.values(),
    ...running,
  ];
  if (uses.length === 0) return;
  const { kind, id } = deleted[0] ?? changes[0]!;
  const list = uses.map(({ type, id: user }) => `${type.replaceAll("_", " ")} ${user}`).join(", ");
  throw new GatewayError("in_use", `The ${kind} "${id}" is in use: ${list}.`, {
    fields: { used_by: uses },
  });
}

/** Throws the error for the first fault, with the field of the entry that has it. */
function assertSound(faults: readonly string[]): void {
  const [fault] = faults;
  if (fault === undefined) return;
  const code = fault.includes(HIDES_A_MODEL) ? "name_taken" : "invalid_body";
  throw new GatewayError(code, `The ${fault}.`, { param: faultSubject(fault)?.field ?? null });
}

/** Returns the entry, and the field of it, with which a fault begins. */
function faultSubject(
  fault: string,
): { readonly kind: StoredKind; readonly id: string; readonly field: string | null } | undefined {
  const match = /^(provider|model|alias|price) (\S+?)(?=[ :]|$)/.exec(fault);
  if (match === null) return undefined;
  const [, kind, path] = match as unknown as [string, StoredKind, string];
  // The id of a model or alias has slashes of its own, so the field begins at the first member's name.
  const field =
    /\/((?:id|type|base_url|api_keys?|aws|project|location|deployments|batches|batch_price_share|endpoints|models|pricing|max_parallel_requests|headers|proxy|\w*cost_per_\w+|image_prices)(?:\/.*)?)$/.exec(
      path,
    );
  const id = field === null ? path : path.slice(0, field.index);
  return { kind, id, field: field?.[1]?.replaceAll("/", ".") ?? null };
}

function withoutPrefix({ key_prefix: _, ...entry }: Fields): Fields {
  return entry;
}

function found(entries: readonly StoredEntry[], kind: StoredKind, id: string): StoredEntry {
  const entry = entries.find((other) => other.kind === kind && other.id === id);
  if (entry === undefined) throw notFound(kind, id);
  return entry;
}

/** Returns the error for an id that no entry of the kind has. */
export function notFound(kind: StoredKind, id: string): GatewayError {
  return new GatewayError(NOT_FOUND[kind], `There is no ${kind} "${id}".`);
}

function tooMany(): GatewayError {
  return new GatewayError("quota_exceeded", `A gateway can store at most ${MAX_ENTRIES} entries.`);
}
