import { resolve } from "node:path";
import { type AccessKeys, readAccessKeys } from "./config/access-keys.ts";
import { ConfigFaults } from "./config/config-error.ts";
import { type Environment, EnvironmentReader } from "./config/environment.ts";
import {
  type AliasConfig,
  type FileContents,
  type ModelConfig,
  type PriceConfig,
  readConfigFile,
} from "./config/file.ts";
import { type OutboundProxies, readOutboundProxies } from "./config/outbound-proxies.ts";
import {
  checkModerationModel,
  checkProviderVariables,
  enabledProviders,
  isHosted,
  type ProviderConfig,
  SANDBOX_MODERATION_MODEL,
  SANDBOX_PROVIDER_ID,
  variablesUsed,
} from "./config/providers.ts";
import {
  type ExternalServices,
  readExternalServices,
  readSettings,
  type Settings,
} from "./config/settings.ts";
import { warnOfMisspelled } from "./config/spelling.ts";

/** All settings of an operator, checked and deeply frozen. */
export interface GatewayConfig extends Settings, AccessKeys, ExternalServices {
  /** An absolute path. */
  readonly dataDir: string;
  /** The path of the configuration file as it was given. Undefined without a file. */
  readonly configFile: string | undefined;
  /** The providers of the file and of the environment, and the sandbox. */
  readonly providers: readonly ProviderConfig[];
  /** The ids of the providers that the file defines. */
  readonly providersOfFile: readonly string[];
  /** The file's entries of models, from which the catalogue is built. */
  readonly models: readonly ModelConfig[];
  readonly aliases: readonly AliasConfig[];
  readonly prices: readonly PriceConfig[];
  readonly sandbox: boolean;
  /**
   * True on a trial install: the sandbox then searches the web and moderates unless another service
   * is configured. Next to hosted providers its made-up results would be mistaken for real ones.
   */
  readonly usesSandboxFallbacks: boolean;
  /** True if, without Stripe, the test processor accepts payments and credits money for nothing. */
  readonly testPayments: boolean;
  /** The proxies that calls to providers go through. */
  readonly proxies: OutboundProxies;
  /** Concurrent outbound requests of this process, by the platform's own setting. */
  readonly maxOutboundRequests: number;
  /** Warnings to log at the start, one line each, such as settings without effect. */
  readonly warnings: readonly string[];
}

/** The settings that the check of the file's models needs. */
export type ConfiguredModels = Pick<
  GatewayConfig,
  "providers" | "models" | "aliases" | "prices" | "sandbox" | "dataDir" | "modelListsSeconds"
>;

interface ReadOptions {
  readonly cwd?: string;
}

/**
 * Reads the environment and the configuration file once. Throws ConfigError with all faults. The
 * line of each names the setting, its value (masked if it is secret) and the accepted values.
 */
export function readConfig(environment: Environment, options: ReadOptions = {}): GatewayConfig {
  const faults = new ConfigFaults();
  const { config } = readParts(environment, faults, options);
  faults.throwAny();
  return deepFreeze(config);
}

/**
 * Reads the configuration like `readConfig`. `checkModels` adds the faults of the file's models
 * that only the catalogue shows, so that one start reports all faults.
 */
export async function readCheckedConfig(
  environment: Environment,
  checkModels: (config: ConfiguredModels, faults: ConfigFaults) => Promise<void>,
  options: ReadOptions = {},
): Promise<GatewayConfig> {
  const faults = new ConfigFaults();
  const { config, faultyIds } = readParts(environment, faults, options);
  const models = checkableModels(config, faultyIds);
  if (models.length > 0) await checkModels({ ...config, models }, faults);
  faults.throwAny();
  return deepFreeze(config);
}

/** Reads all parts. A part with a fault gets a placeholder. */
function readParts(
  environment: Environment,
  faults: ConfigFaults,
  { cwd = process.cwd() }: ReadOptions,
): { readonly config: GatewayConfig; readonly faultyIds: FileContents["faultyIds"] } {
  const reader = new EnvironmentReader(environment, faults);
  const settings = readSettings(reader);
  const accessKeys = readAccessKeys(reader, settings.databaseUrl);
  const external = readExternalServices(reader);
  const file = faults.attempt(() => readConfigFile(environment, cwd, faults), undefined);
  const providers = file && enabledProviders(environment, file, faults);
  if (file === undefined) checkProviderVariables(environment, faults);
  const usesSandboxFallbacks = file?.sandbox === true && !(providers ?? []).some(isHosted);
  const moderationModel =
    settings.moderationModel ?? (usesSandboxFallbacks ? SANDBOX_MODERATION : undefined);
  if (providers !== undefined) {
    faults.attempt(() => checkModerationModel(moderationModel, providers), undefined);
  }
  const isForTrial = isTrial(settings, providers ?? []);
  const testPayments =
    reader.boolean("GATEWAY_TEST_PAYMENTS", isForTrial) && external.services.stripe === undefined;
  const proxies = faults.attempt(() => readOutboundProxies(environment), undefined);
  const enabled = new Set(providers?.map(({ id }) => id));
  const broken = file?.providers.map(({ id }) => id).filter((id) => !enabled.has(id)) ?? [];
  const config = {
    ...settings,
    ...accessKeys,
    ...external.services,
    moderationModel,
    usesSandboxFallbacks,
    dataDir: resolve(cwd, reader.text("DATA_DIR") ?? ""),
    configFile: file?.path,
    providers: providers ?? [],
    providersOfFile: file?.providers.map(({ id }) => id) ?? [],
    models: file?.models ?? [],
    aliases: file?.aliases ?? [],
    prices: file?.prices ?? [],
    sandbox: file?.sandbox ?? true,
    testPayments,
    // Undefined only if there is a fault, which is thrown before the value is used.
    proxies: proxies!,
    maxOutboundRequests: outboundRequests(environment.BUN_CONFIG_MAX_HTTP_REQUESTS),
    warnings: [
      ...external.warnings,
      ...(testPayments && !isForTrial ? [GIVES_CREDIT_AWAY] : []),
      ...warnOfMisspelled(environment, file?.providers.flatMap(variablesUsed) ?? []),
    ],
  };
  const { faultyIds = { providers: [], models: [] } } = file ?? {};
  return {
    config,
    faultyIds: { ...faultyIds, providers: [...faultyIds.providers, ...broken] },
  };
}

/**
 * The model that decides for guardrails if the operator has configured none. See the sandbox's
 * documentation.
 */
const SANDBOX_MODERATION = `${SANDBOX_PROVIDER_ID}/${SANDBOX_MODERATION_MODEL}`;

/**
 * Returns the models that can be checked: their providers have no fault, and neither has the model
 * that an alias refers to.
 */
function checkableModels(
  { models, providers }: Pick<GatewayConfig, "models" | "providers">,
  faultyIds: FileContents["faultyIds"],
): ModelConfig[] {
  const enabled = new Set(providers.map(({ id }) => id));
  const isCheckable = ({ id, alias_of: target, endpoints }: ModelConfig): boolean => {
    if (endpoints !== undefined) return endpoints.every(({ provider }) => enabled.has(provider));
    const name = target ?? id;
    const isOfFaulty = faultyIds.providers.some((provider) => name.startsWith(`${provider}/`));
    return !isOfFaulty && !faultyIds.models.includes(name);
  };
  const checkable = models.filter(isCheckable);
  const ids = new Set(checkable.map(({ id }) => id));
  const unchecked = new Set(models.map(({ id }) => id).filter((id) => !ids.has(id)));
  return checkable.filter(({ alias_of: target }) => target === undefined || !unchecked.has(target));
}

/**
 * Returns true if only this machine can reach the gateway and no call of a provider costs money.
 */
function isTrial(
  { hostIsLoopback, publicUrl, trustedProxies }: Settings,
  providers: readonly ProviderConfig[],
): boolean {
  const isReached = !hostIsLoopback || publicUrl !== undefined || trustedProxies.length > 0;
  return !isReached && !providers.some(isHosted);
}

const GIVES_CREDIT_AWAY =
  "GATEWAY_TEST_PAYMENTS is true: the test processor takes payments, so keys with the scope billing:write can credit their organization for nothing; set it to false to accept no payments";

/**
 * Returns the limit of concurrent outbound requests. The platform reads the variable once, at the
 * start of the process.
 */
function outboundRequests(text: string | undefined): number {
  return text !== undefined && /^[1-9]\d{0,4}$/.test(text) ? Number(text) : 256;
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) deepFreeze(member);
    Object.freeze(value);
  }
  return value;
}
