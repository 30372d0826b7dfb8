import { resolve } from "node:path";
import { type AccessKeys, readAccessKeys } from "./config/access-keys.ts";
import { ConfigFaults } from "./config/config-error.ts";
import { type Environment, EnvironmentReader } from "./config/environment.ts";
import { type ModelConfig, readConfigFile } from "./config/file.ts";
import { type OutboundProxies, readOutboundProxies } from "./config/outbound-proxies.ts";
import {
  checkModerationModel,
  checkProviderVariables,
  enabledProviders,
  isHosted,
  type ProviderConfig,
} from "./config/providers.ts";
import {
  type ExternalServices,
  readExternalServices,
  readSettings,
  type Settings,
} from "./config/settings.ts";
import { CONFIG_VARIABLES } from "./config/variables.ts";

/** Everything an operator can set, checked; frozen all through. */
export interface GatewayConfig extends Settings, AccessKeys, ExternalServices {
  /** Absolute. */
  readonly dataDir: string;
  /** The configuration file in use, as it was named; undefined when there is none. */
  readonly configFile: string | undefined;
  /** Of the file, of the environment, and the sandbox. */
  readonly providers: readonly ProviderConfig[];
  /** The file's entries, which the catalogue is built from. */
  readonly models: readonly ModelConfig[];
  readonly sandbox: boolean;
  /** Without Stripe, the test processor takes payments, and credits money for nothing. */
  readonly testPayments: boolean;
  /** The proxies that calls to providers go through. */
  readonly proxies: OutboundProxies;
  /** Requests that this process may have under way at a time, by the platform's own setting. */
  readonly maxOutboundRequests: number;
  /** What is set but has no effect, one line each, to be logged at the start. */
  readonly warnings: readonly string[];
}

/**
 * Reads the environment and the configuration file once. Throws ConfigError with all faults, a line for each
 * that names the setting, its value (masked where it is secret) and what is accepted.
 */
export function readConfig(
  environment: Environment,
  options: { readonly cwd?: string } = {},
): GatewayConfig {
  const cwd = options.cwd ?? process.cwd();
  const faults = new ConfigFaults();
  const reader = new EnvironmentReader(environment, faults);
  const settings = readSettings(reader);
  const accessKeys = readAccessKeys(reader, settings.databaseUrl);
  const external = readExternalServices(reader);
  const file = faults.attempt(() => readConfigFile(environment, cwd), undefined);
  const providers = file && enabledProviders(environment, file, faults);
  if (file === undefined) checkProviderVariables(environment, faults);
  if (providers !== undefined) {
    faults.attempt(() => checkModerationModel(settings.moderationModel, providers), undefined);
  }
  const isForTrial = isTrial(settings, providers ?? []);
  const testPayments =
    reader.boolean("GATEWAY_TEST_PAYMENTS", isForTrial) && external.services.stripe === undefined;
  const proxies = faults.attempt(() => readOutboundProxies(environment), undefined);
  faults.throwAny();
  const { path, models, sandbox } = file!;
  return deepFreeze({
    ...settings,
    ...accessKeys,
    ...external.services,
    dataDir: resolve(cwd, reader.text("DATA_DIR") ?? ""),
    configFile: path,
    providers: providers!,
    models,
    sandbox,
    testPayments,
    proxies: proxies!,
    maxOutboundRequests: outboundRequests(environment.BUN_CONFIG_MAX_HTTP_REQUESTS),
    warnings: [
      ...external.warnings,
      ...(testPayments && !isForTrial ? [GIVES_CREDIT_AWAY] : []),
      ...misspelled(environment),
    ],
  });
}

/** True if only this machine reaches the gateway, and no call of a provider costs money. */
function isTrial(
  { hostIsLoopback, publicUrl, trustedProxies }: Settings,
  providers: readonly ProviderConfig[],
): boolean {
  const isReached = !hostIsLoopback || publicUrl !== undefined || trustedProxies.length > 0;
  return !isReached && !providers.some(isHosted);
}

const GIVES_CREDIT_AWAY =
  "GATEWAY_TEST_PAYMENTS is true: the test processor takes payments, so keys with the scope billing:write can credit their organization for nothing; set it to false to take none";

/** The platform reads it once, at the start of the process. */
function outboundRequests(text: string | undefined): number {
  return text !== undefined && /^[1-9]\d{0,4}$/.test(text) ? Number(text) : 256;
}

/** Variables with the gateway's prefix that it does not know: most likely a misspelled one. */
function misspelled(environment: Environment): string[] {
  const known = new Set(CONFIG_VARIABLES.map(({ name }) => name));
  return Object.keys(environment)
    .filter((name) => name.startsWith("GATEWAY_") && !known.has(name))
    .map((name) => `${name} is ignored: there is no such setting`);
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value === "object" && value !== null) {
    for (const member of Object.values(value)) deepFreeze(member);
    Object.freeze(value);
  }
  return value;
}
