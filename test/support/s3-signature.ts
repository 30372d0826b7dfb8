import { createHash, createHmac } from "node:crypto";

export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
}

const UNSIGNED = "UNSIGNED-PAYLOAD";

/**
 * Checks a request's signature, in its header or in its query, as Amazon does ("Signature Version 4",
 * Amazon S3 API Reference). Returns the code of what is wrong.
 */
export function checkSignature(
  request: Request,
  url: URL,
  body: Uint8Array,
  credentials: S3Credentials,
): string | undefined {
  const signed = url.searchParams.has("X-Amz-Signature")
    ? fromQuery(url)
    : fromHeaders(request.headers);
  if (signed === undefined) return "AccessDenied";
  const [id, day, region, service, end] = signed.credential.split("/");
  const isOurs = id === credentials.accessKeyId && region === credentials.region;
  if (!isOurs || service !== "s3" || end !== "aws4_request" || !signed.date.startsWith(day!)) {
    return "InvalidAccessKeyId";
  }
  if (signed.expiresAtMs !== undefined && Date.now() > signed.expiresAtMs) return "AccessDenied";
  if (signed.bodyHash !== UNSIGNED && signed.bodyHash !== sha256(body)) {
    return "XAmzContentSHA256Mismatch";
  }
  const canonical = [
    request.method,
    url.pathname,
    canonicalQuery(url),
    ...signed.headers.map((name) => `${name}:${headerValue(request, url, name)}`),
    "",
    signed.headers.join(";"),
    signed.bodyHash,
  ].join("\n");
  const scope = [day, region, service, end].join("/");
  const text = ["AWS4-HMAC-SHA256", signed.date, scope, sha256(canonical)].join("\n");
  let key: Buffer = Buffer.from(`AWS4${credentials.secretAccessKey}`);
  for (const step of scope.split("/")) key = createHmac("sha256", key).update(step).digest();
  const expected = createHmac("sha256", key).update(text).digest("hex");
  return expected === signed.signature ? undefined : "SignatureDoesNotMatch";
}

interface Signed {
  readonly credential: string;
  readonly headers: readonly string[];
  readonly signature: string;
  readonly date: string;
  readonly bodyHash: string;
  readonly expiresAtMs?: number;
}

function fromHeaders(headers: Headers): Signed | undefined {
  const match =
    /^AWS4-HMAC-SHA256 Credential=(\S+?), ?SignedHeaders=(\S+?), ?Signature=(\w+)$/.exec(
      headers.get("authorization") ?? "",
    );
  if (!match) return undefined;
  const [, credential, names, signature] = match;
  return {
    credential: credential!,
    headers: names!.split(";"),
    signature: signature!,
    date: headers.get("x-amz-date") ?? "",
    bodyHash: headers.get("x-amz-content-sha256") ?? "",
  };
}

function fromQuery({ searchParams: query }: URL): Signed {
  const text = (name: string): string => query.get(`X-Amz-${name}`) ?? "";
  const [, year, month, day, hour, minute, second] =
    /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(text("Date"))!;
  const signedAtMs = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  return {
    credential: text("Credential"),
    headers: text("SignedHeaders").split(";"),
    signature: text("Signature"),
    date: text("Date"),
    bodyHash: UNSIGNED,
    expiresAtMs: signedAtMs + Number(text("Expires")) * 1_000,
  };
}

function headerValue(request: Request, url: URL, name: string): string {
  return name === "host" ? url.host : (request.headers.get(name) ?? "").trim();
}

function canonicalQuery(url: URL): string {
  const encode = (text: string): string =>
    encodeURIComponent(text).replace(
      /[!'()*]/g,
      (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
    );
  return [...url.searchParams]
    .filter(([name]) => name !== "X-Amz-Signature")
    .map(([name, value]) => `${encode(name)}=${encode(value)}`)
    .sort()
    .join("&");
}

function sha256(data: string | Uint8Array): string {
  return createHash("sha256").update(data).digest("hex");
}
