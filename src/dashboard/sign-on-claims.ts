import type { AccessRule } from "../platform/config/single-sign-on.ts";

/** The claims of an issuer about a user, by name. */
export type Claims = Readonly<Record<string, unknown>>;

/** The part of a rule that claims meet. */
type ClaimRule = Pick<AccessRule, "claim">;
type ValueRule = Pick<AccessRule, "claim" | "value">;

const EMAIL = "email";
const MAX_SHOWN_NAME_CHARACTERS = 256;

/** Returns the first of these claims that is a text, without characters that no database stores. */
export function nameIn(claims: readonly unknown[]): string | undefined {
  const name = claims.find((value): value is string => typeof value === "string" && value !== "");
  return name?.replaceAll("\0", "").slice(0, MAX_SHOWN_NAME_CHARACTERS).toWellFormed();
}

/** Returns true if a rule needs a claim that the ID token does not have. UserInfo can have it. */
export function needsMoreClaims(idToken: Claims, rules: readonly ClaimRule[]): boolean {
  return rules.some(
    ({ claim }) =>
      !Object.hasOwn(idToken, claim) ||
      (claim === EMAIL && !Object.hasOwn(idToken, "email_verified")),
  );
}

/**
 * Returns the claims of both (OpenID Connect Core 5.4). The ID token takes precedence over UserInfo.
 * `email_verified` counts only for the address in the same document.
 */
export function mergeClaims(idToken: Claims, userInfo: Claims): Claims {
  const { email_verified: tokenVerified, ...tokenClaims } = idToken;
  const { email_verified: userInfoVerified, ...userInfoClaims } = userInfo;
  const isSame = tokenClaims.email === undefined || tokenClaims.email === userInfoClaims.email;
  const stated = tokenClaims.email === undefined ? undefined : tokenVerified;
  const verified = stated ?? (isSame ? userInfoVerified : undefined);
  return {
    ...userInfoClaims,
    ...tokenClaims,
    ...(verified !== undefined && { email_verified: verified }),
  };
}

/**
 * Returns true if the rule's claim, or its list, contains the value. An unverified address satisfies no rule.
 */
export function isMet(rule: ValueRule, claims: Claims, vouchesForEmail: boolean): boolean {
  return isStated(rule, claims) && (rule.claim !== EMAIL || isVerified(claims, vouchesForEmail));
}

/** Returns true if only the verification of the address is missing. */
export function isUnverified(rule: ValueRule, claims: Claims): boolean {
  return rule.claim === EMAIL && isStated(rule, claims);
}

function isStated({ claim, value }: ValueRule, claims: Claims): boolean {
  const stated = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
  return Array.isArray(stated) ? stated.includes(value) : stated === value;
}

/**
 * Returns true if the address is verified. Some issuers send the text "true". An issuer that vouches for its
 * addresses can omit the claim.
 */
export function isVerified({ email_verified: stated }: Claims, vouchesForEmail: boolean): boolean {
  return stated === true || stated === "true" || (stated === undefined && vouchesForEmail);
}

const MAX_NAMES = 64;
const MAX_NAME_CHARACTERS = 128;

/** Returns the names of the claims for the log. Their values would identify the user. */
export function claimNames(claims: Claims): string[] {
  const names = Object.keys(claims).toSorted().slice(0, MAX_NAMES);
  return names.map((name) => name.slice(0, MAX_NAME_CHARACTERS));
}
