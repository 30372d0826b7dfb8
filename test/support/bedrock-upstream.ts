import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createBedrockProvider } from "../../src/providers/bedrock/bedrock-provider.ts";
import { createHttpClient } from "../../src/providers/transport/http-client.ts";
import { startTestGateway, type TestGateway } from "./gateway.ts";

export interface AskedOfBedrock {
  /** As it stood on the wire. */
  readonly path: string;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
  /** What is wrong with the signature; undefined where it is good. */
  readonly fault: string | undefined;
}

type Answer = (asked: AskedOfBedrock) => Response | Promise<Response>;

export const ACCESS_KEY_ID = "AKIAIOSFODNN7EXAMPLE";
export const SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
export const SESSION_TOKEN = "FwoGZXIvYXdzEXAMPLETOKEN//////////wEaD==";
const REGION = "eu-west-1";

/** A gateway before a server that answers in Bedrock's name over https, as each test says. */
export interface BedrockGateway {
  readonly gateway: TestGateway;
  readonly seen: AskedOfBedrock[];
  answerWith(answer: Answer): void;
  chat(model: string, body?: Record<string, unknown>): Promise<Response>;
  stop(): Promise<void>;
}

/**
 * @param models entries of the configuration file, besides the built-in models of the region
 * @param providers further ones
 */
export async function startBedrockGateway(
  models: readonly object[],
  providers: readonly object[] = [],
): Promise<BedrockGateway> {
  let answer: Answer = () => new Response("nothing to say", { status: 500 });
  const seen: AskedOfBedrock[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    tls: { cert: fixture("transport-good.crt"), key: fixture("transport-good.key") },
    async fetch(request) {
      const bytes = Buffer.from(await request.arrayBuffer());
      const { pathname: path } = new URL(request.url);
      const fault = signatureFault(request, path, bytes);
      const body = JSON.parse(bytes.toString()) as Record<string, unknown>;
      const asked = { path, headers: request.headers, body, fault };
      seen.push(asked);
      return answer(asked);
    },
  });
  const gateway = await startTestGateway({
    // Without a fee, so that a charge is what the provider bills.
    plan: "enterprise",
    configuration: {
      providers: [
        {
          id: "bedrock",
          type: "bedrock",
          base_url: `https://127.0.0.1:${server.port}`,
          aws: {
            region: REGION,
            access_key_id: ACCESS_KEY_ID,
            secret_access_key: SECRET,
            session_token: SESSION_TOKEN,
          },
        },
        ...providers,
      ],
      models,
    },
    wires: {
      bedrock: (settings, dependencies) =>
        createBedrockProvider(settings, {
          ...dependencies,
          httpClient: createHttpClient({ authorities: [fixture("transport-ca.crt")] }),
        }),
    },
  });
  return {
    gateway,
    seen,
    answerWith: (next) => {
      answer = next;
    },
    chat: (model, body = {}) =>
      gateway.request("POST", "/v1/chat/completions", {
        model,
        messages: [{ role: "user", content: "hello" }],
        ...body,
      }),
    async stop() {
      await gateway.stop();
      await server.stop(true);
    },
  };
}

function fixture(name: string): string {
  return readFileSync(join(import.meta.dir, "..", "fixtures", "tls", name), "utf8");
}

/** A binary stream in pieces of those lengths. */
export function eventStream(bytes: Uint8Array, length: () => number): Response {
  let at = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await Bun.sleep(0);
      const end = Math.min(at + Math.max(1, length()), bytes.length);
      if (end > at) controller.enqueue(bytes.slice(at, end));
      at = end;
      if (at === bytes.length) controller.close();
    },
  });
  return new Response(body, { headers: { "content-type": "application/vnd.amazon.eventstream" } });
}

/**
 * Checks a signature as services other than S3 do ("Create a signed AWS API request", IAM User Guide): each part
 * of the path, as it stands on the wire, is encoded once more.
 */
function signatureFault(request: Request, path: string, body: Uint8Array): string | undefined {
  const [, id, scope, names, signature] =
    /^AWS4-HMAC-SHA256 Credential=(\w+)\/(\S+), SignedHeaders=(\S+), Signature=(\w+)$/.exec(
      request.headers.get("authorization") ?? "",
    ) ?? [];
  if (id !== ACCESS_KEY_ID) return "another access key";
  const date = request.headers.get("x-amz-date") ?? "";
  if (scope !== `${date.slice(0, 8)}/${REGION}/bedrock/aws4_request`) return "another scope";
  if (request.headers.get("x-amz-security-token") !== SESSION_TOKEN) return "another session";
  if (names !== "host;x-amz-date;x-amz-security-token") return "other headers";
  const canonical = [
    request.method,
    path.split("/").map(encodeURIComponent).join("/"),
    "",
    ...names.split(";").map((name) => `${name}:${request.headers.get(name)}`),
    "",
    names,
    sha256(body),
  ].join("\n");
  const text = ["AWS4-HMAC-SHA256", date, scope, sha256(canonical)].join("\n");
  let key: Buffer = Buffer.from(`AWS4${SECRET}`);
  for (const step of scope.split("/")) key = createHmac("sha256", key).update(step).digest();
  const expected = createHmac("sha256", key).update(text).digest("hex");
  return expected === signature ? undefined : "another signature";
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}
