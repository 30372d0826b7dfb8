/**
 * The text form of API keys: a prefix for the kind, 32 random base62 characters, and 6 characters of checksum.
 * The checksum rejects a mistyped or invented key without a database read.
 */
export type ApiKeyKind = "secret" | "management" | "operator" | "scim";

interface GeneratedApiKey {
  /** The full secret, which is shown once and never stored. */
  readonly key: string;
  /** The short form that lists show: see `keyPrefix`. */
  readonly prefix: string;
  /** The form that the database stores: see `hashApiKey`. */
  readonly hash: string;
}

const PREFIXES: Readonly<Record<ApiKeyKind, string>> = {
  secret: "gateway_sk_",
  management: "gateway_mgmt_",
  operator: "gateway_op_",
  scim: "gateway_scim_",
};
const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE = ALPHABET.length;
const BODY_LENGTH = 32;
/** Characters of the checksum. 62⁶ exceeds 2³², so every CRC-32 fits. */
const CHECKSUM_LENGTH = 6;
const SHOWN_BODY_LENGTH = 4;
/**
 * The largest multiple of 62 within a byte. Bytes from this value on are skipped, because they would favour some
 * characters.
 */
const UNBIASED_BYTES = 256 - (256 % BASE);
const NOT_A_DIGIT = 255;

const DIGIT_OF_CODE = new Uint8Array(128).fill(NOT_A_DIGIT);
for (let digit = 0; digit < BASE; digit++) DIGIT_OF_CODE[ALPHABET.charCodeAt(digit)] = digit;

function randomBody(): string {
  const bytes = new Uint8Array(BODY_LENGTH * 2);
  let body = "";
  while (body.length < BODY_LENGTH) {
    crypto.getRandomValues(bytes);
    for (const byte of bytes) {
      if (byte < UNBIASED_BYTES && body.length < BODY_LENGTH) body += ALPHABET[byte % BASE];
    }
  }
  return body;
}

function checksum(prefixAndBody: string): string {
  let rest = Bun.hash.crc32(prefixAndBody);
  let text = "";
  while (text.length < CHECKSUM_LENGTH) {
    text = ALPHABET[rest % BASE] + text;
    rest = Math.floor(rest / BASE);
  }
  return text;
}

function kindByPrefix(text: string): ApiKeyKind | null {
  if (text.startsWith(PREFIXES.secret)) return "secret";
  if (text.startsWith(PREFIXES.management)) return "management";
  if (text.startsWith(PREFIXES.operator)) return "operator";
  if (text.startsWith(PREFIXES.scim)) return "scim";
  return null;
}

/** Returns a new, well-formed key of the kind, with 190 bits of randomness. */
export function generateApiKey(kind: ApiKeyKind): GeneratedApiKey {
  const prefixAndBody = PREFIXES[kind] + randomBody();
  const key = prefixAndBody + checksum(prefixAndBody);
  return { key, prefix: keyPrefix(key), hash: hashApiKey(key) };
}

/**
 * Returns the kind of a well-formed key, or null for any other text. It never throws. The text can be hostile and
 * of any length: at most as many characters as a key has are read.
 */
export function parseApiKey(text: string): { readonly kind: ApiKeyKind } | null {
  const kind = kindByPrefix(text);
  if (kind === null) return null;
  const bodyStart = PREFIXES[kind].length;
  const checksumStart = bodyStart + BODY_LENGTH;
  if (text.length !== checksumStart + CHECKSUM_LENGTH) return null;
  let stated = 0;
  for (let index = bodyStart; index < text.length; index++) {
    const digit = DIGIT_OF_CODE[text.charCodeAt(index)] ?? NOT_A_DIGIT;
    if (digit === NOT_A_DIGIT) return null;
    if (index >= checksumStart) stated = stated * BASE + digit;
  }
  return Bun.hash.crc32(text.slice(0, checksumStart)) === stated ? { kind } : null;
}

/** Returns the SHA-256 of the whole key in lower-case hexadecimal: the only form in which a key is stored. */
export function hashApiKey(key: string): string {
  return Bun.SHA256.hash(key, "hex");
}

/**
 * Returns a short form such as `gateway_sk_Ab3d…`: enough to recognise a key, too little to use it. The key must
 * be well-formed.
 */
export function keyPrefix(key: string): string {
  const prefix = PREFIXES[kindByPrefix(key) ?? "secret"];
  return `${key.slice(0, prefix.length + SHOWN_BODY_LENGTH)}…`;
}
