import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { connectDatabase } from "../../db/client.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { FileCleaning } from "../../src/jobs/files/file-cleaning.ts";
import { FileUploads } from "../../src/jobs/files/file-uploads.ts";
import { JobFiles } from "../../src/jobs/files/job-files.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { DiskStorage } from "../../src/platform/storage/disk.ts";
import {
  type FilesGateway,
  fileBooks,
  getContent,
  type StoredFile,
  startFilesGateway,
  uploaded,
} from "../support/files-gateway.ts";
import { knownFolder } from "../support/known-folder.ts";
import { until } from "../support/until.ts";

let gateway: FilesGateway;
let jobs: JobFiles;
let close: () => Promise<void>;
beforeAll(async () => {
  gateway = await startFilesGateway();
  const instance = { id: "ins_jobs", epoch: 1n };
  await insertInstance(gateway.sql, instance);
  const parts = {
    sql: gateway.sql,
    storage: new DiskStorage(join(gateway.dataDir, "files"), knownFolder()),
    instance,
    clock: systemClock,
    onError: (error: unknown) => {
      throw error;
    },
  };
  const uploads = new FileUploads(parts);
  const cleaning = new FileCleaning(parts);
  jobs = new JobFiles({ ...parts, uploads, onReleased: () => cleaning.cleanSoon() });
  close = async () => {
    uploads.close();
    await cleaning.close();
  };
});
afterAll(async () => {
  await close();
  await gateway.stop();
});

const text = async (stream: ReadableStream<Uint8Array>) => new Response(stream).text();
const look = async (id: string) =>
  (await (await gateway.request("GET", `/v1/files/${id}`)).json()) as StoredFile;
const bytesOf = (...parts: string[]) => parts.map((part) => new TextEncoder().encode(part));

describe("a file in use by a job", () => {
  let use: { fileId: string; organizationId: string; holder: string };
  beforeEach(async () => {
    const { id } = await uploaded(gateway, "user_data", "lines");
    use = { fileId: id, organizationId: gateway.organizationId, holder: newId("evt") };
  });

  test("is read by the job though its owner deleted it, until the job lets go", async () => {
    await jobs.use(use);
    await jobs.use(use);
    const second = { ...use, holder: newId("evt") };
    await jobs.use(second);
    const stored = await gateway.countStored();
    expect((await gateway.request("DELETE", `/v1/files/${use.fileId}`)).status).toBe(200);
    expect((await getContent(gateway, use.fileId)).status).toBe(404);
    expect(await text(await jobs.read(use))).toBe("lines");
    await jobs.release(use.holder);
    await expect(jobs.read(use)).rejects.toMatchObject({ code: "file_not_found" });
    expect(await text(await jobs.read(second))).toBe("lines");
    expect(await gateway.countStored()).toBe(stored);
    await jobs.release(second.holder);
    await until("its bytes are gone", async () => (await gateway.countStored()) === stored - 1);
    await until("that is noted", async () => !(await fileBooks(gateway)).removals);
  });

  test("stays when the job lets go and its owner does not delete it", async () => {
    await jobs.use(use);
    await jobs.release(use.holder);
    expect(await (await getContent(gateway, use.fileId)).text()).toBe("lines");
  });

  test("is the organization's own, and there", async () => {
    const { organization } = await gateway.addOrganization();
    const foreign = { ...use, organizationId: organization.id };
    const unknown = { ...use, fileId: newId("file") };
    for (const wrong of [foreign, unknown]) {
      await expect(jobs.use(wrong)).rejects.toMatchObject({ code: "file_not_found" });
      await expect(jobs.read(wrong)).rejects.toMatchObject({ code: "file_not_found" });
    }
    await gateway.request("DELETE", `/v1/files/${use.fileId}`);
    await expect(jobs.use(use)).rejects.toMatchObject({ code: "file_not_found" });
  });

  test("that was found unusable is in error, says why, and takes no further job", async () => {
    const file = { id: use.fileId, organizationId: use.organizationId };
    expect(await jobs.trigger(file, "fail", "too long for the model")).toBe("error");
    expect(await jobs.trigger(file, "fail", "another reason")).toBe("error");
    expect(await look(use.fileId)).toMatchObject({
      status: "error",
      status_details: "too long for the model",
    });
    await expect(jobs.use(use)).rejects.toMatchObject({ code: "invalid_body" });
    await expect(jobs.trigger(file, "succeed")).rejects.toMatchObject({ code: "invalid_body" });
    const none = { ...file, id: newId("file") };
    await expect(jobs.trigger(none, "fail")).rejects.toMatchObject({ code: "file_not_found" });
  });
});

describe("a result of a job", () => {
  const result = () => ({
    id: newId("file"),
    organizationId: gateway.organizationId,
    keyId: "key_1",
    filename: "step_metrics.csv",
    contentType: "text/csv",
    purpose: "fine-tune-results" as const,
  });

  test("is empty and uploaded until it is written, then whole and processed", async () => {
    const made = result();
    await jobs.announceResult(made);
    await jobs.announceResult(made);
    expect(await look(made.id)).toMatchObject({
      status: "uploaded",
      bytes: 0,
      purpose: "fine-tune-results",
    });
    const early = await getContent(gateway, made.id);
    expect([early.status, await early.text()]).toEqual([200, ""]);
    const use = { fileId: made.id, organizationId: made.organizationId, holder: "job" };
    await expect(jobs.use(use)).rejects.toMatchObject({ code: "invalid_body" });
    await jobs.writeResult(made, bytesOf("step,loss\n", "1,0.5\n"));
    expect(await look(made.id)).toMatchObject({ status: "processed", bytes: 16 });
    const late = await getContent(gateway, made.id);
    expect([late.headers.get("content-type"), await late.text()]).toEqual([
      "text/csv",
      "step,loss\n1,0.5\n",
    ]);
    const list = await gateway.request("GET", "/v1/files?purpose=fine-tune-results");
    expect(((await list.json()) as { data: unknown[] }).data).toHaveLength(1);
  });

  test("is written once, however many attempts there are at it", async () => {
    const made = result();
    await jobs.announceResult(made);
    const before = await gateway.countStored();
    const used = (await fileBooks(gateway)).used!;
    const written = await Promise.all(
      Array.from({ length: 5 }, () => jobs.writeResult(made, bytesOf("abc"))),
    );
    expect(new Set(written.map(({ sha256 }) => sha256)).size).toBe(1);
    await jobs.writeResult(made, bytesOf("later"));
    expect(await (await getContent(gateway, made.id)).text()).toBe("abc");
    expect(await gateway.countStored()).toBe(before + 1);
    expect(await fileBooks(gateway)).toMatchObject({ uploads: 0, reserved: 0, used: used + 3 });
  });

  test("that cannot be made is in error, and what was written of it is gone", async () => {
    const made = result();
    await jobs.announceResult(made);
    const before = await gateway.countStored();
    async function* broken() {
      yield* bytesOf("abc");
      throw new Error("the provider hung up");
    }
    await expect(jobs.writeResult(made, broken())).rejects.toThrow("the provider hung up");
    expect(await jobs.trigger(made, "fail", "no results")).toBe("error");
    expect(await gateway.countStored()).toBe(before);
    await expect(jobs.writeResult(made, bytesOf("x"))).rejects.toMatchObject({
      code: "invalid_body",
    });
  });

  test("can be deleted in the moment in which it is written, and both come to their end", async () => {
    const made = result();
    await jobs.announceResult(made);
    // The organization has a place in the quota from its first file on.
    await uploaded(gateway, "user_data", "x");
    const before = await gateway.countStored();
    // Connections beside those that the job writes with.
    const target = { url: gateway.databaseUrl };
    const beside = connectDatabase(target, { poolSize: 2, applicationName: "test" });
    const waitingFor = (count: number) =>
      until(`${count} wait`, async () => {
        const waiting = await beside`SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return waiting.length === count;
      });
    let written: Promise<unknown> | undefined;
    let deleted: Promise<Response> | undefined;
    await beside.begin(async (sql) => {
      await sql`SELECT 1 FROM file_usage WHERE organization_id = ${gateway.organizationId} FOR UPDATE`;
      written = jobs.writeResult(made, bytesOf("abc")).catch((error: Error) => error);
      await waitingFor(1);
      deleted = gateway.request("DELETE", `/v1/files/${made.id}`);
      await waitingFor(2);
    });
    expect((await deleted!).status).toBe(200);
    await written;
    await expect(jobs.writeResult(made, bytesOf("abc"))).rejects.toMatchObject({
      code: "file_not_found",
    });
    expect((await gateway.request("GET", `/v1/files/${made.id}`)).status).toBe(404);
    await until("its bytes are gone", async () => (await gateway.countStored()) === before);
    await beside.end();
  });

  test("that was deleted is not written any more", async () => {
    const made = result();
    await jobs.announceResult(made);
    await gateway.request("DELETE", `/v1/files/${made.id}`);
    const before = await gateway.countStored();
    await expect(jobs.writeResult(made, bytesOf("x"))).rejects.toMatchObject({
      code: "file_not_found",
    });
    expect(await gateway.countStored()).toBe(before);
  });
});
