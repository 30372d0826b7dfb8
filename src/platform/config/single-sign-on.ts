import { refuse } from "./config-error.ts";
import type { EnvironmentReader } from "./environment.ts";

/**
 * A rule: people with the value in the claim may sign in, with the authority that the rule grants.
 */
export interface AccessRule {
  /** The rule as the setting states it. */
  readonly text: string;
  readonly claim: string;
  readonly value: string;
  /** Id of an organization, or `operator`. */
  readonly to: string;
}

export interface SingleSignOnConfig {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The text on the button after "Sign in with". */
  readonly name: string;
  readonly scopes: string;
  /** True if an email address counts although the issuer does not say whether it is verified. */
  readonly vouchesForEmail: boolean;
  /** The first matching rule applies. */
  readonly access: readonly AccessRule[];
}

const RULE = /^([^=\s]{1,128})=(.{1,256}):(operator|org_[0-9a-f]{1,64})$/;
const SECURE = /^https:|^http:\/\/(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?(?:\/|$)/;
const NAME = /^[^\p{Cc}]{1,64}$/u;
const SCOPES = /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/;

/**
 * Reads the settings of single sign-on. Returns undefined if no issuer is set. Throws ConfigError.
 */
export function readSingleSignOn(reader: EnvironmentReader): SingleSignOnConfig | undefined {
  const issuer = reader.url("GATEWAY_OIDC_ISSUER");
  const clientId = reader.text("GATEWAY_OIDC_CLIENT_ID");
  const clientSecret = reader.secret("GATEWAY_OIDC_CLIENT_SECRET");
  const name = reader.matching("GATEWAY_OIDC_NAME", NAME, "1 to 64 characters");
  const scopes = reader.matching("GATEWAY_OIDC_SCOPES", SCOPES, "scopes separated by spaces");
  const access = readAccess(reader);
  const vouching = readVouching(reader);
  if (issuer === undefined) return undefined;
  return reader.check(() => {
    if (!SECURE.test(issuer)) {
      throw refuse("GATEWAY_OIDC_ISSUER", issuer, "an https URL, or an http URL of this machine");
    }
    if (clientId === undefined) {
      throw refuse("GATEWAY_OIDC_CLIENT_ID", "", "the client's id at GATEWAY_OIDC_ISSUER");
    }
    if (clientSecret === undefined) {
      throw refuse("GATEWAY_OIDC_CLIENT_SECRET", "", "the client's secret at GATEWAY_OIDC_ISSUER");
    }
    if (access.length === 0) throw refuse("GATEWAY_OIDC_ACCESS", "", RULE_FORM);
    const vouchesForEmail = vouching.includes(withoutSlash(issuer));
    return { issuer, clientId, clientSecret, name, scopes, vouchesForEmail, access };
  }, undefined);
}

const withoutSlash = (url: string): string => url.replace(/\/+$/, "");

function readVouching(reader: EnvironmentReader): string[] {
  const name = "GATEWAY_OIDC_VERIFIED_EMAIL_ISSUERS";
  return reader.check(
    () =>
      reader.list(name).map((text) => {
        if (!SECURE.test(text)) throw refuse(name, text, "comma-separated https URLs");
        return withoutSlash(text);
      }),
    [],
  );
}

const RULE_FORM = "comma-separated rules like groups=admins:operator or groups=team-a:org_…";

function readAccess(reader: EnvironmentReader): AccessRule[] {
  return reader.check(
    () =>
      reader.list("GATEWAY_OIDC_ACCESS").map((text) => {
        const [, claim, value, to] = RULE.exec(text) ?? [];
        if (claim === undefined) throw refuse("GATEWAY_OIDC_ACCESS", text, RULE_FORM);
        return { text, claim, value: value!, to: to! };
      }),
    [],
  );
}
