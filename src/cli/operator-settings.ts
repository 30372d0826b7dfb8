import { resolve } from "node:path";
import { type Environment, EnvironmentReader } from "../config/environment.ts";
import { readSettings, type Settings } from "../config/settings.ts";

export interface OperatorSettings
  extends Pick<Settings, "databaseUrl" | "plan" | "startingCreditNanoUsd"> {
  /** Absolute. */
  readonly dataDir: string;
}

/**
 * What commands need of the configuration. The rest is left alone, so that a key can be revoked from a
 * shell that lacks the gateway's other secrets. Throws ConfigError.
 */
export function readOperatorSettings(environment: Environment, cwd: string): OperatorSettings {
  const reader = new EnvironmentReader(environment);
  const { databaseUrl, plan, startingCreditNanoUsd } = readSettings(reader);
  const dataDir = resolve(cwd, reader.text("DATA_DIR") ?? "");
  return { databaseUrl, plan, startingCreditNanoUsd, dataDir };
}
