import { credentialDocument } from "../../lib/credential-document.ts";
import { AccessTokens } from "../credentials/access-tokens.ts";
import { requestToken } from "../credentials/request-token.ts";
import type { ProviderSettings } from "../interface.ts";
import type { OpenAiDependencies } from "../openai/chat/chat-provider.ts";

const AUTHORITY = "https://login.microsoftonline.com";
const SCOPE = "https://cognitiveservices.azure.com/.default";
const TENANT = /^[\w.-]{1,255}$/;

/**
 * Returns the access tokens of an application in Entra ID
 * (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow), if the provider's
 * key is JSON with `tenant_id`, `client_id` and `client_secret`. Returns undefined if the key is a plain key.
 * Throws an Error of one line if it is other JSON.
 */
export function entraTokens(
  settings: ProviderSettings,
  dependencies: Pick<Required<OpenAiDependencies>, "clock" | "httpClient">,
): AccessTokens | undefined {
  const { apiKey, connectTimeoutMs } = settings;
  const document = apiKey === undefined ? undefined : credentialDocument(apiKey);
  if (document === undefined) return undefined;
  const text = (name: string): string => {
    const value = document[name];
    if (typeof value === "string" && value !== "") return value;
    throw new Error(`the credentials of provider "${settings.id}" have no ${name}`);
  };
  const tenant = text("tenant_id");
  if (!TENANT.test(tenant)) {
    throw new Error(`the credentials of provider "${settings.id}" have an invalid tenant_id`);
  }
  // A client with its own credentials must not make the gateway call an arbitrary URL.
  const authority =
    settings.byokKey === undefined && document.authority !== undefined
      ? text("authority")
      : AUTHORITY;
  const url = `${authority}/${tenant}/oauth2/v2.0/token`;
  const form = {
    grant_type: "client_credentials",
    client_id: text("client_id"),
    client_secret: text("client_secret"),
    scope: SCOPE,
  };
  return new AccessTokens(dependencies.clock, () =>
    requestToken(dependencies, { url, form, connectTimeoutMs }),
  );
}
