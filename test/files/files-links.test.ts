import { describe, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { type FilesGateway, startFilesGateway, uploaded } from "../support/files-gateway.ts";
import { exchange } from "../support/raw-http.ts";

/** Asks for a link in the words of any client, honest or not. */
async function askForLink(gateway: FilesGateway, lines: readonly string[]): Promise<Response> {
  const { id } = await uploaded(gateway, "user_data", "x");
  const head = [
    `GET /v1/files/${id}/download_url HTTP/1.1`,
    `authorization: Bearer ${gateway.secretKey}`,
    "connection: close",
    ...lines,
  ];
  return exchange(gateway, [Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1")]);
}

async function linkOf(response: Response): Promise<string> {
  expect(response.status).toBe(200);
  return ((await response.json()) as { url: string }).url;
}

const FORGED = [
  "x-forwarded-host: evil.example",
  "x-forwarded-proto: https",
  "forwarded: host=evil",
];

describe("a link to a file's content", () => {
  test("begins with the public URL, whatever the caller says", async () => {
    const gateway = await startFilesGateway("disk", {
      environment: { GATEWAY_PUBLIC_URL: "https://gateway.example.com/ai/" },
    });
    for (const host of ["evil.example", "evil.example:8443"]) {
      const url = await linkOf(await askForLink(gateway, [`host: ${host}`, ...FORGED]));
      expect(url).toMatch(/^https:\/\/gateway\.example\.com\/ai\/v1\/files\/file_\w+\/download\?/);
    }
    await gateway.stop();
  });

  test("leads without one to the host that was asked for, and to no other", async () => {
    const gateway = await startFilesGateway();
    for (const host of ["files.example.com", "localhost:3000", "10.0.0.1:80", "[::1]:3000"]) {
      const url = await linkOf(await askForLink(gateway, [`host: ${host}`, ...FORGED]));
      expect(url).toStartWith(`http://${host}/v1/files/file_`);
    }
    await gateway.stop();
  });

  test("is not made for a host that would read as something else", async () => {
    const gateway = await startFilesGateway();
    const hosts = [
      "",
      "a@evil.example",
      "evil.example/x?",
      "evil.example#",
      "a:b",
      "a b",
      "a,b",
      '"',
      "%41",
    ];
    for (const host of hosts) {
      await expectError(await askForLink(gateway, [`host: ${host}`]), 400, "invalid_header");
    }
    await gateway.stop();
  });
});
