import { createHash } from "node:crypto";
import { exportJWK, generateKeyPair, SignJWT } from "jose";

/** What is wrong with an ID token that the issuer hands out. */
export type TokenFault = "audience" | "issuer" | "expired" | "nonce" | "unsigned" | "foreign key";

interface Granted {
  readonly claims: Readonly<Record<string, unknown>>;
  readonly fault: TokenFault | undefined;
  readonly nonce: string;
  readonly challenge: string;
}

export interface OidcIssuer {
  readonly url: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** While it is set, every request is 503. */
  isDown: boolean;
  /** What its page does once someone has signed in there: the address that the browser is sent back to. */
  authorize(page: string, claims: Record<string, unknown>, fault?: TokenFault): URL;
  /** What its UserInfo answers; undefined: it has none. */
  userInfo: Readonly<Record<string, unknown>> | undefined;
  stop(): Promise<void>;
}

/** A stand-in for an OpenID Connect issuer, which checks clients, codes and verifiers as a real one. */
export async function startOidcIssuer(): Promise<OidcIssuer> {
  const [own, foreign] = await Promise.all([generateKeyPair("RS256"), generateKeyPair("RS256")]);
  const jwk = { ...(await exportJWK(own.publicKey)), kid: "one", alg: "RS256", use: "sig" };
  const codes = new Map<string, Granted>();
  const [clientId, clientSecret] = ["gateway", "client-secret-of-the-gateway"];

  async function idToken({ claims, fault, nonce }: Granted): Promise<string> {
    const payload = { sub: "user-1", ...claims, nonce: fault === "nonce" ? "another" : nonce };
    const nowS = Math.floor(Date.now() / 1_000);
    const issuer = fault === "issuer" ? "https://elsewhere.example" : url;
    const audience = fault === "audience" ? "another-client" : clientId;
    const times = fault === "expired" ? [nowS - 7_200, nowS - 3_600] : [nowS, nowS + 300];
    const [iat, exp] = times as [number, number];
    if (fault === "unsigned") {
      const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
      const body = { ...payload, iss: issuer, aud: audience, iat, exp };
      return `${part({ alg: "none" })}.${part(body)}.`;
    }
    return new SignJWT(payload)
      .setProtectedHeader({ alg: "RS256", kid: "one" })
      .setIssuer(issuer)
      .setAudience(audience)
      .setIssuedAt(iat)
      .setExpirationTime(exp)
      .sign(fault === "foreign key" ? foreign.privateKey : own.privateKey);
  }

  async function token(request: Request): Promise<Response> {
    const form = new URLSearchParams(await request.text());
    const granted = codes.get(form.get("code") ?? "");
    codes.delete(form.get("code") ?? "");
    const verifier = createHash("sha256").update(form.get("code_verifier") ?? "");
    const isClient =
      form.get("client_id") === clientId && form.get("client_secret") === clientSecret;
    if (!isClient) return Response.json({ error: "invalid_client" }, { status: 401 });
    if (granted === undefined || verifier.digest("base64url") !== granted.challenge) {
      return Response.json({ error: "invalid_grant" }, { status: 400 });
    }
    return Response.json({
      ...{ access_token: "access", token_type: "Bearer" },
      id_token: await idToken(granted),
    });
  }

  const server: Bun.Server<undefined> = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request): Promise<Response> {
      const { pathname } = new URL(request.url);
      if (issuer.isDown) return new Response("down", { status: 503 });
      if (pathname === "/.well-known/openid-configuration") {
        return Response.json({
          issuer: url,
          authorization_endpoint: `${url}/authorize`,
          token_endpoint: `${url}/token`,
          userinfo_endpoint: `${url}/userinfo`,
          jwks_uri: `${url}/jwks`,
          id_token_signing_alg_values_supported: ["RS256"],
          response_types_supported: ["code"],
          subject_types_supported: ["public"],
          code_challenge_methods_supported: ["S256"],
        });
      }
      if (pathname === "/jwks") return Response.json({ keys: [jwk] });
      if (pathname === "/token") return token(request);
      if (pathname === "/userinfo" && issuer.userInfo !== undefined) {
        const isHolder = request.headers.get("authorization") === "Bearer access";
        return isHolder ? Response.json(issuer.userInfo) : new Response(null, { status: 401 });
      }
      return new Response(null, { status: 404 });
    },
  });
  const url: string = `http://127.0.0.1:${server.port}`;
  const issuer: OidcIssuer = {
    url,
    clientId,
    clientSecret,
    isDown: false,
    userInfo: undefined,
    authorize(page, claims, fault) {
      const asked = new URL(page).searchParams;
      const code = crypto.randomUUID();
      codes.set(code, {
        ...{ claims, fault },
        nonce: asked.get("nonce")!,
        challenge: asked.get("code_challenge")!,
      });
      const back = new URL(asked.get("redirect_uri")!);
      back.search = new URLSearchParams({ code, state: asked.get("state")! }).toString();
      return back;
    },
    stop: () => server.stop(true),
  };
  return issuer;
}
