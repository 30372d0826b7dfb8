import type { GatewayConfig } from "../../config.ts";
import { baseUrl } from "../../start/first-keys.ts";
import { freePort } from "../../start/listen.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const NAME = "port";
const ANSWER_TIMEOUT_MS = 1_000;

/**
 * Whether the gateway could listen.
 * @param isRunning a gateway runs on the database, and may be the one that has the port
 */
export async function checkPort(config: GatewayConfig, isRunning: boolean): Promise<Finding> {
  const { host, port } = config;
  try {
    freePort(config);
    return ok(NAME, port === 0 ? `a free one on ${host}` : `${port} is free on ${host}`);
  } catch (error) {
    const isOurs = isRunning && port !== 0 && (await answersAsGateway(config));
    return isOurs ? ok(NAME, `the gateway that runs listens on ${port}`) : wrong(NAME, error);
  }
}

async function answersAsGateway(config: GatewayConfig): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const response = await fetch(`${baseUrl(config)}/healthz`, { signal, redirect: "manual" });
    return response.ok && response.headers.has("x-gateway-request-id");
  } catch {
    return false;
  }
}
