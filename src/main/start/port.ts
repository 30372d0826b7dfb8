import { type ConfigError, refuse } from "../../platform/config/config-error.ts";
import type { GatewayConfig } from "../../platform/config.ts";

type Address = Pick<GatewayConfig, "host" | "port">;

/**
 * A port that no process has. Where several processes are to share it, they would share it with a stranger
 * too; and a gateway that finds it taken makes nothing before it refuses. Throws ConfigError.
 */
export function freePort(config: GatewayConfig): number {
  const { port, host: hostname } = config;
  const probe = orRefused(config, () => Bun.listen({ hostname, port, socket: { data() {} } }));
  const free = probe.port;
  probe.stop(true);
  return free;
}

/** What the attempt to listen returns. Throws ConfigError where the address cannot be had. */
export function orRefused<Result>(address: Address, attempt: () => Result): Result {
  try {
    return attempt();
  } catch (error) {
    throw refused(address, error);
  }
}

function refused({ host, port }: Address, error: unknown): ConfigError {
  const code = (error as { code?: unknown } | null)?.code;
  if (code === "EADDRINUSE") return refuse("PORT", String(port), `one that is free on ${host}`);
  if (code === "EACCES") return refuse("PORT", String(port), "one that this user may listen on");
  const reason = error instanceof Error ? error.message : String(error);
  return refuse("HOST", host, `an address of this machine (${reason})`);
}
