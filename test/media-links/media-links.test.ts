import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { join } from "node:path";
import { claimFileFolder, readFileFolderId } from "../../db/queries/files.ts";
import { deleteExpiredMediaLinks } from "../../db/queries/media-links.ts";
import { MediaLinks } from "../../src/inference/media-links/media-links.ts";
import { FileCleaning } from "../../src/jobs/files/file-cleaning.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { DiskStorage } from "../../src/platform/storage/disk.ts";
import {
  type FileStorage,
  StorageError,
  type StorageWriter,
} from "../../src/platform/storage/interface.ts";
import { S3Storage } from "../../src/platform/storage/s3.ts";
import { expectError } from "../support/error-envelope.ts";
import { type FilesGateway, startFilesGateway } from "../support/files-gateway.ts";
import { image } from "../support/image-heads.ts";
import { BUCKET } from "../support/s3-server.ts";
import { until } from "../support/until.ts";

const PNG = image("png", 64, 32);
const SVG = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>');

function fail(error: unknown): void {
  throw error;
}

function storageOf({ s3, dataDir, sql }: FilesGateway): FileStorage {
  if (s3 === undefined) {
    return new DiskStorage(join(dataDir, "files"), {
      read: () => readFileFolderId(sql),
      claim: (id) => claimFileFolder(sql, id),
    });
  }
  const { endpoint, credentials } = s3;
  return new S3Storage({ bucket: BUCKET, endpoint, ...credentials }, systemClock);
}

describe.each(["disk", "s3"] as const)("what models have made, on %s", (kind) => {
  let gateway: FilesGateway;
  let storage: FileStorage;
  let media: MediaLinks;
  let cleaning: FileCleaning;

  beforeAll(async () => {
    gateway = await startFilesGateway(kind);
    storage = storageOf(gateway);
    media = new MediaLinks({ sql: gateway.sql, storage, onError: fail });
    cleaning = new FileCleaning({ sql: gateway.sql, storage, clock: systemClock, onError: fail });
  });
  afterAll(async () => {
    await cleaning.close();
    await gateway.stop();
  });

  const get = (id: string, init?: RequestInit) => fetch(`${gateway.baseUrl}/v1/media/${id}`, init);
  const store = (bytes: Uint8Array, contentType = "image/png") =>
    media.store(gateway.organizationId, [{ bytes, contentType }]).then(([id]) => id!);
  const moveOn = (id: string, seconds: number) => gateway.sql`
    UPDATE media_links SET expires_at = expires_at - make_interval(secs => ${seconds})
    WHERE id = ${id}`;

  test("is served without a key, by what its bytes are, as nothing that runs", async () => {
    const answer = await get(await store(PNG));
    expect(answer.status).toBe(200);
    expect(new Uint8Array(await answer.arrayBuffer())).toEqual(new Uint8Array(PNG));
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      "content-type": "image/png",
      "content-length": String(PNG.length),
      "x-content-type-options": "nosniff",
      "content-security-policy": "default-src 'none'; sandbox",
      "content-disposition": expect.stringMatching(/^inline; filename="media_\w{10}\.png"/),
    });
    const drawing = await get(await store(SVG, "image/svg+xml"));
    expect(drawing.headers.get("content-type")).toBe("image/svg+xml");
    expect(drawing.headers.get("content-disposition")).toStartWith("attachment;");
    expect(drawing.headers.get("content-security-policy")).toContain("sandbox");
  });

  test("tells its length to HEAD, and gives ranges as asked", async () => {
    const id = await store(PNG);
    const head = await get(id, { method: "HEAD" });
    expect(head.status).toBe(200);
    expect(head.headers.get("content-length")).toBe(String(PNG.length));
    expect(await head.text()).toBe("");
    const part = await get(id, { headers: { range: "bytes=1-3" } });
    expect(part.status).toBe(206);
    expect(await part.text()).toBe("PNG");
    await expectError(
      await get(id, { headers: { range: "bytes=999-" } }),
      416,
      "range_not_satisfiable",
    );
  });

  test("is gone after an hour, and its bytes with it", async () => {
    const before = await gateway.countStored();
    const id = await store(PNG);
    expect(await gateway.countStored()).toBe(before + 1);
    await moveOn(id, 3_590);
    expect(await deleteExpiredMediaLinks(gateway.sql, 10)).toBe(0);
    expect((await get(id)).status).toBe(200);
    await moveOn(id, 10);
    await expectError(await get(id), 404, "media_not_found");
    cleaning.cleanSoon();
    await until("its bytes are gone", async () => (await gateway.countStored()) === before);
    expect(await gateway.sql`SELECT 1 FROM media_links WHERE id = ${id}`).toBeEmpty();
    await until("the removal is done", async () => {
      const left = await gateway.sql`SELECT 1 FROM file_removals WHERE storage_key = ${id}`;
      return left.length === 0;
    });
  });

  test("is found again, with an unfinished write, where the process dies before its links are made", async () => {
    const before = await gateway.countStored();
    const abandoned: StorageWriter[] = [];
    const finishing = Promise.withResolvers<string>();
    const dying = new MediaLinks({
      sql: gateway.sql,
      storage: {
        ...storage,
        write(key) {
          const writer = storage.write(key);
          abandoned.push(writer);
          const finish = () => {
            finishing.resolve(key);
            return new Promise<never>(() => {});
          };
          return { write: (piece) => writer.write(piece), finish, abort: () => writer.abort() };
        },
      },
      onError: fail,
    });
    void dying.store(gateway.organizationId, [{ bytes: PNG, contentType: "image/png" }]);
    const id = await finishing.promise;
    // A store with S3's protocol gets such a small object in one piece, at the end.
    expect(await gateway.countStored()).toBe(before + (kind === "disk" ? 1 : 0));
    await moveOn(id, 3_601);
    cleaning.cleanSoon();
    await until("its bytes are gone", async () => (await gateway.countStored()) === before);
    for (const writer of abandoned) await writer.abort();
  });

  test("is not there when the store fails, and the caller is told to come again", async () => {
    const broken = new MediaLinks({
      sql: gateway.sql,
      storage: {
        ...storage,
        write: () => ({
          write: () => Promise.reject(new StorageError("full")),
          finish: async () => {},
          abort: async () => {},
        }),
      },
      onError: fail,
    });
    const stored = broken.store(gateway.organizationId, [{ bytes: PNG, contentType: "image/png" }]);
    await expect(stored).rejects.toMatchObject({ code: "overloaded", retryAfterSeconds: 5 });
  });

  test("leaves no bytes behind where a pause outlasted its row", async () => {
    const before = await gateway.countStored();
    const late = new MediaLinks({
      sql: gateway.sql,
      storage: {
        ...storage,
        remove: (key) => storage.remove(key),
        write(key) {
          const writer = storage.write(key);
          return {
            write: (piece) => writer.write(piece),
            async finish() {
              await moveOn(key, 3_601);
              await deleteExpiredMediaLinks(gateway.sql, 10);
              await gateway.sql`DELETE FROM file_removals WHERE storage_key = ${key}`;
              await writer.finish();
            },
            abort: () => writer.abort(),
          };
        },
      },
      onError: fail,
    });
    const stored = late.store(gateway.organizationId, [{ bytes: PNG, contentType: "image/png" }]);
    await expect(stored).rejects.toMatchObject({ code: "overloaded" });
    expect(await gateway.countStored()).toBe(before);
  });

  test("cannot be read by a suspended organization's links", async () => {
    const other = await gateway.addOrganization();
    const [id] = await media.store(other.organization.id, [
      { bytes: PNG, contentType: "image/png" },
    ]);
    expect((await get(id!)).status).toBe(200);
    await gateway.sql`UPDATE organizations SET suspended_at = now() WHERE id = ${other.organization.id}`;
    await expectError(await get(id!), 404, "media_not_found");
  });

  test("has ids that no one can guess, and other texts name nothing", async () => {
    const ids = await media.store(
      gateway.organizationId,
      Array.from({ length: 10 }, () => ({ bytes: PNG, contentType: "image/png" })),
    );
    expect(new Set(ids).size).toBe(10);
    for (const id of ids) expect(id).toMatch(/^media_[0-9a-f]{64}$/);
    // No part of an id is shared with another.
    for (let at = 6; at < 70; at += 8) {
      expect(new Set(ids.map((id) => id.slice(at, at + 8))).size).toBe(10);
    }
    for (const odd of [
      "x",
      "media_",
      `${ids[0]}0`,
      ids[0]!.toUpperCase(),
      "%00",
      "..%2F.storage-id",
      "%27",
    ]) {
      await expectError(await get(odd), 404, "media_not_found");
    }
  });
});
