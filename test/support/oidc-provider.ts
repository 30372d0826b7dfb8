import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import Provider from "oidc-provider";

export interface RealIssuer {
  readonly url: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** The groups of each login name, which the next sign-in states. */
  readonly groups: Map<string, readonly string[]>;
  /** Allows the gateway's callback. */
  register(redirectUri: string): Promise<void>;
  stop(): void;
}

/** An issuer with pages for people: every login name is an account with a verified address. */
export async function startRealIssuer(): Promise<RealIssuer> {
  const groups = new Map<string, readonly string[]>();
  const [clientId, clientSecret] = ["gateway", "client-secret-of-the-gateway"];
  let provider: Provider | undefined;
  const server = createServer((request, response) => {
    if (provider === undefined) response.writeHead(503).end();
    else void provider.callback()(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    ...{ url, clientId, clientSecret, groups },
    async register(redirectUri) {
      provider = new Provider(url, {
        clients: [
          {
            ...{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] },
            token_endpoint_auth_method: "client_secret_post",
          },
        ],
        claims: {
          openid: ["sub", "groups"],
          email: ["email", "email_verified"],
          profile: ["name"],
        },
        conformIdTokenClaims: false,
        features: { devInteractions: { enabled: true } },
        findAccount: (_, id) => ({
          accountId: id,
          claims: () => ({
            ...{ sub: id, name: id, email: `${id}@example.com`, email_verified: true },
            groups: [...(groups.get(id) ?? [])],
          }),
        }),
      });
    },
    stop: () => void server.close(),
  };
}
