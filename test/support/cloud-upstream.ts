import { createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { type JWTPayload, jwtVerify } from "jose";
import { credentialText } from "../../src/lib/credential-document.ts";

const { privateKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
  publicKeyEncoding: { type: "spki", format: "pem" },
});
const publicKey: KeyObject = createPublicKey(privateKey);

/** What of the key would tell it, if it showed up anywhere. */
export const KEY_LINE = privateKey.split("\n")[3]!;

export interface AskedOfCloud {
  readonly path: string;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

export type CloudAnswer = (asked: AskedOfCloud) => Response | Promise<Response>;

/** A server in the place of a cloud's models, of its token endpoints and of its metadata server. */
export interface CloudUpstream {
  readonly origin: string;
  /** With the address of a project. */
  readonly baseUrl: string;
  readonly asked: AskedOfCloud[];
  /** Verified assertions, in order. */
  readonly assertions: JWTPayload[];
  tokenRequests: number;
  answer: CloudAnswer;
  /** In place of a token; undefined: `ya29.token-<n>` for each request. */
  tokenAnswer: ((form: URLSearchParams) => Response | Promise<Response>) | undefined;
  stop(): Promise<void>;
}

export const PROJECT = "project-of-the-test";
const PROJECT_PATH = `/v1/projects/${PROJECT}/locations/us-central1`;

/** The JSON of a service account of that server, as a key. */
export function serviceAccount(origin: string, more: Record<string, unknown> = {}): string {
  return credentialText({
    type: "service_account",
    project_id: PROJECT,
    private_key_id: "key-1",
    private_key: privateKey,
    client_email: "gateway@project-of-the-test.iam.gserviceaccount.com",
    token_uri: `${origin}/token`,
    ...more,
  });
}

export function startCloudUpstream(): CloudUpstream {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      if (pathname === "/token" || pathname.endsWith("/oauth2/v2.0/token")) {
        return tokenFor(new URLSearchParams(await request.text()));
      }
      if (pathname.startsWith("/computeMetadata/")) {
        const isAsked = request.headers.get("metadata-flavor") === "Google";
        return isAsked ? tokenFor(new URLSearchParams()) : new Response("", { status: 403 });
      }
      const text = await request.text();
      const body = text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
      const one = { path: pathname + search, headers: request.headers, body };
      upstream.asked.push(one);
      return upstream.answer(one);
    },
  });
  async function tokenFor(form: URLSearchParams): Promise<Response> {
    upstream.tokenRequests++;
    const assertion = form.get("assertion");
    if (assertion !== null) {
      const { payload } = await jwtVerify(assertion, publicKey, { audience: `${origin}/token` });
      upstream.assertions.push(payload);
    }
    if (upstream.tokenAnswer !== undefined) return upstream.tokenAnswer(form);
    const token = `ya29.token-${upstream.tokenRequests}`;
    return Response.json({ access_token: token, expires_in: 3_599, token_type: "Bearer" });
  }
  const origin = `http://127.0.0.1:${server.port}`;
  const upstream: CloudUpstream = {
    origin,
    baseUrl: origin + PROJECT_PATH,
    asked: [],
    assertions: [],
    tokenRequests: 0,
    answer: () => new Response("nothing to say", { status: 500 }),
    tokenAnswer: undefined,
    stop: () => server.stop(true),
  };
  return upstream;
}
