import { createHash } from "node:crypto";
import type { SubjectRules } from "../../db/queries/dashboard-sessions.ts";
import { SUBJECT_PREFIX } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import type { AccessRule, SingleSignOnConfig } from "../platform/config/single-sign-on.ts";
import type { EgressClientOptions } from "../platform/egress/client.ts";
import { OidcClient, SignInRejected } from "./oidc-client.ts";
import { claimNames, isMet, isUnverified, nameIn } from "./sign-on-claims.ts";

/** A user that has signed in at the identity provider, and the rule that gave access. */
export interface Subject {
  /** Derived from issuer and subject, without revealing either. */
  readonly id: string;
  readonly name: string;
  readonly rule: AccessRule;
}

interface SingleSignOnDependencies {
  readonly config: SingleSignOnConfig;
  readonly egress: EgressClientOptions;
  readonly clock: Clock;
}

const SHOWN_DIGITS = 32;

/** Sign-in at the issuer of the environment, whose rules give people the authority of a key. */
export class SingleSignOn {
  readonly #dependencies: SingleSignOnDependencies;
  readonly #client: OidcClient;

  constructor(dependencies: SingleSignOnDependencies) {
    this.#dependencies = dependencies;
    this.#client = new OidcClient(dependencies);
  }

  get name(): string {
    return this.#dependencies.config.name;
  }

  /** Returns the URL of the issuer's page, and the secret for the browser's cookie. Throws SignInRejected. */
  begin(redirectUri: string): Promise<{ url: string; secret: string }> {
    return this.#client.begin(redirectUri);
  }

  /**
   * Returns the user that has come back from the issuer. Throws SignInRejected.
   *
   * @param answer URL to which the issuer redirected the browser
   */
  async finish(answer: URL, secret: string): Promise<Subject> {
    const { issuer, access, vouchesForEmail } = this.#dependencies.config;
    const claims = await this.#client.claims(answer, secret, access);
    const rule = access.find((candidate) => isMet(candidate, claims, vouchesForEmail));
    if (rule === undefined) {
      const isNotVerified = access.some((candidate) => isUnverified(candidate, claims));
      throw new SignInRejected(
        403,
        "Your account has no access to this gateway. Ask its operator for it.",
        isNotVerified ? new Error("email_verified is not true") : undefined,
        claimNames(claims),
      );
    }
    const digest = createHash("sha256").update(`${issuer}\n${claims.sub}`).digest("hex");
    const name = nameIn([claims.email, claims.preferred_username, claims.name, claims.sub])!;
    return { id: `${SUBJECT_PREFIX}${digest.slice(0, SHOWN_DIGITS)}`, name, rule };
  }

  /** Returns the rule of a session, if it is still configured. */
  ruleOf(issuer: string, text: string): AccessRule | undefined {
    const { config } = this.#dependencies;
    return config.issuer === issuer ? config.access.find((rule) => rule.text === text) : undefined;
  }

  /** Returns the rules that give access to an organization. */
  rulesOf(organizationId: string): SubjectRules {
    const { issuer, access } = this.#dependencies.config;
    return {
      issuer,
      rules: access.filter(({ to }) => to === organizationId).map(({ text }) => text),
    };
  }

  get issuer(): string {
    return this.#dependencies.config.issuer;
  }
}
