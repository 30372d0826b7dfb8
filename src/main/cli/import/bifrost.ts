import type {
  AliasEntry,
  ModelEntry,
  ProviderEntry,
} from "../../../platform/config/file-schema.ts";
import { isSelfHosted, PROVIDER_TYPES } from "../../../platform/config/provider-types.ts";
import { UsageError } from "../command.ts";
import { BIFROST_HINTS } from "./bifrost-hints.ts";
import {
  awsMember,
  keyMember,
  ProviderList,
  type Stated,
  statedValue,
  typeAt,
  vertexMembers,
} from "./provider-members.ts";
import {
  aliasId,
  list,
  type Members,
  members,
  number,
  parseJson,
  type Translation,
  type TranslationOptions,
  text,
} from "./translation.ts";
import { categoryOf, providerTypeOf } from "./vendors.ts";

type Endpoint = NonNullable<ModelEntry["endpoints"]>[number];

type ProviderSettings = Omit<ProviderEntry, "id">;

/** A key that calls can be made with. */
interface UsableKey {
  readonly path: string;
  readonly entry: Members;
  /** Undefined if it serves all models. */
  readonly models: readonly string[] | undefined;
}

/** Keys of a provider with the same settings and the same models. */
interface KeyGroup {
  readonly provider: ProviderEntry;
  /** Undefined if the keys serve all models. */
  readonly models: readonly string[] | undefined;
  /** Names of models at the provider, by the names that clients send. */
  readonly names: ReadonlyMap<string, string>;
  /** Sum of the weights of the keys. */
  readonly weight: number;
}

/**
 * Translates a config.json of Bifrost. Clients keep names such as `openai/gpt-4o`. A routing rule whose condition
 * compares only the model becomes an alias. Throws UsageError if the text is not such a file.
 */
export function translateBifrost(source: string, options: TranslationOptions): Translation {
  const root = members(parseJson(source));
  if (Object.keys(members(root.providers)).length === 0) {
    throw new UsageError("the file has no object providers");
  }
  return new BifrostTranslator(options).translate(root);
}

class BifrostTranslator {
  readonly #options: TranslationOptions;
  readonly #providers = new ProviderList();
  /** The groups of keys by Bifrost's name of the provider. */
  readonly #groups = new Map<string, readonly KeyGroup[]>();
  readonly #models = new Map<string, ModelEntry>();
  readonly #aliases = new Map<string, AliasEntry>();
  readonly #leftOut = new Set<string>();
  readonly #notes = new Set<string>();

  constructor(options: TranslationOptions) {
    this.#options = options;
  }

  translate(root: Members): Translation {
    for (const [name, settings] of Object.entries(members(root.providers))) {
      this.#addProvider(name, members(settings), number(root.version) === 1);
    }
    const governance = members(root.governance);
    for (const [index, rule] of list(governance.routing_rules).entries()) {
      this.#addRule(`governance.routing_rules[${index}]`, members(rule));
    }
    for (const key of Object.keys(governance)) {
      if (key !== "routing_rules") this.#leaveOut(`governance.${key}`);
    }
    for (const key of Object.keys(root)) {
      if (!["$schema", "version", "providers", "governance"].includes(key)) this.#leaveOut(key);
    }
    return {
      config: {
        providers: this.#providers.all(),
        models: [...this.#models.values()],
        aliases: [...this.#aliases.values()],
      },
      leftOut: [...this.#leftOut],
      notes: [...this.#notes],
    };
  }

  #addProvider(name: string, settings: Members, emptyMeansAll: boolean): void {
    const path = `providers.${name}`;
    const base = text(members(settings.custom_provider_config).base_provider_type) ?? name;
    const type = providerTypeOf(base);
    if (type === undefined) {
      this.#leftOut.add(
        `${path}: the provider ${base} has no type here; if it has OpenAI's API, add it as openai-compatible`,
      );
      return;
    }
    this.#leaveOutOf("providers.*.", settings, TRANSLATED_SETTINGS);
    this.#leaveOutOf(
      "network_config.",
      members(settings.network_config),
      new Set(["base_url", "allow_private_network"]),
    );
    const keys = list(settings.keys).flatMap((key, index) =>
      this.#usableKey(`${path}.keys[${index}]`, members(key), emptyMeansAll),
    );
    // A custom provider without keys, or one whose machine has an identity.
    if (list(settings.keys).length === 0) keys.push({ path, entry: {}, models: undefined });
    const groups = Map.groupBy(keys, ({ path: keyPath, entry, models }) =>
      JSON.stringify([this.#settingsOf(keyPath, type, settings, entry), models]),
    );
    this.#groups.set(
      name,
      [...groups.values()].map((group) => this.#groupOf(name, type, settings, group)),
    );
    this.#addModels(name, type);
  }

  /** Returns the key, if calls can be made with it. */
  #usableKey(path: string, entry: Members, emptyMeansAll: boolean): UsableKey[] {
    this.#leaveOutOf("keys[].", entry, TRANSLATED_KEY);
    if (entry.enabled === false) {
      this.#leftOut.add(`${path}: the key is not enabled`);
      return [];
    }
    const stated =
      entry.models === undefined ? ["*"] : list(entry.models).flatMap((one) => text(one) ?? []);
    if (stated.length === 0 && !emptyMeansAll) {
      this.#leftOut.add(
        `${path}: its list of models is empty, so it serves none; "version": 1 means all`,
      );
      return [];
    }
    const models = stated.length === 0 || stated.includes("*") ? undefined : stated;
    return [{ path, entry, models }];
  }

  #groupOf(name: string, type: string, settings: Members, keys: readonly UsableKey[]): KeyGroup {
    const { path, entry, models } = keys[0]!;
    const shared = this.#settingsOf(path, type, settings, entry);
    const stated = keys.map((key) => ({
      key: this.#stated(`${key.path}.value`, key.entry.value),
      weight: number(key.entry.weight) ?? 1,
    }));
    return {
      provider: this.#providers.add({ ...shared, ...keyMembers(shared, stated) }, name),
      models,
      names: new Map(keys.flatMap((key) => namesOf(key.entry, settings))),
      weight: stated.reduce((sum, { weight }) => sum + weight, 0),
    };
  }

  /** Returns the settings of a provider for one of its keys, without the key itself. */
  #settingsOf(path: string, type: string, settings: Members, key: Members): ProviderSettings {
    const value = (one: unknown, member: string) =>
      statedValue(this.#stated(path, one), `${path} ${member}`, this.#options.environment);
    const cloud = { ...members(settings.meta_config), ...members(key[`${type}_key_config`]) };
    const server = [key.ollama_key_config, key.sgl_key_config, key.vllm_key_config]
      .map((one) => members(one).url)
      .find((url) => url !== undefined);
    const network = members(settings.network_config);
    const stated = type === "azure" ? cloud.endpoint : (server ?? network.base_url);
    const address = value(stated, "address");
    const actual = typeAt(type, address);
    const concurrency = number(members(settings.concurrency_and_buffer_size).concurrency);
    const version = type === "azure" ? value(cloud.api_version, "api_version") : undefined;
    return {
      type: actual,
      ...(address !== undefined && {
        base_url: type === "azure" ? address : withRoot(actual, address),
      }),
      ...(version !== undefined && { api_version: version }),
      ...(type === "bedrock" &&
        awsMember({
          region: value(cloud.region, "region"),
          accessKeyId: this.#stated(
            path,
            cloud.access_key ?? (cloud.secret_access_key && key.value),
          ),
          secretAccessKey: this.#stated(path, cloud.secret_key ?? cloud.secret_access_key),
          sessionToken: this.#stated(path, cloud.session_token),
        })),
      ...(type === "vertex" &&
        vertexMembers(
          value(cloud.project_id, "project_id"),
          value(cloud.region, "region"),
          this.#stated(path, cloud.auth_credentials),
        )),
      ...(concurrency !== undefined && { max_parallel_requests: concurrency }),
    };
  }

  /** Adds the models that the provider would not offer by itself, or not at the right keys. */
  #addModels(name: string, type: string): void {
    const groups = this.#groups.get(name)!;
    const listed = groups.flatMap(({ models = [] }) => models);
    const areKeysEqual = new Set(groups.map(({ models }) => JSON.stringify(models))).size <= 1;
    const isListed = groups.length > 1 || isSelfHosted(groups[0]?.provider.type ?? type);
    if (listed.length > 0 && areKeysEqual && !isListed) {
      this.#notes.add(
        `providers.${name}: it offers all of its models here; allowed_models of a key restricts them`,
      );
    }
    const names = groups.flatMap((group) => [...group.names.keys()]);
    for (const model of new Set([...(isListed ? listed : []), ...names])) {
      if (model === "*")
        this.#leftOut.add(`providers.${name}: the alias * of all models has no counterpart`);
      else this.#addModel(name, model);
    }
  }

  /** Returns the id of a model of a provider, with an endpoint for each group of keys that serves it. */
  #addModel(name: string, model: string): string | undefined {
    const id = aliasId(`${name}/${model}`);
    if (this.#models.has(id)) return id;
    const serving = (this.#groups.get(name) ?? []).filter(
      ({ models, names }) => models === undefined || models.includes(model) || names.has(model),
    );
    if (serving.length === 0) return undefined;
    const endpoints = serving.map(
      ({ provider, names, weight }): Endpoint => ({
        provider: provider.id,
        model: names.get(model) ?? model,
        ...(serving.length > 1 && { weight }),
      }),
    );
    this.#models.set(id, { id, category: categoryOf(undefined, model), endpoints } as ModelEntry);
    return id;
  }

  #addRule(path: string, rule: Members): void {
    const label = `${path} (${text(rule.name) ?? text(rule.id) ?? "unnamed"})`;
    if (rule.enabled === false) {
      this.#leftOut.add(`${label}: the rule is not enabled`);
      return;
    }
    const names = comparedModels(text(rule.cel_expression) ?? "");
    if (names === undefined || (rule.scope !== undefined && rule.scope !== "global")) {
      this.#leftOut.add(
        `${label}: only global rules that compare nothing but the model have a counterpart; name the models in requests`,
      );
      return;
    }
    for (const name of names) this.#addAlias(label, aliasId(name), rule);
  }

  #addAlias(label: string, id: string, rule: Members): void {
    const targets = list(rule.targets).map(members);
    const first = targets.flatMap((target) => {
      const model = this.#target(label, text(target.provider), text(target.model) ?? id);
      return model === undefined ? [] : [{ id: model, weight: number(target.weight) ?? 1 }];
    });
    const later = list(rule.fallbacks).flatMap((fallback) => {
      const [provider, ...rest] = (text(fallback) ?? "").split("/");
      const model = this.#target(label, provider, rest.join("/"));
      return model === undefined ? [] : [{ id: model, weight: 0 }];
    });
    const models = [...first, ...later].filter(
      (one, index, all) => all.findIndex((other) => other.id === one.id) === index,
    );
    if (models.length === 0 || this.#aliases.has(id)) return;
    const sharesLoad = first.length > 1;
    this.#aliases.set(id, {
      id,
      models: sharesLoad ? models : models.map(({ id: model }) => ({ id: model })),
    });
  }

  #target(label: string, provider: string | undefined, model: string): string | undefined {
    const id = provider === undefined || model === "" ? undefined : this.#addModel(provider, model);
    if (id === undefined) {
      this.#leftOut.add(
        `${label}: no imported provider serves ${provider ?? "any provider"}/${model}`,
      );
    }
    return id;
  }

  /** Returns a value of the file, which can name a variable, as in `env.OPENAI_API_KEY`. */
  #stated(path: string, value: unknown): Stated | undefined {
    const object = members(value);
    const variable =
      object.from_env === true || object.type === "env"
        ? (text(object.env_var) ?? text(object.ref))
        : undefined;
    const stated = text(value) ?? variable?.replace(/^(?:env\.)?/, "env.") ?? text(object.value);
    if (stated === undefined) return undefined;
    if (stated.startsWith("vault.")) {
      this.#leftOut.add(
        `${path}: values of a vault have no counterpart; set a variable, and name it as env.NAME`,
      );
      return undefined;
    }
    return stated.startsWith("env.")
      ? { variable: stated.slice("env.".length) }
      : { value: stated };
  }

  #leaveOutOf(prefix: string, object: Members, translated: ReadonlySet<string>): void {
    for (const key of Object.keys(object)) {
      if (!translated.has(key)) this.#leaveOut(`${prefix}${key}`);
    }
  }

  #leaveOut(setting: string): void {
    this.#leftOut.add(`${setting}: ${BIFROST_HINTS[setting] ?? "has no counterpart"}`);
  }
}

/** Returns the members of a provider with its keys. Keys of Vertex AI, and pairs of Amazon's keys, are in `shared`. */
function keyMembers(
  shared: ProviderSettings,
  stated: readonly { readonly key: Stated | undefined; readonly weight: number }[],
): Partial<ProviderEntry> {
  const hasKey = Object.keys({ ...shared, ...shared.aws }).some((member) =>
    /^(?:api_key|access_key_id|credentials_file)/.test(member),
  );
  if (hasKey) return {};
  if (stated.length === 1 || stated.some(({ key }) => key === undefined)) {
    return keyMember(shared.type, stated[0]?.key);
  }
  return { api_keys: stated.map(({ key, weight }) => ({ ...listedKey(key), weight })) };
}

/** Returns the provider's names of models by the names that clients send, of a key and of older settings. */
function namesOf(key: Members, settings: Members): (readonly [string, string])[] {
  const clouds = CLOUD_CONFIGS.map((member) => members(key[member]));
  return [key, ...clouds, members(settings.meta_config)]
    .flatMap((one) => Object.entries({ ...members(one.aliases), ...members(one.deployments) }))
    .flatMap(([alias, target]) => {
      const model = text(target);
      return model === undefined ? [] : [[alias, model] as const];
    });
}

const listedKey = (key: Stated | undefined): { key?: string; key_env?: string } =>
  key === undefined ? {} : "value" in key ? { key: key.value } : { key_env: key.variable };

/** Adds the version segment of a type to the root of a server. Bifrost's addresses lack it. */
function withRoot(type: string, address: string): string {
  if (/\/v\d+[a-z]*\/?$/.test(address)) return address;
  const usual = PROVIDER_TYPES[type]!.defaultBaseUrl ?? "/v1";
  const version = /\/v\d+[a-z]*$/.exec(usual)?.[0] ?? "";
  return `${address.replace(/\/+$/, "")}${version}`;
}

const COMPARISON = /^\s*model\s*==\s*(?:"([^"]+)"|'([^']+)')\s*$/;

/** Returns the models that a condition in CEL compares the request's model with, or undefined for another condition. */
function comparedModels(expression: string): readonly string[] | undefined {
  const parts = expression.split("||").map((part) => COMPARISON.exec(part));
  if (parts.some((part) => part === null)) return undefined;
  return parts.map((part) => (part![1] ?? part![2])!);
}

const CLOUD_CONFIGS = ["azure_key_config", "bedrock_key_config", "vertex_key_config"];

const TRANSLATED_SETTINGS = new Set([
  ...["keys", "network_config", "concurrency_and_buffer_size", "custom_provider_config"],
  "meta_config",
]);

const TRANSLATED_KEY = new Set([
  ...["id", "name", "value", "models", "weight", "enabled", "aliases", ...CLOUD_CONFIGS],
  ...["ollama_key_config", "sgl_key_config", "vllm_key_config"],
]);
