import { AwsV4Signer } from "aws4fetch";
import type { Clock } from "../../lib/clock.ts";
import { regionOfAddress } from "../../platform/config/aws-access.ts";
import { assertKeyIsCarried, JSON_HEADERS } from "../transport/fixed-headers.ts";

/** The name of the service in signatures; its host is called `bedrock-runtime`. */
const SERVICE = "bedrock";
/** An access key: its id, its secret and, of temporary ones, the token of the session. */
const ACCESS_KEY = /^([A-Z0-9]{16,128}):([^:]+)(?::([^:]+))?$/;

interface SigningKey {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

interface SignerOptions {
  readonly providerId: string;
  /** An access key, `ID:SECRET` or `ID:SECRET:SESSION_TOKEN`, or an API key of Bedrock. */
  readonly apiKey: string | undefined;
  readonly baseUrl: string;
  /** Of what the host does not tell the region of. */
  readonly region: string | undefined;
  readonly clock: Clock;
}

/**
 * Makes the headers of requests to Bedrock: a signature of AWS Signature Version 4, or the API key as a bearer
 * token (https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html).
 */
export class RequestSigner {
  /** What must not appear in any message. */
  readonly secrets: readonly string[];
  readonly #signingKey: SigningKey | undefined;
  readonly #fixedHeaders: Readonly<Record<string, string>>;
  readonly #region: string;
  readonly #clock: Clock;
  /** Derived keys, one for each day that the provider is in use. */
  readonly #derivedKeys = new Map<string, ArrayBuffer>();

  /** Throws an Error that does not quote the key, where no header can carry it or no region is known. */
  constructor({ providerId, apiKey, baseUrl, region, clock }: SignerOptions) {
    if (apiKey !== undefined) assertKeyIsCarried(providerId, apiKey);
    const [, accessKeyId, secretAccessKey, sessionToken] = ACCESS_KEY.exec(apiKey ?? "") ?? [];
    const isAccessKey = accessKeyId !== undefined && secretAccessKey !== undefined;
    const known = regionOfAddress(baseUrl) ?? region;
    if (isAccessKey && known === undefined) {
      throw new Error(
        `the region of provider "${providerId}" is not known, and signatures need it`,
      );
    }
    this.#signingKey = isAccessKey ? { accessKeyId, secretAccessKey, sessionToken } : undefined;
    this.secrets = isAccessKey
      ? [secretAccessKey, sessionToken, accessKeyId].filter((one) => one !== undefined)
      : [apiKey].filter((one) => one !== undefined);
    this.#fixedHeaders =
      apiKey === undefined || isAccessKey
        ? JSON_HEADERS
        : { ...JSON_HEADERS, authorization: `Bearer ${apiKey}` };
    this.#region = known ?? "";
    this.#clock = clock;
  }

  /** The headers for a POST of the body to the address, which must be sent as they are. */
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

/** A model's name in an address: encoded once, colons and the slashes of ARNs too. */
export function pathOfModel(model: string): string {
  const encoded = encodeURIComponent(model).replace(
    /[!'()*]/g,
    (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `/model/${encoded}`;
}
