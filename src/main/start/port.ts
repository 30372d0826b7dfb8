import { printable } from "../../lib/printable.ts";
import { ConfigError, refuse } from "../../platform/config/config-error.ts";
import type { GatewayConfig } from "../../platform/config.ts";

type Address = Pick<GatewayConfig, "host" | "port">;

/**
 * Returns the configured port, or a free one for 0, after checking that no process uses it. Workers that share a port
 * would otherwise share it with a foreign process too. Called first, so that a start on a used port creates nothing.
 * Throws ConfigError.
 */
export async function freePort(config: GatewayConfig): Promise<number> {
  const { port, host: hostname } = config;
  try {
    const probe = Bun.listen({ hostname, port, socket: { data() {} } });
    const free = probe.port;
    probe.stop(true);
    return free;
  } catch (error) {
    throw isUsed(error) ? await usedPort(config) : refused(config, error);
  }
}

/** Returns the error for a used port. It names the gateway that uses it, if one answers. */
async function usedPort(config: GatewayConfig): Promise<ConfigError> {
  const { host, port } = config;
  const used = `PORT: port ${port} on ${host} is already in use`;
  const running = await runningGateway(config);
  return new ConfigError(
    running === undefined
      ? `${used} by another program: stop it, or set PORT to a free port`
      : `${used} by a running gateway (version ${running.version}): stop it, or set PORT to a free port`,
  );
}

const ANSWER_TIMEOUT_MS = 1_000;

/** Returns the gateway that answers at the configured address, or undefined if none does. */
export async function runningGateway(
  config: Address,
): Promise<{ readonly version: string } | undefined> {
  try {
    const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS);
    const response = await fetch(`${baseUrl(config)}/healthz`, { signal, redirect: "manual" });
    if (!response.ok || !response.headers.has("x-gateway-request-id")) return undefined;
    const { version } = (await response.json()) as { version?: unknown };
    return { version: printable(String(version)) };
  } catch {
    return undefined;
  }
}

/** Returns the URL of the gateway on this machine. */
export function baseUrl(config: Address, port = config.port): string {
  const isWildcard = config.host === "0.0.0.0" || config.host === "::";
  const host = isWildcard ? "127.0.0.1" : config.host;
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Returns the result of `listen`. Throws ConfigError if the address cannot be used. */
export function orRefused<Result>(address: Address, attempt: () => Result): Result {
  try {
    return attempt();
  } catch (error) {
    throw refused(address, error);
  }
}

function isUsed(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === "EADDRINUSE";
}

function refused({ host, port }: Address, error: unknown): ConfigError {
  if (isUsed(error)) return new ConfigError(`PORT: port ${port} on ${host} is already in use`);
  if ((error as { code?: unknown } | null)?.code === "EACCES") {
    return new ConfigError(
      `PORT: this user has no permission to listen on port ${port} on ${host}`,
    );
  }
  const reason = error instanceof Error ? error.message : String(error);
  return refuse("HOST", host, `an address of this machine (${reason})`);
}
