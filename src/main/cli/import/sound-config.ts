import {
  type EntryFault,
  faultsAfter,
} from "../../../accounts/configuration/stored-configuration.ts";
import type { AliasEntry, ConfigFile, ModelEntry } from "../../../platform/config/file-schema.ts";
import type { OpenConfiguration } from "../actions/apply-configuration.ts";
import { changesTo, readEntries } from "../actions/configuration-file.ts";

interface SoundConfig {
  readonly config: ConfigFile;
  /** One line for each entry that `config` lacks, with its fault. */
  readonly leftOut: readonly string[];
  /** One line for each model that has got the endpoints of a name. */
  readonly notes: readonly string[];
}

/**
 * Returns the configuration without the entries that this gateway could not use, such as a model without a price. A name
 * that already means a model here is taken by giving that model the endpoints of the name.
 *
 * @param path the file, for messages
 */
export async function soundConfig(
  path: string,
  config: ConfigFile,
  configuration: Omit<OpenConfiguration, "sql">,
): Promise<SoundConfig> {
  const { sources, live } = configuration;
  const entries = readEntries(path, config, sources.keyring);
  const { changes } = changesTo(entries, sources, { keepsOthers: true });
  const found = await faultsAfter(changes, sources.stored, live);
  const faults = found.filter(({ kind, id }) => entries[kind].has(id));
  if (faults.length === 0) return { config, leftOut: [], notes: [] };
  const next = withoutFaults(config, faults);
  const rest = await soundConfig(path, next.config, configuration);
  return {
    config: rest.config,
    leftOut: [...next.leftOut, ...rest.leftOut],
    notes: [...next.notes, ...rest.notes],
  };
}

/** Returns the configuration without the faulty entries, and without those that only lead to these. */
function withoutFaults(config: ConfigFile, faults: readonly EntryFault[]): SoundConfig {
  const { providers = [], models = [], aliases = [] } = config;
  const faultOf = (kind: EntryFault["kind"], wanted: string) =>
    faults.find((fault) => fault.kind === kind && fault.id === wanted);
  const isModel = ({ alias_of: target }: ModelEntry) => target === undefined;
  const usable = models.filter(isModel).flatMap((model) => {
    if (faultOf("model", model.id) !== undefined) return [];
    if (model.endpoints === undefined) return [model];
    const endpoints = model.endpoints.filter(({ provider }) => !faultOf("provider", provider));
    return endpoints.length === 0 ? [] : [{ ...model, endpoints }];
  });
  const byId = new Map(usable.map((model) => [model.id, model]));
  const isLost = (id: string) => !byId.has(id) && models.some((model) => model.id === id);
  const namesOfModels = models.flatMap(({ id, alias_of: target }): AliasEntry[] =>
    target === undefined ? [] : [{ id, models: [{ id: target }] }],
  );
  const allNames = [...namesOfModels, ...aliases];
  const names = allNames
    .map((alias) => ({ ...alias, models: alias.models.filter(({ id }) => !isLost(id)) }))
    .filter((alias) => alias.models.length > 0);
  const replaced = names.flatMap((alias) => {
    const hidden = faultOf("alias", alias.id)?.hiddenModel;
    if (hidden === undefined || byId.has(hidden)) return [];
    const targets = alias.models.flatMap(({ id, weight }) => {
      const model = byId.get(id);
      return model === undefined ? [] : [{ model, weight }];
    });
    const model = joinedModel(hidden, targets);
    return model === undefined ? [] : [{ name: alias.id, model }];
  });
  const lostNames = allNames.filter(({ id }) => !names.some((name) => name.id === id));
  const explained = new Set([
    ...lostNames.map(({ id }) => id),
    ...replaced.map(({ name }) => name),
  ]);
  return {
    config: {
      ...config,
      providers: providers.filter(({ id }) => !faultOf("provider", id)),
      models: [...byId.values(), ...replaced.map(({ model }) => model)],
      aliases: names.filter(({ id }) => !faultOf("alias", id)),
    },
    leftOut: [
      ...faults
        .filter(({ kind, id }) => kind !== "alias" || !explained.has(id))
        .map(({ message }) => message),
      ...lostNames.map(({ id }) => `alias ${id}: its models are left out`),
    ],
    notes: replaced.map(
      ({ name, model }) => `${name} means ${model.id} here, which has the endpoints of ${name} now`,
    ),
  };
}

/** Returns a model with the endpoints of all targets. If there are several, their weights share the load. */
function joinedModel(
  id: string,
  targets: readonly { readonly model: ModelEntry; readonly weight: number | undefined }[],
): ModelEntry | undefined {
  const [first, ...others] = targets;
  if (first === undefined) return undefined;
  if (others.length === 0) return { ...first.model, id };
  const endpoints = targets.flatMap(({ model, weight }) =>
    (model.endpoints ?? []).map((endpoint) => ({
      ...endpoint,
      ...(weight !== undefined && { weight: weight * (endpoint.weight ?? 1) }),
    })),
  );
  return { ...first.model, id, endpoints };
}
