import type { ProviderConfig } from "../../config/providers.ts";
import { ProviderFailure } from "../../providers/interface.ts";
import { type HttpClient, sent } from "../../providers/transport/provider-response.ts";
import { type Finding, ok, wrong } from "./finding.ts";

const TIMEOUT_MS = 2_000;
const PROBES_AT_ONCE = 32;

/**
 * Whether each provider's address answers HTTP, over the way that calls take: through the proxy of the
 * environment, with the certificate checked. Sends no key, so a wrong one stays unseen.
 */
export async function checkProviders(
  providers: readonly ProviderConfig[],
  client: HttpClient,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const check = (provider: ProviderConfig) => checkProvider(provider, client);
  for (let first = 0; first < providers.length; first += PROBES_AT_ONCE) {
    const batch = providers.slice(first, first + PROBES_AT_ONCE);
    findings.push(...(await Promise.all(batch.map(check))));
  }
  return findings;
}

async function checkProvider(
  { id, baseUrl }: ProviderConfig,
  client: HttpClient,
): Promise<Finding> {
  const name = `provider ${id}`;
  if (baseUrl === "") return ok(name, "built in");
  try {
    const response = await sent(client, baseUrl, {
      method: "HEAD",
      headers: {},
      body: "",
      signal: AbortSignal.timeout(TIMEOUT_MS),
      connectTimeoutMs: TIMEOUT_MS,
    });
    // Any other status tells that somebody answers HTTP there, which is all that is asked.
    if (response.status !== 407) return ok(name, baseUrl);
    return wrong(name, `${baseUrl}: the proxy demands other credentials`);
  } catch (error) {
    return wrong(name, `${baseUrl} cannot be reached: ${reasonOf(error, TIMEOUT_MS)}`);
  }
}

/** Why a call failed, in words for the operator. */
export function reasonOf(error: unknown, timeoutMs: number): string {
  if (error instanceof ProviderFailure) return error.message;
  const { name, code, message } = error as { name: string; code?: unknown; message: string };
  if (name === "TimeoutError") return `no answer within ${timeoutMs / 1_000} s`;
  return typeof code === "string" && !message.includes(code) ? `${message} (${code})` : message;
}
