import { AwsV4Signer } from "aws4fetch";
import type { Clock } from "../../lib/clock.ts";
import { regionOfAddress } from "../../platform/config/aws-access.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/json-headers.ts";

/** Name of the service in signatures. Its host is called `bedrock-runtime`. */
const SERVICE = "bedrock";
/** An access key: id, secret and, if temporary, the session token. */
const ACCESS_KEY = /^([A-Z0-9]{16,128}):([^:]+)(?::([^:]+))?$/;

interface SigningKey {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

interface SignerOptions {
  readonly providerId: string;
  /** An access key, `ID:SECRET` or `ID:SECRET:SESSION_TOKEN`, or a Bedrock API key. */
  readonly apiKey: string | undefined;
  readonly baseUrl: string;
  /** Region for hosts whose name does not contain it. */
  readonly region: string | undefined;
  readonly clock: Clock;
}

/**
 * Creates the headers of requests to Bedrock: a signature of AWS Signature Version 4, or the API key as a
 * bearer token (https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html).
 */
export class RequestSigner {
  /** Texts that must not appear in any message. */
  readonly secrets: readonly string[];
  readonly #signingKey: SigningKey | undefined;
  readonly #fixedHeaders: Readonly<Record<string, string>>;
  readonly #region: string;
  readonly #clock: Clock;
  /** Derived signing keys, one per day on which the provider is used. */
  readonly #derivedKeys = new Map<string, ArrayBuffer>();

  /**
   * Throws an Error that does not quote the key, if a header cannot carry the key or the region is unknown.
   */
  constructor({ providerId, apiKey, baseUrl, region, clock }: SignerOptions) {
    if (apiKey !== undefined) assertKeyIsCarried(providerId, apiKey);
    const [, accessKeyId, secretAccessKey, sessionToken] = ACCESS_KEY.exec(apiKey ?? "") ?? [];
    const isAccessKey = accessKeyId !== undefined && secretAccessKey !== undefined;
    const knownRegion = regionOfAddress(baseUrl) ?? region;
    if (isAccessKey && knownRegion === undefined) {
      throw new Error(`the region of provider "${providerId}" is unknown, and signatures need it`);
    }
    this.#signingKey = isAccessKey ? { accessKeyId, secretAccessKey, sessionToken } : undefined;
    this.secrets = isAccessKey
      ? [secretAccessKey, sessionToken, accessKeyId].filter((secret) => secret !== undefined)
      : [apiKey].filter((secret) => secret !== undefined);
    this.#fixedHeaders =
      apiKey === undefined || isAccessKey
        ? JSON_HEADERS
        : { ...JSON_HEADERS, authorization: `Bearer ${apiKey}` };
    this.#region = knownRegion ?? "";
    this.#clock = clock;
  }

  /** Returns the headers for a POST of the body to the URL. They must be sent unchanged. */
  async headersFor(
    url: string,
    body: string | Uint8Array<ArrayBuffer>,
  ): Promise<Readonly<Record<string, string>>> {
    if (this.#signingKey === undefined) return this.#fixedHeaders;
    const { headers } = await new AwsV4Signer({
      method: "POST",
      url,
      body,
      ...this.#signingKey,
      service: SERVICE,
      region: this.#region,
      cache: this.#derivedKeys,
      datetime: new Date(this.#clock.nowMs()).toISOString().replace(/[:-]|\.\d{3}/g, ""),
    }).sign();
    return { ...JSON_HEADERS, ...Object.fromEntries(headers) };
  }
}

/**
 * Returns the path of a model. Its name is percent-encoded once, including colons and the slashes of ARNs.
 */
export function pathOfModel(model: string): string {
  const encoded = encodeURIComponent(model).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `/model/${encoded}`;
}
