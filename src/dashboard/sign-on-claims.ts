import type { AccessRule } from "../platform/config/single-sign-on.ts";

/** What an issuer says of a person, by name. */
export type Claims = Readonly<Record<string, unknown>>;

const EMAIL = "email";

/** True if a rule may be met by a claim that the ID token lacks, and UserInfo may have. */
export function lacksClaims(idToken: Claims, rules: readonly AccessRule[]): boolean {
  return rules.some(
    ({ claim }) =>
      !Object.hasOwn(idToken, claim) ||
      (claim === EMAIL && !Object.hasOwn(idToken, "email_verified")),
  );
}

/**
 * The claims of both (OpenID Connect Core 5.4). What the ID token states counts before UserInfo; `email_verified`
 * counts only for the address that it came with.
 */
export function mergeClaims(idToken: Claims, userInfo: Claims): Claims {
  const { email_verified: ofToken, ...signed } = idToken;
  const { email_verified: ofUserInfo, ...asked } = userInfo;
  const isSame = signed.email === undefined || signed.email === asked.email;
  const stated = signed.email === undefined ? undefined : ofToken;
  const verified = stated ?? (isSame ? ofUserInfo : undefined);
  return { ...asked, ...signed, ...(verified !== undefined && { email_verified: verified }) };
}

/** True if the person has the value in the rule's claim, or in its list. An address that is not verified meets none. */
export function isMet(rule: AccessRule, claims: Claims, vouchesForEmail: boolean): boolean {
  return isStated(rule, claims) && (rule.claim !== EMAIL || isVerified(claims, vouchesForEmail));
}

/** True if only the verification of the address is missing. */
export function isUnverified(rule: AccessRule, claims: Claims): boolean {
  return rule.claim === EMAIL && isStated(rule, claims);
}

function isStated({ claim, value }: AccessRule, claims: Claims): boolean {
  const stated = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
  return Array.isArray(stated) ? stated.includes(value) : stated === value;
}

/** Some issuers send the text "true". One that vouches for its addresses may leave the claim out. */
function isVerified({ email_verified: stated }: Claims, vouchesForEmail: boolean): boolean {
  return stated === true || stated === "true" || (stated === undefined && vouchesForEmail);
}

const MAX_NAMES = 64;
const MAX_NAME_CHARACTERS = 128;

/** The names of the claims, for the log; their values say who someone is. */
export function claimNames(claims: Claims): string[] {
  const names = Object.keys(claims).toSorted().slice(0, MAX_NAMES);
  return names.map((name) => name.slice(0, MAX_NAME_CHARACTERS));
}
