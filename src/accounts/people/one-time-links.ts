import { createHash } from "node:crypto";

const TOKEN_BYTES = 32;

/** The secret of a link that works once. The database has its hash only. */
export interface LinkSecret {
  readonly token: string;
  readonly tokenHash: string;
}

export function newLinkSecret(): LinkSecret {
  const bytes = crypto.getRandomValues(new Uint8Array(TOKEN_BYTES));
  const token = Buffer.from(bytes).toString("base64url");
  return { token, tokenHash: linkHash(token) };
}

/** Returns the hash under which a link is stored: SHA-256, hex. */
export function linkHash(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}

/** Pages of the dashboard to which links lead. */
export type LinkPage = "join" | "welcome" | "new-password";

/** Returns the URL of a link. The token is in the fragment, which browsers send to no server. */
export function linkUrl(baseUrl: string, page: LinkPage, token: string): string {
  return `${baseUrl.replace(/\/+$/, "")}/dashboard/${page}#${token}`;
}
