import { createHash } from "node:crypto";
import {
  AuthorizationResponseError,
  allowInsecureRequests,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  type Configuration,
  calculatePKCECodeChallenge,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
  fetchUserInfo,
} from "openid-client";
import type { SubjectRules } from "../../db/queries/dashboard-sessions.ts";
import { SUBJECT_PREFIX } from "../lib/author.ts";
import type { Clock } from "../lib/clock.ts";
import type { AccessRule, SingleSignOnConfig } from "../platform/config/single-sign-on.ts";
import type { EgressClientOptions } from "../platform/egress/client.ts";
import { createEgressFetch } from "../platform/egress/fetch.ts";
import {
  type Claims,
  claimNames,
  isMet,
  isUnverified,
  lacksClaims,
  mergeClaims,
} from "./sign-on-claims.ts";

type SubjectClaims = Claims & { readonly sub: string };

/** Who has signed in at the identity provider, and by which rule. */
export interface Subject {
  /** Of the issuer and the subject there, without showing either. */
  readonly id: string;
  readonly name: string;
  readonly rule: AccessRule;
}

/** Why a sign-in failed; the message is for who tried. */
export class SignInRefused extends Error {
  readonly status: 403 | 502;
  /** Names of the claims that came, if they met no rule. */
  readonly claims: readonly string[] | undefined;

  constructor(status: 403 | 502, message: string, cause?: unknown, claims?: readonly string[]) {
    super(message, { cause });
    this.name = "SignInRefused";
    this.status = status;
    this.claims = claims;
  }
}

/** The issuer does not answer, or answers that it cannot. */
class IssuerUnreachable extends Error {}

interface SingleSignOnDependencies {
  readonly config: SingleSignOnConfig;
  readonly egress: EgressClientOptions;
  readonly clock: Clock;
}

const REQUEST_TIMEOUT_MS = 5_000;
const MAX_ANSWER_BYTES = 262_144;
/** Then endpoints and keys of the issuer are read again. */
const KEPT_MS = 900_000;
const MAX_NAME_CHARACTERS = 256;
const SECRET_BYTES = 32;
const FIRST_FAULT_STATUS = 500;

/**
 * Sign-in by OpenID Connect: the authorization code flow with PKCE. What binds the answer to the browser that asked
 * is one secret in a cookie of that browser, from which state, nonce and code verifier are derived, so that any
 * instance can finish what another began.
 */
export class SingleSignOn {
  readonly #dependencies: SingleSignOnDependencies;
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;
  #issuer: { readonly config: Promise<Configuration>; readonly untilMs: number } | undefined;

  constructor(dependencies: SingleSignOnDependencies) {
    this.#dependencies = dependencies;
    this.#fetch = issuerFetch(dependencies);
  }

  get name(): string {
    return this.#dependencies.config.name;
  }

  /** The page of the issuer to go to, and the secret for the browser's cookie. Throws SignInRefused. */
  async begin(redirectUri: string): Promise<{ url: string; secret: string }> {
    const secret = Buffer.from(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
    const text = secret.toString("base64url");
    const { state, nonce, verifier } = derived(text);
    try {
      const url = buildAuthorizationUrl(await this.#configuration(), {
        redirect_uri: redirectUri,
        scope: this.#dependencies.config.scopes,
        response_type: "code",
        state,
        nonce,
        code_challenge: await calculatePKCECodeChallenge(verifier),
        code_challenge_method: "S256",
      });
      return { url: url.href, secret: text };
    } catch (error) {
      throw unreachable(error);
    }
  }

  /**
   * Who has come back from the issuer. Throws SignInRefused.
   *
   * @param answer the address that the issuer sent the browser to
   */
  async finish(answer: URL, secret: string): Promise<Subject> {
    const { state, nonce, verifier } = derived(secret);
    const claims = await this.#claims(answer, { state, nonce, verifier });
    const { issuer, access, vouchesForEmail } = this.#dependencies.config;
    const rule = access.find((one) => isMet(one, claims, vouchesForEmail));
    if (rule === undefined) {
      const isNotVerified = access.some((one) => isUnverified(one, claims));
      throw new SignInRefused(
        403,
        "Your account has no access to this gateway. Ask its operator for it.",
        isNotVerified ? new Error("email_verified is not true") : undefined,
        claimNames(claims),
      );
    }
    const digest = createHash("sha256").update(`${issuer}\n${claims.sub}`).digest("hex");
    const name = [claims.email, claims.preferred_username, claims.name, claims.sub].find(
      (one): one is string => typeof one === "string" && one !== "",
    )!;
    const shown = name.replaceAll("\0", "").slice(0, MAX_NAME_CHARACTERS).toWellFormed();
    return { id: `${SUBJECT_PREFIX}${digest.slice(0, SHOWN_DIGITS)}`, name: shown, rule };
  }

  /** The rule that a session was begun by, where it still stands. */
  ruleOf(issuer: string, text: string): AccessRule | undefined {
    const { config } = this.#dependencies;
    return config.issuer === issuer ? config.access.find((rule) => rule.text === text) : undefined;
  }

  /** The rules that let people into an organization. */
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

  async #claims(answer: URL, expected: ReturnType<typeof derived>): Promise<SubjectClaims> {
    let configuration: Configuration;
    try {
      configuration = await this.#configuration();
    } catch (error) {
      throw unreachable(error);
    }
    try {
      const tokens = await authorizationCodeGrant(configuration, answer, {
        pkceCodeVerifier: expected.verifier,
        expectedState: expected.state,
        expectedNonce: expected.nonce,
        idTokenExpected: true,
      });
      const idToken = tokens.claims()!;
      const { access } = this.#dependencies.config;
      const hasUserInfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
      if (!hasUserInfo || !lacksClaims(idToken, access)) return idToken;
      const userInfo = await this.#userInfo(configuration, tokens.access_token, idToken.sub);
      return { ...mergeClaims(idToken, userInfo), sub: idToken.sub };
    } catch (error) {
      if (causes(error).some((one) => one instanceof IssuerUnreachable)) throw unreachable(error);
      const message =
        error instanceof AuthorizationResponseError
          ? "The identity provider did not let you sign in."
          : "The answer of the identity provider could not be verified. Sign in again.";
      throw new SignInRefused(403, message, error);
    }
  }

  /** Empty if the issuer refuses to give it: the ID token alone counts then. */
  async #userInfo(configuration: Configuration, token: string, subject: string): Promise<Claims> {
    try {
      return await fetchUserInfo(configuration, token, subject);
    } catch (error) {
      if (causes(error).some((one) => one instanceof IssuerUnreachable)) throw error;
      return {};
    }
  }

  #configuration(): Promise<Configuration> {
    const nowMs = this.#dependencies.clock.nowMs();
    if (this.#issuer === undefined || this.#issuer.untilMs <= nowMs) {
      const config = this.#discover();
      this.#issuer = { config, untilMs: nowMs + KEPT_MS };
      config.catch(() => {
        this.#issuer = undefined;
      });
    }
    return this.#issuer.config;
  }

  #discover(): Promise<Configuration> {
    const { issuer, clientId, clientSecret } = this.#dependencies.config;
    const insecure = issuer.startsWith("http:") ? [allowInsecureRequests] : [];
    return discovery(new URL(issuer), clientId, clientSecret, undefined, {
      // Its signature is verified too, not only the connection that an ID token came over.
      execute: [enableNonRepudiationChecks, ...insecure],
      [customFetch]: (url, init) => this.#fetch(url, init as RequestInit),
    });
  }
}

const SHOWN_DIGITS = 32;

function derived(secret: string) {
  const of = (use: string) => createHash("sha256").update(`${use} ${secret}`).digest("base64url");
  return { state: of("state"), nonce: of("nonce"), verifier: of("verifier") };
}

function unreachable(cause: unknown): SignInRefused {
  const message =
    "The identity provider cannot be reached. Try again later, or sign in with a key.";
  return new SignInRefused(502, message, cause);
}

function causes(error: unknown): unknown[] {
  const all: unknown[] = [];
  for (let one = error; one instanceof Error && all.length < 8; one = one.cause) all.push(one);
  return all;
}

/**
 * The operator has named the issuer, so its own host is asked wherever that is. What its answers name elsewhere is
 * checked as an address that a user has chosen.
 */
function issuerFetch({ config, egress }: SingleSignOnDependencies) {
  const { origin } = new URL(config.issuer);
  const elsewhere = createEgressFetch(egress, MAX_ANSWER_BYTES);
  return async (url: string, init: RequestInit): Promise<Response> => {
    const body = init.body == null ? undefined : String(init.body);
    const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    const asked = { ...init, body, signal, redirect: "manual" } as const;
    try {
      const isOwn = new URL(url).origin === origin;
      const response = await (isOwn ? fetch(url, asked) : elsewhere(url, asked));
      if (response.status >= FIRST_FAULT_STATUS) {
        await response.body?.cancel();
        throw new Error(`the issuer answered with status ${response.status}`);
      }
      return new Response(await wholeBody(response), response);
    } catch (error) {
      throw new IssuerUnreachable("the issuer cannot be asked", { cause: error });
    }
  };
}

async function wholeBody(response: Response): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.byteLength;
    if (bytes > MAX_ANSWER_BYTES) throw new Error("an answer of the issuer is too long");
    pieces.push(piece);
  }
  return new Uint8Array(Buffer.concat(pieces));
}
