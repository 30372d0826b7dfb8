import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { PreparedOrganization } from "../../src/accounts/organizations/organizations.ts";
import { addSecretKey } from "../support/api-keys.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  fileBooks,
  startFilesGateway,
  upload,
  uploaded,
} from "../support/files-gateway.ts";
import { until } from "../support/until.ts";

let gateway: FilesGateway;
let stranger: PreparedOrganization;
let foreign: string;
let own: string;
beforeAll(async () => {
  gateway = await startFilesGateway();
  stranger = await gateway.addOrganization();
  foreign = (await uploaded(gateway, "user_data", "theirs", { key: stranger.secretKey })).id;
  own = (await uploaded(gateway, "user_data", "ours")).id;
});
afterAll(() => gateway.stop());

const READS = ["", "/content", "/download_url"];

test("another organization's file is 404, in the very words of one that never was", async () => {
  const before = await fileBooks(gateway);
  const messages = new Set<string>();
  for (const id of [foreign, "file_00000000000000000000000000000000", "0", "'--", "%00"]) {
    for (const path of READS) {
      const response = await gateway.request("GET", `/v1/files/${id}${path}`);
      messages.add((await expectError(response, 404, "file_not_found")).error.message);
    }
    const response = await gateway.request("DELETE", `/v1/files/${id}`);
    messages.add((await expectError(response, 404, "file_not_found")).error.message);
  }
  expect([...messages]).toHaveLength(1);
  expect(await fileBooks(gateway)).toEqual(before);
});

test("a list holds the files of the caller's organization alone", async () => {
  const list = async (key: string) => {
    const response = await gateway.request("GET", "/v1/files", undefined, { key });
    return ((await response.json()) as { data: { id: string }[] }).data.map(({ id }) => id);
  };
  expect(await list(gateway.secretKey)).toEqual([own]);
  expect(await list(stranger.secretKey)).toEqual([foreign]);
});

describe("a key", () => {
  const calls = (key: string) => ({
    read: READS.map(
      (path) => () => gateway.request("GET", `/v1/files/${own}${path}`, undefined, { key }),
    ).concat(() => gateway.request("GET", "/v1/files", undefined, { key })),
    write: [
      () => upload(gateway, "user_data", "x", { key }),
      () => gateway.request("DELETE", `/v1/files/file_0`, undefined, { key }),
    ],
  });

  test("with files:read alone reads and does not write", async () => {
    const { read, write } = calls(await addSecretKey(gateway, { scopes: ["files:read"] }));
    for (const call of read) expect((await call()).status).toBe(200);
    for (const call of write) await expectError(await call(), 403, "missing_scope");
  });

  test("with files:write alone writes and does not read", async () => {
    const { read, write } = calls(await addSecretKey(gateway, { scopes: ["files:write"] }));
    for (const call of read) await expectError(await call(), 403, "missing_scope");
    expect((await write[0]!()).status).toBe(200);
    await expectError(await write[1]!(), 404, "file_not_found");
  });

  test("that manages has no files", async () => {
    const { read, write } = calls(gateway.managementKey);
    for (const call of [...read, ...write]) await expectError(await call(), 403, "wrong_key_kind");
  });

  test("that is none is 401, whatever the body is", async () => {
    const { read, write } = calls("gateway_sk_no");
    for (const call of [...read, ...write]) await expectError(await call(), 401, "invalid_api_key");
    const headers = { "content-type": "text/plain" };
    const response = await fetch(`${gateway.baseUrl}/v1/files`, { method: "POST", headers });
    await expectError(response, 401, "missing_api_key");
  });

  test("is seen to have been used", async () => {
    const key = await addSecretKey(gateway, { name: "of files" });
    await upload(gateway, "user_data", "x", { key });
    const used = await until("its use is noted", async () => {
      const [row] = await gateway.sql`SELECT last_used_at FROM api_keys WHERE name = 'of files'`;
      return row!.last_used_at ?? undefined;
    });
    expect(used).toBeDate();
  });
});

test("methods that the paths do not have are 405", async () => {
  for (const [method, path] of [
    ["PUT", "/v1/files"],
    ["PATCH", `/v1/files/${own}`],
    ["POST", `/v1/files/${own}/content`],
    ["DELETE", `/v1/files/${own}/download`],
  ] as const) {
    await expectError(await gateway.request(method, path), 405, "method_not_allowed");
  }
});
