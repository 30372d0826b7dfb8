import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import type { Clock } from "../../lib/clock.ts";
import { credentialDocument } from "../../lib/credential-document.ts";
import { projectOf } from "../../platform/config/cloud-settings.ts";
import { AccessTokens } from "../credentials/access-tokens.ts";
import { requestToken, type TokenRequest } from "../credentials/request-token.ts";
import type { ProviderSettings } from "../interface.ts";
import type { HttpClient } from "../transport/provider-response.ts";

const TOKEN_URL = "https://oauth2.googleapis.com/token";
const SCOPE = "https://www.googleapis.com/auth/cloud-platform";
const JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/** Longest lifetime that Google accepts, in seconds. */
const ASSERTION_SECONDS = 3_600;
const METADATA_HOST = "metadata.google.internal";
const METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/default/token";

type Document = Readonly<Record<string, unknown>>;

export interface GoogleDependencies {
  readonly clock: Clock;
  readonly httpClient: HttpClient;
}

/** Authorization of calls: an API key or access tokens. */
export type GoogleAccess =
  | { readonly apiKey: string }
  | { readonly tokens: AccessTokens; readonly projectId: string | undefined };

/**
 * Returns how to authorize calls with the key of a provider. The key is an API key (Vertex AI's express
 * mode), or the JSON of a service account
 * (https://developers.google.com/identity/protocols/oauth2/service-account) or of a user's login. Without a
 * key, the metadata server of the machine issues tokens
 * (https://cloud.google.com/compute/docs/access/authenticate-workloads). Throws an Error of one line if the
 * key is JSON of another kind.
 */
export function googleAccess(
  settings: ProviderSettings,
  dependencies: GoogleDependencies,
): GoogleAccess {
  const { apiKey, connectTimeoutMs, metadataHost = METADATA_HOST } = settings;
  const tokensFor = (request: () => Promise<Omit<TokenRequest, "connectTimeoutMs">>) =>
    new AccessTokens(dependencies.clock, async () =>
      requestToken(dependencies, { ...(await request()), connectTimeoutMs }),
    );
  if (apiKey === undefined) {
    const request = {
      url: `http://${metadataHost}${METADATA_PATH}`,
      headers: { "metadata-flavor": "Google" },
    };
    return { tokens: tokensFor(async () => request), projectId: undefined };
  }
  const document = credentialDocument(apiKey);
  if (document === undefined) return { apiKey };
  const errorWith = (what: string) =>
    new Error(`the credentials of provider "${settings.id}" ${what}`);
  const url = tokenUrl(document, settings.byokKey !== undefined);
  const form = tokenForm(document, url, dependencies.clock, errorWith);
  return {
    tokens: tokensFor(async () => ({ url, form: await form() })),
    projectId: projectOf(apiKey),
  };
}

/**
 * Returns the URL for tokens. An organization with its own key must not make the gateway call an arbitrary
 * URL.
 */
function tokenUrl({ token_uri: stated }: Document, isByok: boolean): string {
  return typeof stated === "string" && stated !== "" && !isByok ? stated : TOKEN_URL;
}

type ErrorWith = (what: string) => Error;

/** Returns a function that creates the form of a token request. */
function tokenForm(
  document: Document,
  url: string,
  clock: Clock,
  errorWith: ErrorWith,
): () => Promise<Readonly<Record<string, string>>> {
  const text = (name: string): string => {
    const value = document[name];
    if (typeof value === "string" && value !== "") return value;
    throw errorWith(`have no ${name}`);
  };
  switch (document.type) {
    case "service_account": {
      const email = text("client_email");
      const key = privateKey(text("private_key"), errorWith);
      const { private_key_id: keyId } = document;
      return async () => ({
        grant_type: JWT_GRANT,
        assertion: await assertion({ email, key, keyId, url }, clock),
      });
    }
    case "authorized_user": {
      const form = {
        grant_type: "refresh_token",
        client_id: text("client_id"),
        client_secret: text("client_secret"),
        refresh_token: text("refresh_token"),
      };
      return async () => form;
    }
    default:
      throw errorWith(
        "have an unsupported type; supported are service_account and authorized_user",
      );
  }
}

function privateKey(pem: string, errorWith: ErrorWith): KeyObject {
  let key: KeyObject | undefined;
  try {
    key = createPrivateKey(pem);
  } catch {
    // The error could quote the key.
  }
  if (key?.asymmetricKeyType !== "rsa")
    throw errorWith("have a private_key that is not an RSA key in PEM format");
  return key;
}

interface Assertion {
  readonly email: string;
  readonly key: KeyObject;
  readonly keyId: unknown;
  readonly url: string;
}

function assertion({ email, key, keyId, url }: Assertion, clock: Clock): Promise<string> {
  const nowSeconds = Math.floor(clock.nowMs() / 1_000);
  return new SignJWT({ scope: SCOPE })
    .setProtectedHeader({
      alg: "RS256",
      typ: "JWT",
      ...(typeof keyId === "string" && { kid: keyId }),
    })
    .setIssuer(email)
    .setAudience(url)
    .setIssuedAt(nowSeconds)
    .setExpirationTime(nowSeconds + ASSERTION_SECONDS)
    .sign(key);
}
