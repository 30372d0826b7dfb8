import type { GatewayConfig } from "../config.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import { baseUrl, type FirstKeys, nameBaseUrl } from "./first-keys.ts";

/** Says where the gateway is reached and, once in its life, where its first keys are. */
export function announce(
  telemetry: Telemetry,
  config: GatewayConfig,
  port: number,
  keys: FirstKeys | undefined,
): void {
  const url = baseUrl(config, port);
  if (keys?.path !== undefined) {
    if (port !== config.port) nameBaseUrl(keys, url);
    telemetry.log.info(`the first keys are in ${keys.path}; keep them and delete the file`);
  } else if (keys !== undefined) {
    process.stdout.write(`\n  Base URL         ${url}\n\n`);
  }
  telemetry.log.info({ port }, `listening on ${url}`);
}
