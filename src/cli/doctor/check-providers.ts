import type { ProviderConfig } from "../../config/providers.ts";
import { openTcpProbe, tcpTargetOf } from "../../providers/openai/tcp-probe.ts";
import { within } from "../within.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const TIMEOUT_MS = 2_000;
const PROBES_AT_ONCE = 32;

/**
 * Whether a connection to each provider's address stands. Sends nothing, so a wrong key stays unseen, and
 * what is behind a proxy too.
 */
export async function checkProviders(
  providers: readonly ProviderConfig[],
  proxiedProtocols: readonly string[],
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const check = (provider: ProviderConfig) => checkProvider(provider, proxiedProtocols);
  for (let first = 0; first < providers.length; first += PROBES_AT_ONCE) {
    const batch = providers.slice(first, first + PROBES_AT_ONCE);
    findings.push(...(await Promise.all(batch.map(check))));
  }
  return findings;
}

async function checkProvider(
  { id, baseUrl }: ProviderConfig,
  proxiedProtocols: readonly string[],
): Promise<Finding> {
  const name = `provider ${id}`;
  if (baseUrl === "") return ok(name, "built in");
  if (proxiedProtocols.includes(new URL(baseUrl).protocol)) {
    return ok(name, `${baseUrl}, through a proxy: not tried`);
  }
  const reached = Promise.withResolvers<boolean>();
  const giveUp = openTcpProbe(tcpTargetOf(baseUrl), reached.resolve);
  try {
    const isReachable = await within(TIMEOUT_MS, reached.promise);
    return isReachable ? ok(name, baseUrl) : wrong(name, `${baseUrl} cannot be reached`);
  } catch (error) {
    return wrong(name, `${baseUrl}: ${(error as Error).message}`);
  } finally {
    giveUp();
  }
}
