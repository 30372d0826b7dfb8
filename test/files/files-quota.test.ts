import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { insertInstance } from "../../db/queries/instances.ts";
import { FileUploads } from "../../src/jobs/files/file-uploads.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { DiskStorage } from "../../src/platform/storage/disk.ts";
import { expectError } from "../support/error-envelope.ts";
import {
  type FilesGateway,
  fileBooks,
  type StoredFile,
  startFilesGateway,
  upload,
  uploaded,
} from "../support/files-gateway.ts";
import { knownFolder } from "../support/known-folder.ts";
import { sendStreamed, streamedForm } from "../support/streamed-form.ts";
import { until } from "../support/until.ts";

const GIGABYTE = 1024 ** 3;
const SIZE = 150_000;
const CONTENT = new Uint8Array(SIZE).fill(7);

let gateway: FilesGateway;
beforeAll(async () => {
  gateway = await startFilesGateway();
});
afterAll(() => gateway.stop());

/** Leaves an organization so much of its quota; what it uses besides is in no file. */
async function leaveBytes(organizationId: string, bytes: number, quotaBytes = 100 * GIGABYTE) {
  const used = String(quotaBytes - bytes);
  await gateway.sql`
    INSERT INTO file_usage (organization_id, used_bytes) VALUES (${organizationId}, ${used}::bigint)
    ON CONFLICT (organization_id) DO UPDATE SET used_bytes = ${used}::bigint`;
}

async function usageOf(organizationId: string) {
  const [row] = await gateway.sql<{ used_bytes: bigint; reserved_bytes: bigint }[]>`
    SELECT used_bytes, reserved_bytes FROM file_usage WHERE organization_id = ${organizationId}`;
  return { used: Number(row!.used_bytes), reserved: Number(row!.reserved_bytes) };
}

describe.each([
  ["that tell their length", (key: string) => upload(gateway, "user_data", CONTENT, { key })],
  [
    "that come in chunks",
    (key: string) => {
      const pattern = CONTENT.subarray(0, 50_000);
      const form = streamedForm({ purpose: "user_data", fileBytes: SIZE, pattern });
      return sendStreamed(gateway.baseUrl, key, form);
    },
  ],
])("concurrent uploads %s", (_, send) => {
  test.each([
    [5, 0],
    [5, SIZE - 1],
    [1, 0],
    [0, SIZE - 1],
  ])(
    "get through at the quota's edge as many as fit: %d, with %d bytes over",
    async (fitting, over) => {
      const { organization, secretKey } = await gateway.addOrganization();
      await leaveBytes(organization.id, fitting * SIZE + over);
      await until("what was deleted is gone", async () => !(await fileBooks(gateway)).removals);
      const before = await gateway.countStored();
      const answers = await Promise.all(Array.from({ length: 14 }, () => send(secretKey)));
      const taken = answers.filter(({ status }) => status === 200);
      expect(taken).toHaveLength(fitting);
      for (const answer of answers) {
        if (answer.status !== 200) await expectError(answer, 403, "quota_exceeded");
      }
      expect(await usageOf(organization.id)).toEqual({ used: 100 * GIGABYTE - over, reserved: 0 });
      expect(await gateway.countStored()).toBe(before + fitting);
      if (fitting === 0) return;
      const { id } = (await taken[0]!.json()) as StoredFile;
      const key = secretKey;
      await gateway.request("DELETE", `/v1/files/${id}`, undefined, { key });
      expect((await send(key)).status).toBe(200);
      await expectError(await send(key), 403, "quota_exceeded");
    },
  );
});

test("uploads of several instances share one quota", async () => {
  const { organization } = await gateway.addOrganization();
  await leaveBytes(organization.id, 7 * SIZE);
  const instances = [1n, 2n, 3n].map((epoch) => ({ id: `ins_quota_${epoch}`, epoch }));
  const uploads = await Promise.all(
    instances.map(async (instance) => {
      await insertInstance(gateway.sql, instance);
      return new FileUploads({
        sql: gateway.sql,
        storage: new DiskStorage(`${gateway.dataDir}/files`, knownFolder()),
        instance,
        clock: systemClock,
        onError: (error) => {
          throw error;
        },
      });
    }),
  );
  const outcomes = await Promise.allSettled(
    Array.from({ length: 24 }, (_, n) =>
      uploads[n % 3]!.run(
        organization.id,
        async (one) => {
          one.setPurpose("user_data");
          await one.begin({ filename: "a", contentType: "text/plain" });
          for (let at = 0; at < SIZE; at += 10_000)
            await one.write(CONTENT.subarray(at, at + 10_000));
          one.end();
        },
        { leastBytes: n % 2 === 0 ? 0 : SIZE - 100, keyId: "key_1", admitAgain: async () => {} },
      ),
    ),
  );
  expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(7);
  for (const outcome of outcomes) {
    if (outcome.status === "rejected") expect(outcome.reason.code).toBe("quota_exceeded");
  }
  expect(await usageOf(organization.id)).toEqual({ used: 100 * GIGABYTE, reserved: 0 });
  for (const one of uploads) one.close();
});

describe("the quota", () => {
  let organizationId: string;
  let key: string;
  beforeEach(async () => {
    const added = await gateway.addOrganization({ plan: "pro" });
    organizationId = added.organization.id;
    key = added.secretKey;
  });

  test("of Pro is 1 TB", async () => {
    await leaveBytes(organizationId, 3, 1024 * GIGABYTE);
    await uploaded(gateway, "user_data", "abc", { key });
    await expectError(await upload(gateway, "user_data", "a", { key }), 403, "quota_exceeded");
    expect((await upload(gateway, "user_data", "", { key })).status).toBe(200);
  });

  test("is refused before the bytes come where they are known to be too many", async () => {
    await leaveBytes(organizationId, 1_000, 1024 * GIGABYTE);
    let sentBytes = 0;
    const total = 400 * 1024 * 1024;
    const form = streamedForm({
      purpose: "user_data",
      fileBytes: total,
      pattern: new Uint8Array(256 * 1024),
      before: (bytes) => {
        sentBytes = bytes;
      },
    });
    const answer = await sendStreamed(gateway.baseUrl, key, form);
    await expectError(answer, 403, "quota_exceeded");
    // Without a length it is known when so much has come.
    expect(sentBytes).toBeLessThan(total);
  });

  test("counts what there is, and nothing that was refused or deleted", async () => {
    const kept = await uploaded(gateway, "user_data", CONTENT, { key });
    const gone = await uploaded(gateway, "user_data", CONTENT, { key });
    await upload(gateway, "fine-tune", CONTENT, { key });
    await upload(gateway, "vision", CONTENT, { key });
    await gateway.request("DELETE", `/v1/files/${gone.id}`, undefined, { key });
    expect(await usageOf(organizationId)).toEqual({ used: kept.bytes, reserved: 0 });
    expect((await fileBooks(gateway)).uploads).toBe(0);
  });
});
