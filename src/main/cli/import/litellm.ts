import { YAML } from "bun";
import type { ModelEntry, ProviderEntry } from "../../../platform/config/file-schema.ts";
import { UsageError } from "../command.ts";
import { LITELLM_HINTS } from "./litellm-hints.ts";
import {
  awsMember,
  keyMember,
  ProviderList,
  type Stated,
  statedValue,
  typeAt,
  vertexMembers,
  withVersion,
} from "./provider-members.ts";
import {
  aliasId,
  list,
  type Members,
  members,
  number,
  numbersOf,
  type Translation,
  type TranslationOptions,
  text,
} from "./translation.ts";
import { categoryOf, vendorModel } from "./vendors.ts";

type Endpoint = NonNullable<ModelEntry["endpoints"]>[number];

/** A deployment of a group. Lower orders are tried first. */
interface Deployment {
  readonly endpoint: Endpoint;
  readonly order: number;
  /** Share of the load among the deployments of the same order. */
  readonly weight: number;
}

interface Group {
  readonly deployments: Deployment[];
  readonly category: string;
  readonly limits: Pick<ModelEntry, "context_length" | "max_output_tokens">;
}

/**
 * Translates a config.yaml of LiteLLM's proxy. Each group of `model_list` becomes a model with an
 * alias of the group's name, so that clients keep their names. Throws UsageError if the text is not
 * such a file.
 */
export function translateLitellm(source: string, options: TranslationOptions): Translation {
  let parsed: unknown;
  try {
    parsed = YAML.parse(source);
  } catch {
    throw new UsageError("the file is not YAML");
  }
  const root = members(parsed);
  if (!Array.isArray(root.model_list)) throw new UsageError("the file has no list model_list");
  return new LitellmTranslator(options).translate(root, root.model_list);
}

class LitellmTranslator {
  readonly #options: TranslationOptions;
  readonly #providers = new ProviderList();
  /** Azure's deployments by the built-in name of their model, by provider. */
  readonly #azureNames = new Map<string, Record<string, string>>();
  readonly #groups = new Map<string, Group>();
  readonly #leftOut = new Set<string>();
  readonly #notes = new Set<string>();

  constructor(options: TranslationOptions) {
    this.#options = options;
  }

  translate(root: Members, modelList: readonly unknown[]): Translation {
    for (const [index, entry] of modelList.entries()) this.#addDeployment(index, members(entry));
    const router = members(root.router_settings);
    const settings = members(root.litellm_settings);
    const fallbacks = [...list(router.fallbacks), ...list(settings.fallbacks)].map(members);
    const models = [...this.#groups].flatMap(([name, group]) =>
      this.#modelEntries(name, group, fallbacks),
    );
    const aliases = Object.entries(members(router.model_group_alias)).flatMap(([alias, target]) => {
      const name = text(target) ?? text(members(target).model);
      return name !== undefined && this.#groups.has(name)
        ? [{ id: alias, alias_of: this.#modelId(name) }]
        : [];
    });
    this.#noteSections(root);
    const providers = this.#providers.all().map((provider) => {
      const deployments = this.#azureNames.get(provider.id);
      return deployments === undefined ? provider : { ...provider, deployments };
    });
    return {
      config: { providers, models: [...models, ...aliases] },
      leftOut: [...this.#leftOut],
      notes: [...this.#notes],
    };
  }

  #addDeployment(index: number, entry: Members): void {
    const path = `model_list[${index}]`;
    const params = this.#withVariables(path, members(entry.litellm_params));
    const info = members(entry.model_info);
    const groupName = text(entry.model_name);
    const model = text(params.model);
    if (groupName === undefined || model === undefined) {
      throw new UsageError(`${path} needs a model_name and a litellm_params.model`);
    }
    const { vendor, type, name } = vendorModel(model, text(params.custom_llm_provider));
    if (type === undefined) {
      this.#leftOut.add(
        `${path} (${groupName}): the provider ${vendor} has no type here; if it has OpenAI's API, add it as openai-compatible`,
      );
      return;
    }
    const provider = this.#providerOf(type, params);
    this.#noteOthers("litellm_params.", params, TRANSLATED_PARAMS);
    this.#noteOthers("model_info.", info, TRANSLATED_INFO);
    this.#noteOthers("model_list[].", entry, TRANSLATED_ENTRY);
    if (name.includes("*")) {
      this.#notes.add(`${path} (${groupName}): ${provider.id} offers all of its models`);
      return;
    }
    const baseModel = text(info.base_model)?.replace(/^azure\//, "");
    if (type === "azure" && baseModel !== undefined) {
      this.#azureNames.set(provider.id, {
        ...this.#azureNames.get(provider.id),
        [baseModel]: name,
      });
    }
    const group: Group = this.#groups.get(groupName) ?? {
      deployments: [],
      category: categoryOf(text(info.mode), baseModel ?? name),
      limits: numbersOf(info, {
        max_input_tokens: "context_length",
        max_output_tokens: "max_output_tokens",
      }),
    };
    group.deployments.push({
      endpoint: {
        provider: provider.id,
        model: name,
        ...numbersOf({ ...info, ...params }, PRICES),
        ...numbersOf(params, { max_parallel_requests: "max_parallel_requests" }),
      },
      order: number(params.order) ?? 0,
      weight: number(params.weight) ?? number(params.rpm) ?? number(params.tpm) ?? 1,
    });
    this.#groups.set(groupName, group);
  }

  #providerOf(stated: string, params: Members): ProviderEntry {
    const address = text(params.api_base) ?? text(params.base_url);
    const type = typeAt(stated, address);
    return this.#providers.add({
      type,
      ...(address !== undefined && { base_url: withVersion(type, address) }),
      ...CLOUD_SETTINGS[type]?.(params),
      ...keyMember(type, statedIn(params.api_key)),
    });
  }

  /** Replaces the names of variables by their values in members for which the file has no such form. */
  #withVariables(path: string, params: Members): Members {
    const values = Object.entries(params).flatMap(([member, stated]) => {
      if (!VALUES_ONLY.has(member)) return [];
      const value = statedValue(statedIn(stated), `${path} ${member}`, this.#options.environment);
      return value === undefined ? [] : [[member, value]];
    });
    return { ...params, ...Object.fromEntries(values) };
  }

  /** Returns the model of a group, and the alias that has the group's name. */
  #modelEntries(name: string, group: Group, fallbacks: readonly Members[]): ModelEntry[] {
    const id = this.#modelId(name);
    const fallbackNames = fallbacks
      .flatMap((one) => list(one[name]))
      .flatMap((one) => text(one) ?? []);
    const later = fallbackNames.flatMap((one) => this.#groups.get(one)?.deployments ?? []);
    const model = {
      id,
      category: group.category as ModelEntry["category"],
      ...group.limits,
      endpoints: endpointsInOrder(group.deployments, later),
    } as ModelEntry;
    return id === name ? [model] : [model, { id: aliasId(name), alias_of: id }];
  }

  #modelId(group: string): string {
    const id = aliasId(group);
    return id.includes("/") ? id : `${this.#options.author}/${id}`;
  }

  #noteSections(root: Members): void {
    for (const section of SECTIONS) {
      this.#noteOthers(`${section}.`, members(root[section]), TRANSLATED_SETTINGS);
    }
    this.#noteOthers("", root, new Set(["model_list", ...SECTIONS]));
    for (const name of this.#groups.keys()) {
      if (aliasId(name) !== name) this.#notes.add(`${name}: call it ${aliasId(name)}`);
    }
  }

  /** Notes the members of an object that were not translated. */
  #noteOthers(prefix: string, object: Members, translated: ReadonlySet<string>): void {
    for (const key of Object.keys(object)) {
      if (translated.has(key)) continue;
      const setting = `${prefix}${key}`;
      this.#leftOut.add(`${setting}: ${LITELLM_HINTS[setting] ?? "has no counterpart"}`);
    }
  }
}

/** Deployments of one order share the load by weight. The others follow them, with the fallbacks last. */
function endpointsInOrder(
  primary: readonly Deployment[],
  later: readonly Deployment[],
): Endpoint[] {
  const sorted = primary.toSorted((left, right) => left.order - right.order);
  const first = sorted.filter(({ order }) => order === sorted[0]!.order);
  const sharesLoad = first.length > 1;
  const endpoints = [...sorted, ...later].map((deployment, index) => ({
    ...deployment.endpoint,
    ...(sharesLoad && { weight: index < first.length ? deployment.weight : 0 }),
  }));
  const ids = endpoints.map(({ provider, model }) => `${provider} ${model}`);
  return endpoints.filter((_, index) => ids.indexOf(ids[index]!) === index);
}

/** Settings of the clouds, from `litellm_params`. */
const CLOUD_SETTINGS: Readonly<Record<string, (params: Members) => Partial<ProviderEntry>>> = {
  azure: (params) => {
    const version = text(params.api_version);
    return version === undefined ? {} : { api_version: version };
  },
  bedrock: (params) =>
    awsMember({
      region: text(params.aws_region_name),
      accessKeyId: statedIn(params.aws_access_key_id),
      secretAccessKey: statedIn(params.aws_secret_access_key),
      sessionToken: statedIn(params.aws_session_token),
    }),
  vertex: (params) =>
    vertexMembers(
      text(params.vertex_project),
      text(params.vertex_location),
      statedIn(params.vertex_credentials),
    ),
};

/** Returns a value of the file, which can name a variable, as in `os.environ/OPENAI_API_KEY`. */
function statedIn(value: unknown): Stated | undefined {
  const stated = text(value);
  if (stated === undefined) return undefined;
  const variable = /^os\.environ\/(.+)$/.exec(stated)?.[1];
  return variable === undefined ? { value: stated } : { variable };
}

/** Members of `litellm_params` whose counterpart cannot name a variable. */
const VALUES_ONLY = new Set([
  ...["model", "api_base", "base_url", "api_version"],
  ...["aws_region_name", "vertex_project", "vertex_location"],
]);

/** Members of the file for LiteLLM's prices. */
const PRICES: Readonly<Record<string, string>> = {
  input_cost_per_token: "input_cost_per_token",
  output_cost_per_token: "output_cost_per_token",
  cache_read_input_token_cost: "cached_input_cost_per_token",
  cache_creation_input_token_cost: "cache_write_input_cost_per_token",
  output_cost_per_image: "cost_per_image",
  input_cost_per_character: "cost_per_character",
  input_cost_per_second: "cost_per_second",
};

const TRANSLATED_PARAMS = new Set([
  ...["model", "custom_llm_provider", "api_key", "api_base", "base_url", "api_version"],
  ...["weight", "order", "max_parallel_requests", "vertex_project", "vertex_location"],
  ...["vertex_credentials", "aws_region_name", "aws_access_key_id", "aws_secret_access_key"],
  ...["aws_session_token", ...Object.keys(PRICES)],
]);

const TRANSLATED_INFO = new Set([
  ...["id", "mode", "base_model", "max_input_tokens", "max_output_tokens"],
  ...Object.keys(PRICES),
]);

const TRANSLATED_ENTRY = new Set(["model_name", "litellm_params", "model_info"]);

const SECTIONS = ["litellm_settings", "router_settings", "general_settings"];
const TRANSLATED_SETTINGS = new Set(["fallbacks", "model_group_alias"]);
