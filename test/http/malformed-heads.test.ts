import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Sends a head byte for byte, and resolves with the answer once the gateway has closed the connection. */
async function sendHead(lines: readonly string[]): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = connect(Number(new URL(gateway.baseUrl).port), "127.0.0.1");
  let text = "";
  socket.setEncoding("latin1");
  socket.on("data", (piece) => {
    text += piece;
  });
  socket.on("error", reject);
  socket.on("close", () => resolve(text));
  const closing = lines[0]!.endsWith("HTTP/1.1") ? ["Connection: close"] : [];
  socket.write(`${[...lines, ...closing].join("\r\n")}\r\n\r\n`, "latin1");
  const answer = await promise;
  return { status: Number(answer.split(" ")[1]), text: answer };
}

function expectEnvelope({ status, text }: Answer, wanted: number, code: string): void {
  expect({ status, text }).toMatchObject({ status: wanted });
  const { error, request_id } = JSON.parse(
    text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1),
  );
  expect({ code: error.code, request_id }).toEqual({
    code,
    request_id: expect.stringMatching(/^req_/),
  });
  expect(text.toLowerCase()).toContain("x-gateway-request-id: req_");
}

const INVALID_HOSTS: readonly (readonly string[])[] = [
  ["Host: x:99999"],
  ["Host: x", "Host: y"],
  ["Host: 127.0.0.1", "Host: 127.0.0.1"],
  ["Host: "],
  ["Host: a b"],
  ["Host: x@y"],
  ["Host: x/../y"],
  ["Host: x?y"],
  ["Host: x#y"],
  ["Host: [::1"],
  ["Host: [::::]"],
  ["Host: 999.1.1.1"],
  ["Host: caf\xe9"],
];

const TARGETS = [
  "GET //x",
  "GET /nowhere",
  "GET /v1/models",
  "GET /v1/models/a/b",
  "POST /v1/chat/completions",
  "DELETE /v1/key",
  "OPTIONS /v1/key",
  "HEAD /healthz",
  "GET /healthz",
  "GET /dashboard",
  "GET /dashboard/keys",
  "GET /dashboard/api/session",
  "GET /dashboard/api/sign_in",
  "POST /dashboard/api/v1/keys",
] as const;

describe("an invalid Host header, or a second one, is 400 in the gateway's envelope:", () => {
  test.each(INVALID_HOSTS.map((host) => [host.join(", "), host] as const))(
    "%s",
    async (_, host) => {
      for (const target of TARGETS) {
        const answer = await sendHead([`${target} HTTP/1.1`, ...host]);
        if (target.startsWith("HEAD")) expect([target, answer.status]).toEqual([target, 400]);
        else expectEnvelope(answer, 400, "invalid_header");
      }
    },
  );
});

test.each([
  "gateway.example.com",
  "gateway.example.com:65535",
  "my_service:3000",
  "LOCALHOST",
  "[::1]:3000",
  "192.168.0.1",
])("the host %s is served", async (host) => {
  expect((await sendHead(["GET /healthz HTTP/1.1", `Host: ${host}`])).status).toBe(200);
});

test("HTTP/1.0 needs no Host header", async () => {
  expect((await sendHead(["GET /healthz HTTP/1.0"])).status).toBe(200);
  expectEnvelope(await sendHead(["GET //x HTTP/1.0"]), 404, "route_not_found");
  expectEnvelope(await sendHead(["GET //[ HTTP/1.0"]), 404, "route_not_found");
});

/** What Bun refuses by itself has no body. */
const MALFORMED: readonly (readonly string[])[] = [
  ["GET /%zz HTTP/1.1", "Host: x"],
  ["GET /v1/models/%zz HTTP/1.1", "Host: x"],
  ["GET /v1/keys/%E0%A4%A HTTP/1.1", "Host: x"],
  ["GET /v1/keys/a\\b HTTP/1.1", "Host: x"],
  ["GET /v1/models?limit=%zz HTTP/1.1", "Host: x"],
  ["GET /caf\xe9 HTTP/1.1", "Host: x"],
  ["GET http://other:99999/v1/models HTTP/1.1", "Host: x"],
  ["CONNECT x:1 HTTP/1.1", "Host: x:1"],
  ["GET /v1/models HTTP/1.1", "Host: x", "Authorization: \xff\xfe"],
  ["GET /v1/models HTTP/1.1", "Host: x", "Authorization: Bearer a", "Authorization: Bearer b"],
  ["GET /v1/models HTTP/1.1"],
  ["GET * HTTP/1.1", "Host: x"],
  ["GET a HTTP/1.1", "Host: x"],
  ["GET /v1/models HTTP/1.1", "Host : x"],
  ["GET /v1/models HTTP/1.1", "Host: x", " folded: y"],
  ["GET /v1/models HTTP/1.1", "Host: x", "X: a\x01b"],
  ["POST /v1/files HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 2"],
  ["POST /v1/files HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked"],
  ["GET /v1/models HTTP/2.0", "Host: x"],
  ["\x16\x03\x01"],
];

test.each(MALFORMED.map((lines) => [lines.join(" "), lines] as const))(
  "a malformed head shows no source and is no fault of the gateway: %s",
  async (_, lines) => {
    const { status, text } = await sendHead(lines);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status === 505 || status < 500).toBe(true);
    const body = text.slice(text.indexOf("\r\n\r\n") + 4);
    expect(body === "" || body.startsWith('{"error":{"message":')).toBe(true);
    expect(text).not.toContain(import.meta.dir.split("/test")[0]!);
  },
);
