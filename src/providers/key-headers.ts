import { providerType } from "../config/provider-types.ts";
import { requestHeaders as anthropicHeaders } from "./anthropic/request-headers.ts";
import { wireDialect } from "./openai/wire-dialects.ts";

/**
 * The headers that show a provider of that type its key, outside its wire: for its list of models. Throws an
 * Error that does not quote the key where no header can carry it.
 */
export function keyHeaders(type: string, apiKey: string | undefined): Record<string, string> {
  if (providerType(type)?.wire === "anthropic") return anthropicHeaders({ id: type, apiKey });
  if (apiKey === undefined) return {};
  if (!/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new Error("its key has characters that no header can carry");
  }
  const { keyHeader } = wireDialect(type);
  return { [keyHeader]: keyHeader === "authorization" ? `Bearer ${apiKey}` : apiKey };
}
