import {
  type EntryChange,
  type EntryFault,
  faultsAfter,
} from "../../../accounts/configuration/stored-configuration.ts";
import { ConfigFaults } from "../../../platform/config/config-error.ts";
import type { AliasEntry, ConfigFile, ModelEntry } from "../../../platform/config/file-schema.ts";
import { providerOfFile } from "../../../platform/config/providers.ts";
import { checkFileModels } from "../../../providers/catalogue/configured-catalogue.ts";
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
  const next =
    (await withSoundEndpoints(config, faults, changes, configuration)) ??
    withoutFaults(config, faults);
  const rest = await soundConfig(path, next.config, configuration);
  return {
    config: rest.config,
    leftOut: [...next.leftOut, ...rest.leftOut],
    notes: [...next.notes, ...rest.notes],
  };
}

/**
 * Returns the configuration with the endpoints of faulty models that have no fault alone, or undefined if there are no
 * such models.
 */
async function withSoundEndpoints(
  config: ConfigFile,
  faults: readonly EntryFault[],
  changes: readonly EntryChange[],
  { sources, live }: Omit<OpenConfiguration, "sql">,
): Promise<SoundConfig | undefined> {
  const faulty = new Set(faults.flatMap(({ kind, id }) => (kind === "model" ? [id] : [])));
  const single = (config.models ?? []).flatMap((model) => {
    if (!faulty.has(model.id)) return [];
    const { endpoints = [] } = model;
    return endpoints.map((endpoint, at) => ({
      ...{ model, endpoint, probe: `${model.id}~${at}` },
    }));
  });
  const probes = single.map(({ model, endpoint, probe }): EntryChange => {
    return { kind: "model", id: probe, entry: { ...model, endpoints: [endpoint] } };
  });
  const others = changes.filter(({ kind, id }) => kind !== "model" || !faulty.has(id));
  const found = await faultsAfter([...others, ...probes], sources.stored, live);
  const isSound = (probe: string) => !found.some(({ id }) => id === probe);
  const sound = single.filter(({ probe }) => isSound(probe));
  if (sound.length === 0) return undefined;
  const endpointsOf = (id: string) =>
    sound.filter(({ model }) => model.id === id).map(({ endpoint }) => endpoint);
  return {
    config: {
      ...config,
      models: config.models!.map((model) => {
        const endpoints = faulty.has(model.id) ? endpointsOf(model.id) : [];
        return endpoints.length === 0 ? model : { ...model, endpoints };
      }),
    },
    leftOut: single
      .filter(({ model, probe }) => endpointsOf(model.id).length > 0 && !isSound(probe))
      .map(({ model, endpoint, probe }) => {
        const { message } = found.find(({ id }) => id === probe)!;
        return `${model.id} at ${endpoint.provider}: ${message.replaceAll(probe, model.id)}`;
      }),
    notes: [],
  };
}

/**
 * Returns the models that a start with the configuration as its file would reject, such as one without a price, one line
 * each. Variables that the configuration names count as set.
 */
export async function faultsAtStart(config: ConfigFile): Promise<readonly string[]> {
  const { providers = [], models = [] } = config;
  // Amazon's region can be in the environment. Which one it is does not matter for this check.
  const environment: Record<string, string> = { AWS_REGION: "us-east-1" };
  JSON.stringify(providers, (name, value) => {
    if (name.endsWith("_env")) environment[value] = "set";
    return value;
  });
  const ofProviders = new ConfigFaults();
  const faults = new ConfigFaults();
  await checkFileModels(
    {
      providers: providers.map((entry) => {
        const { id, type, base_url: baseUrl = "" } = entry;
        const source = `provider ${id}`;
        return ofProviders.attempt(() => providerOfFile(environment, { ...entry, source }, true), {
          id,
          type,
          baseUrl,
        });
      }),
      models: models.map((model) => ({ ...model, source: `model ${model.id}` })),
      ...{ aliases: [], prices: [], sandbox: true, dataDir: "", modelListsSeconds: 0 },
    },
    faults,
  );
  return faults.all;
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
