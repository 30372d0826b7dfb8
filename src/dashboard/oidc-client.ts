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
import type { Clock } from "../lib/clock.ts";
import type { EgressClientOptions } from "../platform/egress/client.ts";
import { createEgressFetch } from "../platform/egress/fetch.ts";
import { type Claims, mergeClaims, needsMoreClaims } from "./sign-on-claims.ts";

export type SubjectClaims = Claims & { readonly sub: string };

/** A failed sign-in. The message is for the user. */
export class SignInRejected extends Error {
  readonly status: 403 | 502;
  /** Names of the received claims, if they met no rule. */
  readonly claims: readonly string[] | undefined;

  constructor(status: 403 | 502, message: string, cause?: unknown, claims?: readonly string[]) {
    super(message, { cause });
    this.name = "SignInRejected";
    this.status = status;
    this.claims = claims;
  }
}

/** The issuer does not answer, or answers with a server error. */
class IssuerUnreachable extends Error {}

export interface IssuerConfig {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  readonly scopes: string;
}

interface OidcClientDependencies {
  readonly config: IssuerConfig;
  readonly egress: EgressClientOptions;
  readonly clock: Clock;
}

const REQUEST_TIMEOUT_MS = 5_000;
const MAX_ANSWER_BYTES = 262_144;
/** Lifetime of the issuer's endpoints and keys, in milliseconds. Then they are read again. */
const CONFIGURATION_MAX_AGE_MS = 900_000;
const SECRET_BYTES = 32;
const FIRST_FAULT_STATUS = 500;

/**
 * A client of OpenID Connect: the authorization code flow with PKCE. One secret in a cookie binds the answer
 * to the browser that started. State, nonce and code verifier are derived from that secret, so any instance
 * can finish a sign-in that another instance started.
 */
export class OidcClient {
  readonly #dependencies: OidcClientDependencies;
  readonly #fetch: (url: string, init: RequestInit) => Promise<Response>;
  #issuer: { readonly config: Promise<Configuration>; readonly untilMs: number } | undefined;

  constructor(dependencies: OidcClientDependencies) {
    this.#dependencies = dependencies;
    this.#fetch = issuerFetch(dependencies);
  }

  /** Returns the URL of the issuer's page, and the secret for the browser's cookie. Throws SignInRejected. */
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
   * Returns the claims about the user that has come back from the issuer. Throws SignInRejected.
   *
   * @param answer URL to which the issuer redirected the browser
   * @param rules rules whose claims are read from UserInfo if the ID token lacks them
   */
  async claims(
    answer: URL,
    secret: string,
    rules: readonly { readonly claim: string }[],
  ): Promise<SubjectClaims> {
    const expected = derived(secret);
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
      const hasUserInfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
      if (!hasUserInfo || !needsMoreClaims(idToken, rules)) return idToken;
      const userInfo = await this.#userInfo(configuration, tokens.access_token, idToken.sub);
      return { ...mergeClaims(idToken, userInfo), sub: idToken.sub };
    } catch (error) {
      if (causes(error).some((cause) => cause instanceof IssuerUnreachable))
        throw unreachable(error);
      const message =
        error instanceof AuthorizationResponseError
          ? "The identity provider did not let you sign in."
          : "The answer of the identity provider could not be verified. Sign in again.";
      throw new SignInRejected(403, message, error);
    }
  }

  /**
   * Returns the claims of UserInfo. Returns no claims if the issuer rejects the request. Then only the ID
   * token counts.
   */
  async #userInfo(configuration: Configuration, token: string, subject: string): Promise<Claims> {
    try {
      return await fetchUserInfo(configuration, token, subject);
    } catch (error) {
      if (causes(error).some((cause) => cause instanceof IssuerUnreachable)) throw error;
      return {};
    }
  }

  #configuration(): Promise<Configuration> {
    const nowMs = this.#dependencies.clock.nowMs();
    if (this.#issuer === undefined || this.#issuer.untilMs <= nowMs) {
      const config = this.#discover();
      this.#issuer = { config, untilMs: nowMs + CONFIGURATION_MAX_AGE_MS };
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
      // Verifies the signature of the ID token in addition to the TLS connection.
      execute: [enableNonRepudiationChecks, ...insecure],
      [customFetch]: (url, init) => this.#fetch(url, init as RequestInit),
    });
  }
}

function derived(secret: string) {
  const digestFor = (use: string) =>
    createHash("sha256").update(`${use} ${secret}`).digest("base64url");
  return { state: digestFor("state"), nonce: digestFor("nonce"), verifier: digestFor("verifier") };
}

function unreachable(cause: unknown): SignInRejected {
  const message =
    "The identity provider cannot be reached. Try again later, or sign in with a key.";
  return new SignInRejected(502, message, cause);
}

function causes(error: unknown): unknown[] {
  const all: unknown[] = [];
  for (let cause = error; cause instanceof Error && all.length < 8; cause = cause.cause)
    all.push(cause);
  return all;
}

/**
 * Returns the fetch function for the issuer. The operator has configured the issuer's host, so any address is
 * allowed for it. Other hosts in its answers are checked like URLs of a user.
 */
function issuerFetch({ config, egress }: OidcClientDependencies) {
  const { origin } = new URL(config.issuer);
  const elsewhere = createEgressFetch(egress, MAX_ANSWER_BYTES);
  return async (url: string, init: RequestInit): Promise<Response> => {
    const body = init.body == null ? undefined : String(init.body);
    const signal = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    const options = { ...init, body, signal, redirect: "manual" } as const;
    try {
      const isIssuer = new URL(url).origin === origin;
      const response = await (isIssuer ? fetch(url, options) : elsewhere(url, options));
      if (response.status >= FIRST_FAULT_STATUS) {
        await response.body?.cancel();
        throw new Error(`the issuer answered with status ${response.status}`);
      }
      return new Response(await wholeBody(response), response);
    } catch (error) {
      throw new IssuerUnreachable("the issuer cannot be reached", { cause: error });
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
