import { ConfigError, refuse } from "../../platform/config/config-error.ts";
import type { GatewayConfig } from "../../platform/config.ts";

type Address = Pick<GatewayConfig, "host" | "port">;

/**
 * Returns the configured port, or a free one for 0, after checking that no process uses it. Workers that share a port
 * would otherwise share it with a foreign process too. Called first, so that a start on a used port creates nothing.
 * Throws ConfigError.
 */
export function freePort(config: GatewayConfig): number {
  const { port, host: hostname } = config;
  const probe = orRefused(config, () => Bun.listen({ hostname, port, socket: { data() {} } }));
  const free = probe.port;
  probe.stop(true);
  return free;
}

/** Returns the result of `listen`. Throws ConfigError if the address cannot be used. */
export function orRefused<Result>(address: Address, attempt: () => Result): Result {
  try {
    return attempt();
  } catch (error) {
    throw refused(address, error);
  }
}

function refused({ host, port }: Address, error: unknown): ConfigError {
  const code = (error as { code?: unknown } | null)?.code;
  if (code === "EADDRINUSE") {
    return new ConfigError(`PORT: port ${port} on ${host} is already in use`);
  }
  if (code === "EACCES") {
    return new ConfigError(
      `PORT: this user has no permission to listen on port ${port} on ${host}`,
    );
  }
  const reason = error instanceof Error ? error.message : String(error);
  return refuse("HOST", host, `an address of this machine (${reason})`);
}
