import type { GatewayConfig } from "../config.ts";
import type { Telemetry } from "../telemetry/interface.ts";
import { baseUrl, type FirstKeys } from "./first-keys.ts";
import { writeFirstKeys } from "./first-keys-file.ts";

/** Says where the gateway is reached and where its first keys are. */
export function announce(
  telemetry: Telemetry,
  config: GatewayConfig,
  port: number,
  keys: FirstKeys | undefined,
): void {
  const url = baseUrl(config, port);
  if (keys?.kind === "shown") process.stdout.write(`\n  Base URL         ${url}\n\n`);
  else if (keys?.kind === "file") announceFile(telemetry, url, keys);
  telemetry.log.info({ port }, `listening on ${url}`);
}

/** The address in it may not have been known before the gateway listened, or be that of an earlier start. */
function announceFile(
  { log }: Telemetry,
  url: string,
  { path, file }: FirstKeys & { readonly kind: "file" },
): void {
  try {
    if (file.base_url !== url) writeFirstKeys(path, { ...file, base_url: url });
  } catch {
    log.warn(`the base_url in ${path} could not be brought up to date`);
  }
  log.info(`the first keys are in ${path}; keep them and delete the file`);
}
