import type {
  AliasEntry,
  ModelEntry,
  ProviderEntry,
} from "../../../platform/config/file-schema.ts";
import { UsageError } from "../command.ts";
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
import { categoryOf, providerTypeOf, vendorInName } from "./vendors.ts";

/** A model of a config, in the order in which the models are tried. */
interface Choice {
  readonly modelId: string;
  /** Share of first choices. 0 if the model is only a fallback. */
  readonly share: number;
}

/**
 * Translates configs of Portkey: a config object, one that was retrieved from Portkey's API, or a list of these. Each
 * config becomes an alias of its slug or name. A config without either gets the file's name. Throws UsageError if the
 * text has no config.
 */
export function translatePortkey(source: string, options: TranslationOptions): Translation {
  const parsed = parseJson(source);
  const root = members(parsed).data ?? parsed;
  const configs = (Array.isArray(root) ? root : [root]).map(members);
  const translator = new PortkeyTranslator(options);
  for (const [index, entry] of configs.entries()) {
    const config = members(
      typeof entry.config === "string" ? parseJson(entry.config) : (entry.config ?? entry),
    );
    if (!CONFIG_MEMBERS.some((member) => member in config)) {
      throw new UsageError(`the file has no config${configs.length > 1 ? ` at [${index}]` : ""}`);
    }
    const name = text(entry.slug) ?? text(entry.name) ?? options.fileName;
    translator.addConfig(name, config);
  }
  return translator.translation();
}

const CONFIG_MEMBERS = ["strategy", "targets", "provider", "virtual_key"];

class PortkeyTranslator {
  readonly #options: TranslationOptions;
  readonly #providers = new ProviderList();
  readonly #models = new Map<string, ModelEntry>();
  readonly #aliases = new Map<string, AliasEntry>();
  readonly #leftOut = new Set<string>();
  readonly #notes = new Set<string>();

  constructor(options: TranslationOptions) {
    this.#options = options;
  }

  translation(): Translation {
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

  addConfig(name: string, config: Members): void {
    const id = aliasId(name);
    const choices = this.#choicesOf(name, config, {});
    const models = choices
      .filter(({ modelId }, at) => choices.findIndex((one) => one.modelId === modelId) === at)
      .map(({ modelId, share }) => ({ id: modelId, weight: share }));
    if (models.length === 0) {
      this.#leftOut.add(`${name}: it names no model, so it has no alias; requests name the model`);
      return;
    }
    const sharesLoad = models.filter(({ weight }) => weight > 0).length > 1;
    this.#aliases.set(id, {
      id,
      models: sharesLoad ? models : models.map(({ id: model }) => ({ id: model })),
    });
    if (id !== name) this.#notes.add(`${name}: call it ${id}`);
  }

  /** Returns the models of a config or of one of its targets. Members of the config apply to its targets. */
  #choicesOf(path: string, node: Members, inherited: Members): Choice[] {
    const parameters = { ...inherited, ...members(node.override_params) };
    const targets = list(node.targets).map(members);
    for (const key of Object.keys(node)) {
      if (!TRANSLATED.has(key)) this.#leaveOut(key);
    }
    if (targets.length === 0) return this.#leaf(path, node, parameters);
    const strategy = members(node.strategy);
    const mode = text(strategy.mode) ?? "single";
    if (strategy.on_status_codes !== undefined) this.#leaveOut("strategy.on_status_codes");
    if (mode === "conditional") return this.#conditional(path, strategy, targets, parameters);
    const used = mode === "single" ? targets.slice(0, 1) : targets;
    if (used.length < targets.length) {
      this.#leftOut.add(`${path}: the mode single uses only the first of its targets`);
    }
    const children = used.map((target, at) => ({
      weight: mode === "loadbalance" ? (number(target.weight) ?? 1) : at === 0 ? 1 : 0,
      choices: this.#choicesOf(`${path}.targets[${at}]`, target, parameters),
    }));
    return inOrder(children);
  }

  #conditional(path: string, strategy: Members, targets: readonly Members[], inherited: Members) {
    const fallback = targets.find(({ name }) => name !== undefined && name === strategy.default);
    const rest = fallback === undefined ? "" : "; the alias means the default target";
    this.#leftOut.add(
      `${path}: conditions have no counterpart; choose the model in the client${rest}`,
    );
    return fallback === undefined ? [] : this.#choicesOf(path, fallback, inherited);
  }

  #leaf(path: string, target: Members, parameters: Members): Choice[] {
    for (const key of Object.keys(parameters)) {
      if (key !== "model") this.#leftOut.add(`override_params.${key}: make a preset`);
    }
    const provider = this.#providerOf(path, target, parameters);
    if (provider === undefined) return [];
    // A model of Portkey's catalogue begins with the slug of its provider.
    const stated = text(parameters.model)?.replace(/^@[^/]+\//, "");
    const model = text(target.deployment_id) ?? stated;
    if (model === undefined) {
      this.#leftOut.add(
        `${path}: it names no model; requests name it as ${provider.id}/model instead`,
      );
      return [];
    }
    const id = aliasId(`${this.#options.author}/${provider.id}/${model}`);
    const category = categoryOf(undefined, text(target.azure_model_name) ?? model);
    const endpoints = [{ provider: provider.id, model }];
    this.#models.set(id, { id, category, endpoints } as ModelEntry);
    return [{ modelId: id, share: 1 }];
  }

  #providerOf(path: string, target: Members, parameters: Members): ProviderEntry | undefined {
    const [, ofModel] = /^@([^/]+)\//.exec(text(parameters.model) ?? "") ?? [];
    const named = text(target.provider) ?? (ofModel === undefined ? undefined : `@${ofModel}`);
    const slug = named?.startsWith("@") ? named.slice(1) : undefined;
    const virtualKey = text(target.virtual_key) ?? slug;
    const vendor =
      slug === undefined && named !== undefined ? named : vendorInName(virtualKey ?? "");
    if (vendor === undefined) {
      this.#leftOut.add(
        `${path}: the file does not say which provider ${virtualKey ?? "it"} is; add its vendor as "provider"`,
      );
      return undefined;
    }
    const usual = providerTypeOf(vendor);
    if (usual === undefined) {
      this.#leftOut.add(
        `${path}: the provider ${vendor} has no type here; if it has OpenAI's API, add it as openai-compatible`,
      );
      return undefined;
    }
    const address = this.#addressOf(path, usual, target);
    const type = typeAt(usual, address);
    return this.#providers.add(
      {
        type,
        ...(address !== undefined && { base_url: address }),
        ...this.#cloudMembers(path, type, target),
        ...keyMember(type, this.#keyOf(type, target, virtualKey)),
      },
      virtualKey,
    );
  }

  /** Returns the key of a target. That of a virtual key is in Portkey's vault, so a variable stands for it. */
  #keyOf(type: string, target: Members, virtualKey: string | undefined): Stated | undefined {
    const key = statedIn(target.api_key);
    if (key !== undefined || virtualKey === undefined) return key;
    if (type === "bedrock" || type === "vertex") return undefined;
    const variable = `${virtualKey.toUpperCase().replaceAll(/[^A-Z0-9]+/g, "_")}_API_KEY`;
    this.#notes.add(`${virtualKey}: set ${variable} to its key, which only Portkey has`);
    return { variable: /^\d/.test(variable) ? `_${variable}` : variable };
  }

  #addressOf(path: string, type: string, target: Members): string | undefined {
    const value = (member: string) =>
      statedValue(statedIn(target[member]), `${path} ${member}`, this.#options.environment);
    const resource = type === "azure" ? value("resource_name") : undefined;
    const address = value("custom_host");
    return address ?? (resource && `https://${resource}.openai.azure.com`);
  }

  #cloudMembers(path: string, type: string, target: Members): Partial<ProviderEntry> {
    const value = (member: string) =>
      statedValue(statedIn(target[member]), `${path} ${member}`, this.#options.environment);
    if (type === "azure") {
      const [version, model, deployment] = [
        value("api_version"),
        text(target.azure_model_name),
        text(target.deployment_id),
      ];
      return {
        ...(version !== undefined && { api_version: version }),
        ...(model !== undefined &&
          deployment !== undefined && { deployments: { [model]: deployment } }),
      };
    }
    if (type === "bedrock") {
      return awsMember({
        region: value("aws_region"),
        accessKeyId: statedIn(target.aws_access_key_id),
        secretAccessKey: statedIn(target.aws_secret_access_key),
        sessionToken: statedIn(target.aws_session_token),
      });
    }
    if (type !== "vertex") return {};
    const account = target.vertex_service_account_json;
    const credentials = typeof account === "object" ? JSON.stringify(account) : account;
    return vertexMembers(value("vertex_project_id"), value("vertex_region"), statedIn(credentials));
  }

  #leaveOut(setting: string): void {
    this.#leftOut.add(`${setting}: ${HINTS[setting] ?? "has no counterpart"}`);
  }
}

/** Returns the choices of targets: first those that share the load, by their weights, then the fallbacks. */
function inOrder(
  children: readonly { readonly weight: number; readonly choices: readonly Choice[] }[],
): Choice[] {
  const all = children.flatMap(({ weight, choices }) => {
    const sum = choices.reduce((total, { share }) => total + share, 0) || 1;
    return choices.map((choice) => ({ ...choice, share: rounded((choice.share / sum) * weight) }));
  });
  return [...all.filter(({ share }) => share > 0), ...all.filter(({ share }) => share === 0)];
}

const rounded = (share: number) => Math.round(share * 1e6) / 1e6;

/** Returns a value of the file, which can name a variable, as in `${OPENAI_API_KEY}`. */
function statedIn(value: unknown): Stated | undefined {
  const stated = text(value);
  if (stated === undefined) return undefined;
  const variable = /^\$\{([A-Za-z_]\w*)\}$/.exec(stated)?.[1];
  return variable === undefined ? { value: stated } : { variable };
}

/** The replacement of each setting that the configuration file does not have. */
const HINTS: Readonly<Record<string, string>> = {
  "strategy.on_status_codes": "the gateway decides by the kind of failure",
  on_status_codes: "the gateway decides by the kind of failure",
  retry: "the gateway retries by itself",
  cache: "callers switch the response cache on by X-Gateway-Cache",
  request_timeout: "set GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS, for all providers",
  forward_headers: "has no counterpart",
  input_guardrails: "make guardrails by POST /v1/guardrails",
  output_guardrails: "make guardrails by POST /v1/guardrails",
  before_request_hooks: "make guardrails by POST /v1/guardrails",
  after_request_hooks: "make guardrails by POST /v1/guardrails",
  default_input_guardrails: "make guardrails by POST /v1/guardrails",
  default_output_guardrails: "make guardrails by POST /v1/guardrails",
};

const TRANSLATED = new Set([
  ...["strategy", "targets", "name", "weight", "override_params", "provider", "virtual_key"],
  ...["api_key", "custom_host", "resource_name", "deployment_id", "api_version"],
  ...["azure_model_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token"],
  ...["aws_region", "vertex_project_id", "vertex_region", "vertex_service_account_json"],
]);
