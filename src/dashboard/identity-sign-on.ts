import type { IdentityProvider } from "../../db/queries/identity-providers.ts";
import type { IdentityProviders } from "../accounts/identity-providers/identity-providers.ts";
import type { Origin } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import type { EgressClientOptions } from "../platform/egress/client.ts";
import { OidcClient, SignInRejected } from "./oidc-client.ts";
import { claimNames, isMet, isVerified, nameIn } from "./sign-on-claims.ts";

interface IdentitySignOnDependencies {
  readonly providers: IdentityProviders;
  readonly egress: EgressClientOptions;
  readonly clock: Clock;
}

/** Claims that accounts need, beside those of the rules. */
const ACCOUNT_CLAIMS = [{ claim: "email" }];
const EMAIL = /^[^\s@<>,;]{1,64}@[^\s@<>,;]{1,189}$/;

/** Sign-in at the identity providers that operators have configured. People get an account and its roles. */
export class IdentitySignOn {
  readonly #dependencies: IdentitySignOnDependencies;
  /** Clients by provider, with the state of the provider for which they were made. */
  readonly #clients = new Map<
    string,
    { readonly updatedAtMs: number; readonly client: OidcClient }
  >();

  constructor(dependencies: IdentitySignOnDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns the buttons of the sign-in page. */
  async buttons(): Promise<{ readonly id: string; readonly name: string }[]> {
    const providers = await this.#dependencies.providers.list();
    return providers.map(({ id, name }) => ({ id, name }));
  }

  /** Returns the URL of the issuer's page, and the secret for the browser's cookie. Throws SignInRejected, and 404. */
  async begin(id: string, redirectUri: string): Promise<{ url: string; secret: string }> {
    const provider = await this.#dependencies.providers.find(id);
    return this.#clientOf(provider).begin(redirectUri);
  }

  /** Returns the id of the person that has come back. Throws SignInRejected, and 404. */
  async finish(id: string, answer: URL, secret: string, origin: Origin): Promise<string> {
    const { providers } = this.#dependencies;
    const provider = await providers.find(id);
    const { rules, vouchesForEmail } = provider;
    const wanted = [...rules, ...ACCOUNT_CLAIMS];
    const claims = await this.#clientOf(provider).claims(answer, secret, wanted);
    const isTrusted = typeof claims.email === "string" && isVerified(claims, vouchesForEmail);
    const email = isTrusted && EMAIL.test(claims.email as string) ? (claims.email as string) : null;
    const name = nameIn([claims.name, claims.preferred_username, claims.email, claims.sub])!;
    const met = rules.filter((rule) => isMet(rule, claims, vouchesForEmail));
    const identity = { subject: claims.sub, email, name, rules: met };
    const personId = await providers.signIn(provider, identity, origin);
    if (personId !== undefined) return personId;
    const cause =
      met.length > 0 && email === null
        ? new Error("the issuer states no verified email address")
        : undefined;
    throw new SignInRejected(
      403,
      "Your account has no access to this gateway. Ask its operator for it.",
      cause,
      claimNames(claims),
    );
  }

  #clientOf(provider: IdentityProvider): OidcClient {
    const { id, issuer, clientId, scopes, updatedAtMs } = provider;
    const cached = this.#clients.get(id);
    if (cached?.updatedAtMs === updatedAtMs) return cached.client;
    const { providers, egress, clock } = this.#dependencies;
    const clientSecret = providers.clientSecretOf(provider);
    const config = { issuer, clientId, clientSecret, scopes };
    const client = new OidcClient({ config, egress, clock });
    this.#clients.set(id, { updatedAtMs, client });
    return client;
  }
}
